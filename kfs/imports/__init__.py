"""Records as lines of JSON back into the partitions of a log directory: the counterpart of :mod:`kfs.cat`."""
