"""The ``kfs`` command without a mount."""
