"""A script for ``spark-submit``: ``spark-submit $(python -m kfs.cli.spark_submit) LOG_DIR... DATASET``."""
