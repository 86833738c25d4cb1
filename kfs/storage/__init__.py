"""Where bytes are: files that are listed, told apart, and read at a position, within one budget of descriptors.

What reads a log asks here and nowhere else: :mod:`~kfs.storage.listing` for what is in a directory,
:mod:`~kfs.storage.status` for what a path leads to and in which version, :mod:`~kfs.storage.open_files` for the bytes
of the file that was found, or the error that it is another one now.
"""
