"""Checks of a broker's files: each file on its own, against the log, and against its neighbours. Read-only."""
