"""Where bytes are: files that are listed, told apart, and read at a position, within one budget of descriptors."""
