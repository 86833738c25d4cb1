"""Tests of :mod:`kfs.storage`."""
