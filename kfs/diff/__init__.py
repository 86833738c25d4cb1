"""Copies of partitions compared by several processes; how, is in :mod:`kfs.log.copies`."""
