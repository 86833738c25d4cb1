"""Lines of text made of a segment: their sources, an index of where they are, its store, and a cache of both."""
