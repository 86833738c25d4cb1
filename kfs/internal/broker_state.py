"""What brokers keep in topics of their own, of one data directory, made and imported when it is asked for."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from kfs.log.data_dir import DataDir

if TYPE_CHECKING:
    from kfs.internal.cluster.cluster import Cluster
    from kfs.internal.groups import Groups
    from kfs.internal.transaction_state import TransactionalIds


class BrokerState:
    """Groups, transactional ids and the cluster; from now on the data directory asks the last what topics are."""

    def __init__(self, data_dir: DataDir) -> None:
        self._data_dir = data_dir
        data_dir.topic_ids = lambda: self.cluster

    @cached_property
    def groups(self) -> Groups:
        """Consumer groups."""
        from kfs.internal.groups import Groups

        return Groups(self._data_dir)

    @cached_property
    def transactional_ids(self) -> TransactionalIds:
        """Transactional ids."""
        from kfs.internal.transaction_state import TransactionalIds

        return TransactionalIds(self._data_dir)

    @cached_property
    def cluster(self) -> Cluster:
        """What is known of the cluster."""
        from kfs.internal.cluster.cluster import Cluster

        return Cluster(self._data_dir)
