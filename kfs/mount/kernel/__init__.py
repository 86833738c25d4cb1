"""The front on Linux: the kernel's FUSE protocol on ``/dev/fuse``, without libfuse."""
