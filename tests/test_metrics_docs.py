"""docs/METRICS.md names every metric that there is, and no other."""

from __future__ import annotations

import re
import socket
from pathlib import Path

from kfs.log.change import Change
from kfs.log.problem import ProblemKind
from kfs.mount.kernel.session import Session
from kfs.tree.tree_metrics import tree_metrics
from kfs.verify.finding import FindingKind
from tests.logs import dense, open_tree, write_partition

PAGE = (Path(__file__).parents[1] / "docs" / "METRICS.md").read_text()
#: What verify has no word for, or several.
OWN_KINDS = {ProblemKind.INDEX, ProblemKind.SOURCE_LOST, ProblemKind.OTHER}


def test_the_page_has_every_metric_in_a_table_and_names_no_other(tmp_path: Path) -> None:
    tree = open_tree(write_partition(tmp_path / "t-0", {0: dense(0, 4)}).parent)
    device, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with device:
        session = Session(tree, device.fileno())
        tree.is_served("/mnt/k", session.metrics)
        there = {metric.name: metric for metric in tree_metrics(tree.context)}
    rows = "\n".join(line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `kfs_"))
    assert set(re.findall(r"`(kfs_\w+)`", rows)) == set(there)
    named = {re.sub(r"_bucket$", "", name) for name in re.findall(r"\b(kfs_\w+[a-z])\b", PAGE)}
    assert named - {"kfs_process"} == set(there)
    labels = {name: {label for sample in metric.samples for label in sample.labels} for name, metric in there.items()}
    for line in PAGE.splitlines():
        if line.startswith("| `kfs_"):
            _, names, told, _, _ = re.sub(r"`\|`", "", line).split("|")
            for name in re.findall(r"`(kfs_\w+)`", names):
                assert labels[name] <= set(re.findall(r"`(\w+)`", told)), name


def test_the_page_has_every_change() -> None:
    for change in Change:
        assert f"`{change.value}`" in PAGE


def test_kinds_of_problems_have_the_names_that_verify_has() -> None:
    assert set(ProblemKind) - OWN_KINDS <= {str(kind) for kind in FindingKind}
