"""Compares the copies of partitions: which copy to keep, and where the others differ."""
