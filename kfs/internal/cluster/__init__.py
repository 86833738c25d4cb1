"""The state of a cluster: what its metadata log and the snapshots of it say, read without a broker.

::

    cluster = Cluster(DataDir(["/var/lib/kafka/data"], Storage()))
    state = cluster.state()                      # None where there is no metadata log
    state.image.topic("orders").partitions[0].leader

:mod:`~kfs.internal.cluster.image` replays records, :mod:`~kfs.internal.cluster.metadata_log` finds them,
:mod:`~kfs.internal.cluster.cluster` chooses between several disks, :mod:`~kfs.internal.cluster.rows` says it as JSON.
"""
