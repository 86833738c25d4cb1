"""Tests of kfs.log: the files of a data directory as objects."""
