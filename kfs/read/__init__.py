"""Decides, in one place, which records of a log a reader sees, and which offsets are lost."""
