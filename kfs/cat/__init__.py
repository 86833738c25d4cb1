"""Writes records in offset order, on all cores, for ``kfs cat``: as JSON lines, raw keys or values, or a table file."""
