"""Imports JSON lines and tables as records into a log directory's partitions: the counterpart of :mod:`kfs.cat`."""
