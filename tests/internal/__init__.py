"""Tests of :mod:`kfs.format`."""
