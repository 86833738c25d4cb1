"""What a reader sees of a log, decided once: which records are visible, and which offsets are lost."""
