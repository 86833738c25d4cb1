"""The state that brokers keep in internal topics of a data directory, imported and created on demand."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from kfs.log.data_dir import DataDir

if TYPE_CHECKING:
    from kfs.internal.cluster.cluster import Cluster
    from kfs.internal.groups import Groups
    from kfs.internal.transaction_state import TransactionalIds


class BrokerState:
    """Groups, transactional ids and the cluster; the data directory now gets topic ids from the cluster."""

    def __init__(self, data_dir: DataDir) -> None:
        self._data_dir = data_dir
        data_dir.topic_ids = lambda: self.cluster

    @cached_property
    def groups(self) -> Groups:
        """The consumer groups."""
        from kfs.internal.groups import Groups

        return Groups(self._data_dir)

    @cached_property
    def transactional_ids(self) -> TransactionalIds:
        """The transactional ids."""
        from kfs.internal.transaction_state import TransactionalIds

        return TransactionalIds(self._data_dir)

    @cached_property
    def cluster(self) -> Cluster:
        """The state of the cluster."""
        from kfs.internal.cluster.cluster import Cluster

        return Cluster(self._data_dir)
