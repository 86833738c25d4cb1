"""Tests of :mod:`kfs.dump`."""
