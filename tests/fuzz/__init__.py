"""Mutated real batches, read by both twins."""
