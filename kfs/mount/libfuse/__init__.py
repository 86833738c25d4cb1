"""The front through libfuse, by way of mfusepy or fusepy: for systems other than Linux, or on request."""
