"""Making a copy of a log directory that a broker starts on, and saying what was lost on the way."""
