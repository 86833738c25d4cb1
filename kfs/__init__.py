"""Apache Kafka's log directories as a filesystem: no broker needed, nothing ever written."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("kfs")
except PackageNotFoundError:  # a checkout that was never installed
    __version__ = "0+unknown"
