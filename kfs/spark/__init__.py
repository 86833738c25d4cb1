"""Kafka's log directories in Spark, with no broker; docs/SPARK.md tells when to use which way.

Importing this imports neither Spark nor pyarrow.
"""
