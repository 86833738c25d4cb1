"""The state of a cluster, from its metadata log and the snapshots of it, read without a broker.

::

    cluster = Cluster(DataDir(["/var/lib/kafka/data"], Storage()))
    state = cluster.state()                      # None without a metadata log
    state.image.topic("orders").partitions[0].leader

:mod:`~kfs.internal.cluster.image` replays records, :mod:`~kfs.internal.cluster.metadata_log` finds them,
:mod:`~kfs.internal.cluster.cluster` chooses between several disks, and :mod:`~kfs.internal.cluster.rows` returns the
state as JSON.
"""
