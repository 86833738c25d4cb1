"""The pipeline: where jobs that read log directories keep how far they got (:mod:`kfs.spark.offsets`)."""
