"""An export of a log that isn't the one that was exported before is refused, and the ways on that it names lead on."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from kfs.errors import DataLoss
from kfs.format.checkpoint import TopicPartition
from kfs.log.identity import Identity
from kfs.spark.exporting.export import Export
from kfs.spark.offsets import open_writable_store
from kfs.spark.options import ReadOptions
from tests.cli.running import printed
from tests.spark.export.exports import HereJobs, export, exported, options_for
from tests.spark.topics import A, B, append, make_topic

ACCEPT_LOSS = ReadOptions(fail_on_data_loss=False)
T = TopicPartition("t", 0)

pytestmark = pytest.mark.usefixtures("eager")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Topics t and u of id A: 0 to 99, from 50 on in leader epoch 1."""
    for name in ("t-0", "u-0"):
        make_topic(tmp_path / "data", 100, A, {0: 0, 50: 1}, name=name)
    return tmp_path / "data"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def offsets_in(dataset: Path, topic: str = "t") -> list[int]:
    return [row["offset"] for row in exported(dataset) if row["topic"] == topic]


def identity(dataset: Path) -> Identity | None:
    with open_writable_store(f"sqlite://{dataset}/_kfs/progress.db") as store:
        return store.load("export").identities.get(T)


def refusal(data: Path, dataset: Path) -> str:
    """Return why nothing is exported, whatever is accepted."""
    before = exported(dataset)
    for read in (ReadOptions(), ACCEPT_LOSS):
        with pytest.raises(DataLoss) as error:
            export(options_for(data, dataset, read=read))
    assert exported(dataset) == before
    return str(error.value)


def do_what_it_says(reason: str, to: str) -> None:
    """Run the command that a refusal names."""
    command = re.search(r"kfs (offsets reset .* --to )earliest", reason)
    assert command is not None
    printed(*shlex.split(command[1]), to)


def test_positions_are_kept_with_the_log_that_they_are_of(data: Path, dataset: Path) -> None:
    export(options_for(data, dataset))
    assert identity(dataset) == Identity(A, 1)
    assert identity(dataset) == Identity(A, 1)
    append(data, 100, 120, epoch=3)
    export(options_for(data, dataset))
    assert identity(dataset) == Identity(A, 3)
    assert offsets_in(dataset) == list(range(120))


def test_a_topic_made_anew_is_refused_and_the_ways_on_lead_on(data: Path, dataset: Path, tmp_path: Path) -> None:
    export(options_for(data, dataset))
    make_topic(data, 250, B)
    reason = refusal(data, dataset)
    assert reason.startswith(
        f"topic t was deleted and re-created: position 100 of t-0 belongs to topic id {A}, and {data}/t-0 to "
        f"topic id {B}: export it to another dataset; or remove topic t from {dataset} and start "
        f"again: kfs offsets reset sqlite://{dataset}/_kfs/progress.db {data} --group export --topic t --to earliest"
    )
    assert "failOnDataLoss" not in reason
    export(options_for(data, tmp_path / "another"))
    assert offsets_in(tmp_path / "another") == list(range(250))

    shutil.copytree(dataset, tmp_path / "copied")
    shutil.rmtree(dataset / "topic=t")
    do_what_it_says(reason, "earliest")
    export(options_for(data, dataset))
    assert offsets_in(dataset) == list(range(250))
    assert offsets_in(dataset, "u") == list(range(100))
    assert identity(dataset) == Identity(B, 0)


def test_what_there_is_of_it_may_be_left_out(data: Path, dataset: Path) -> None:
    export(options_for(data, dataset))
    make_topic(data, 250, B)
    do_what_it_says(refusal(data, dataset), "latest")
    assert export(options_for(data, dataset)).records == 0
    append(data, 250, 255)
    export(options_for(data, dataset))
    assert offsets_in(dataset) == [*range(100), *range(250, 255)]


def test_a_log_that_went_another_way_is_refused_and_the_ways_on_lead_on(data: Path, dataset: Path) -> None:
    export(options_for(data, dataset))
    make_topic(data, 250, A, {0: 0, 50: 1, 70: 4})
    reason = refusal(data, dataset)
    assert reason.startswith("the log of t-0 is not the one that was read up to offset 100: ")
    assert "has epoch 4 there" in reason
    do_what_it_says(reason, "100")
    export(options_for(data, dataset))
    assert offsets_in(dataset) == list(range(250))
    assert identity(dataset) == Identity(A, 4)


def test_one_position_that_is_set_by_hand_is_taken_for_the_same_topic(data: Path, dataset: Path) -> None:
    export(options_for(data, dataset))
    url = f"sqlite://{dataset}/_kfs/progress.db"
    make_topic(data, 250, A, {0: 0, 50: 1, 70: 4})
    printed("offsets", "set", url, "t/0=100", "--group", "export")
    assert identity(dataset) == Identity(A)
    export(options_for(data, dataset))
    make_topic(data, 300, B)
    printed("offsets", "set", url, "t/0=250", "--group", "export")
    assert "topic t was deleted and re-created" in refusal(data, dataset)


def test_a_position_of_an_earlier_version_is_taken_as_it_is_and_gets_what_it_lacks(data: Path, dataset: Path) -> None:
    export(options_for(data, dataset))
    with closing(sqlite3.connect(dataset / "_kfs" / "progress.db")) as connection, connection:
        ((state,),) = connection.execute("SELECT state FROM kfs_groups")
        older = {name: value for name, value in json.loads(state).items() if name != "identities"}
        connection.execute("UPDATE kfs_groups SET state = ?", (json.dumps(older),))
    assert identity(dataset) is None
    append(data, 100, 105, epoch=1)
    export(options_for(data, dataset))
    assert offsets_in(dataset) == list(range(105))
    assert identity(dataset) == Identity(A, 1)


@pytest.mark.parametrize("read", [ReadOptions(), ACCEPT_LOSS])
def test_a_topic_made_anew_while_a_batch_is_written_is_refused(read: ReadOptions, data: Path, dataset: Path) -> None:
    def make_it_anew(_exporting: Export) -> None:
        make_topic(data, 250, B)

    with pytest.raises(DataLoss, match="topic t was deleted and re-created"):
        export(options_for(data, dataset, read=read), at_batch=make_it_anew)
    assert exported(dataset) == []
    shutil.rmtree(dataset)


def test_a_topic_made_anew_when_its_records_were_read_is_refused(data: Path, dataset: Path) -> None:
    class ThenMadeAnew(HereJobs):
        def run(self, *arguments: object) -> list[object]:  # type: ignore[override]
            done = super().run(*arguments)  # type: ignore[arg-type]
            make_topic(data, 250, B)
            return done  # type: ignore[return-value]

    with pytest.raises(DataLoss, match="topic t was deleted and re-created"):
        export(options_for(data, dataset), ThenMadeAnew())
    assert exported(dataset) == []


def test_the_other_topics_are_exported_when_it_is_left_out(data: Path, dataset: Path) -> None:
    export(options_for(data, dataset))
    make_topic(data, 250, B)
    append(data, 100, 105, name="u-0")
    export(options_for(data, dataset, topics=("u",)))
    assert offsets_in(dataset, "u") == list(range(105))
