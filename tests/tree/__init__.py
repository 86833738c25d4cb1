"""Tests of :mod:`kfs.tree`."""
