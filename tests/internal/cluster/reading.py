"""Opening metadata logs and clusters for tests."""

from __future__ import annotations

from pathlib import Path

from kfs.internal.cluster.cluster import Cluster
from kfs.internal.cluster.metadata_log import MetadataLog
from kfs.internal.cluster.rows import ClusterRows
from kfs.log.data_dir import DataDir
from kfs.log.directory_name import DirectoryName
from kfs.log.partition_directory import PartitionDirectory
from kfs.log.storage import Storage
from tests.corpus import extract
from tests.internal.cluster.writing import DIRECTORY

RECORDED = Path(__file__).with_name("recorded")


def recorded(name: str, target: Path) -> Path:
    """Extract what is recorded under a name, and return its directory."""
    extract(RECORDED / f"{name}.tar.zst", target / "recorded")
    return target / "recorded" / name


def metadata_log(root: Path) -> MetadataLog:
    """Return the metadata log in a log directory."""
    name = DirectoryName("__cluster_metadata", 0)
    return MetadataLog(PartitionDirectory(str(root / DIRECTORY), name, None), Storage())


def cluster_of(*roots: Path) -> Cluster:
    """Return the cluster that log directories belong to, asked by the data directory as by the tree."""
    data_dir = DataDir([str(root) for root in roots], Storage())
    cluster = Cluster(data_dir)
    data_dir.topic_ids = lambda: cluster
    return cluster


def rows_of(*roots: Path) -> ClusterRows:
    """Return what there is to say of a cluster."""
    return ClusterRows(cluster_of(*roots))
