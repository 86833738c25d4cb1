"""Recovery: copy a log directory so that a broker starts on the copy, and report what was lost."""
