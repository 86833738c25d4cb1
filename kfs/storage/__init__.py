"""File access: listing files, identifying them, and reading at a position, within one budget of descriptors.

Code that reads logs uses only these modules: :mod:`~kfs.storage.listing` for the content of a directory,
:mod:`~kfs.storage.status` for the kind and the version of a path, and :mod:`~kfs.storage.open_files` for the bytes of a
listed file, or the error that it is a different file now.
"""
