"""Tests of :mod:`kfs.read`."""
