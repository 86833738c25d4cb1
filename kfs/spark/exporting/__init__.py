"""``kfs export``: log directories as a dataset that is partitioned by topic and date, each record in it once.

The driver plans batches (:mod:`~kfs.spark.exporting.batches`), tasks write them as Parquet files
(:mod:`~kfs.spark.exporting.files`), and :class:`~kfs.spark.offsets.StagedOutput` makes files and positions one step.
"""
