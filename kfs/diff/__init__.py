"""Copies of partitions beside each other: what each is worth, which to keep, and where they differ."""
