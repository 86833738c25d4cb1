"""Tests of :mod:`kfs.render`."""
