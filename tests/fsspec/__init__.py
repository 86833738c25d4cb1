"""``kfs://``, the filesystem for fsspec."""
