"""A script for ``spark-submit``: ``spark-submit $(python -m kfs.spark.submit) LOG_DIR... DATASET``."""
