"""Where Spark finds the data source ``kfs`` by itself: it looks into every module that is called ``pyspark_*``."""

from kfs.spark.source import KfsDataSource as DefaultSource

__all__ = ["DefaultSource"]
