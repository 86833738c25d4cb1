"""Lines of text made of a segment: an index of where they are, its store, what makes them, and a cache of both."""
