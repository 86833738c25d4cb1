"""Checking a broker's files: each against itself, against the log, and against its neighbours. Nothing is written."""
