"""Mutated real batches, read by both implementations."""
