"""Apache Kafka's log directories as a filesystem: no broker needed, nothing ever written."""

from __future__ import annotations


def __getattr__(name: str) -> str:
    # Looking it up takes longer than some commands; hence only when somebody asks.
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("kfs")
        except PackageNotFoundError:  # a checkout that was never installed
            return "0+unknown"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
