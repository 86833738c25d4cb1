"""The front for other systems than Linux, or where it is asked for: libfuse, by way of mfusepy or fusepy."""
