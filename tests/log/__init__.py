"""Tests of :mod:`kfs.log`."""
