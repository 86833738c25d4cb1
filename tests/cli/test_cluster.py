"""``kfs cluster``: tables, lines and JSON of what the metadata log says, and no secrets."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kfs.cli.main import main
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.node import File
from tests.cli.running import printed
from tests.cli.test_command_line import on_a_terminal
from tests.every_node import every_node
from tests.internal.cluster.reading import RECORDED, metadata_log, recorded
from tests.internal.cluster.test_cluster import broker, partition_of
from tests.internal.cluster.writing import batch, config, partition, topic, uuid, value, write_log, write_segment
from tests.logs import open_tree
from tests.system.kafka_mount import kfs

SECTIONS = (
    *("topics", "brokers", "configs", "users", "acls", "quotas", "tokens", "directories", "snapshots", "problems"),
)
PAGE = Path(__file__).parents[2] / "docs" / "CLUSTER.md"


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded("rich", tmp_path_factory.mktemp("rich"))


def said(*arguments: str) -> bytes:
    """Return all that the command prints, run in this process: there are many."""
    result = CliRunner().invoke(main, ["cluster", *arguments])
    assert result.exit_code in (0, 1)  # in some there is something that can't be applied
    return result.output.encode()


def table(*arguments: str | Path) -> list[list[str]]:
    return [line.split("\t") for line in printed("cluster", *arguments).decode().splitlines()]


def test_the_summary_says_the_essentials(rich: Path) -> None:
    lines = dict(table(rich))
    said = json.loads((RECORDED / "rich.json").read_text())
    assert lines["CLUSTER"] == said["clusterId"]
    assert lines["metadata version"] == "4.3-IV0 (level 30)"
    assert lines["topics"] == "2, partitions 6"
    assert lines["offline"] == "0 partitions"
    assert lines["brokers"] == "1, fenced 0"
    assert lines["quorum leader"] == "1, epoch 1"


def test_each_partition_has_a_line(rich: Path) -> None:
    header, *lines = table("--topics", rich)
    assert header[0] == "TOPIC"
    assert [(line[0], line[2], line[3], line[8]) for line in lines] == [
        *(("again", str(number), "1", "ok") for number in range(2)),
        *(("orders", str(number), "1", "ok") for number in range(4)),
    ]


def test_topics_can_be_chosen(rich: Path) -> None:
    assert {line[0] for line in table("--topics", "--topic", "ord*", rich)[1:]} == {"orders"}
    configs = table("--configs", "--topic", "none", rich)[1:]
    assert {line[0] for line in configs} == {"BROKER", "CLIENT_METRICS", "GROUP"}


def test_every_line_of_a_table_has_the_columns_of_its_header(rich: Path) -> None:
    for section in SECTIONS:
        lines = said(f"--{section}", str(rich)).decode().splitlines()
        for line, following in pairwise(lines):
            assert line.count("\t") == following.count("\t"), section


def test_several_lists_follow_one_another(rich: Path) -> None:
    assert [line[0] for line in table("--users", "--quotas", rich) if line[0].isupper()] == ["USER", "ENTITY"]


def test_secrets_are_hidden_and_said_to_be(rich: Path) -> None:
    hidden = {line[2] for line in table("--configs", rich) if line[3] == "(hidden)"}
    assert hidden == {"sasl.jaas.config", "of.a.plugin", "listener.name.plaintext.ssl.keystore.password"}


def test_json_is_one_object_a_line(rich: Path) -> None:
    topics = [json.loads(line) for line in printed("cluster", "--topics", "--json", rich).splitlines()]
    assert [(one["topic"], len(one["partitions"])) for one in topics] == [("again", 2), ("orders", 4)]
    assert json.loads(printed("cluster", "--json", rich))["counts"]["topics"] == 2
    assert kfs("cluster", "--json", "--topics", "--users", rich).returncode == 2


def test_partitions_in_trouble_can_be_chosen(tmp_path: Path) -> None:
    whole, lacking = (1, 2), {"isr": (1,)}
    content = [
        *(topic("a", 1), partition(0, 1, whole), partition(1, 1, whole, **lacking)),
        *(topic("b", 2), partition(0, 2, whole, leader=-1), partition(1, 2, whole, leader=-1, **lacking)),
        *(topic("fine", 3), partition(0, 3, whole)),
    ]
    write_log(broker(tmp_path), [content])

    def chosen(*options: str) -> list[str]:
        return [f"{line[0]}-{line[2]} {line[8]}" for line in table(*options, tmp_path)[1:]]

    assert chosen("--under-replicated") == ["a-1 under-replicated", "b-1 offline,under-replicated"]
    assert chosen("--offline") == ["b-0 offline", "b-1 offline,under-replicated"]
    assert chosen("--offline", "--under-replicated") == [*chosen("--under-replicated")[:1], *chosen("--offline")]
    assert chosen("--offline", "--topics", "--topic", "a") == []
    [found] = map(json.loads, printed("cluster", "--under-replicated", "--topic", "a", "--json", tmp_path).splitlines())
    assert [one["partition"] for one in found["partitions"]] == [1]


def test_a_directory_without_metadata_shows_what_it_has(tmp_path: Path) -> None:
    partition_of(broker(tmp_path), "t-3", uuid(1))
    done = kfs("cluster", "--topics", tmp_path)
    assert done.returncode == 1
    assert done.stdout.decode().splitlines()[1].split("\t") == ["t", str(uuid(1)), "3", *"------"]
    assert b"no metadata log here" in done.stderr
    assert dict(line.split("\t") for line in kfs("cluster", tmp_path).stdout.decode().splitlines())["offline"] == (
        "- partitions"
    )


@pytest.mark.parametrize("section", SECTIONS)
def test_what_only_the_metadata_has_is_missed_where_there_is_none(section: str, tmp_path: Path) -> None:
    partition_of(broker(tmp_path), "t-3", uuid(1))
    done = kfs("cluster", f"--{section}", tmp_path)
    assert b"no metadata log here" in done.stderr
    assert done.returncode == (0 if section in ("directories", "snapshots", "problems") else 1)
    assert kfs("cluster", tmp_path).returncode == 0  # it says what it is known from, and that the rest isn't


def test_a_topic_that_is_not_found_is_said(rich: Path, tmp_path: Path) -> None:
    done = kfs("cluster", "--topics", "--topic", "orders", "--topic", "nope*", rich)
    assert (done.returncode, done.stderr) == (1, b"kfs: no topic matches 'nope*'\n")
    assert b"orders" in done.stdout
    assert kfs("cluster", "--topics", "--topic", "ord*", rich).returncode == 0
    partition_of(broker(tmp_path), "t-3", uuid(1))
    done = kfs("cluster", "--directories", "--topic", "orders", tmp_path)
    assert done.returncode == 1
    assert b"no topic matches 'orders': none that has a directory here" in done.stderr


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    write_log(broker(tmp_path), [[topic("t", 1), b"garbage"]])
    done = kfs("cluster", tmp_path)
    assert done.returncode == 1
    assert b"kfs: 1 records weren't applied" in done.stderr
    assert len(kfs("cluster", "--problems", tmp_path).stdout.splitlines()) == 2


def test_nothing_drives_a_terminal(tmp_path: Path) -> None:
    evil = "\x1b[31mred\t\n"
    values = [topic(evil, 1), config(2, evil, evil, evil), value("no_op")]
    values += [value("user_scram_credential", name=evil, mechanism=1), value("delegation_token", tokenId=evil)]
    write_log(broker(tmp_path), [values])
    shown = on_a_terminal("cluster", *(f"--{section}" for section in SECTIONS), tmp_path)
    assert b"\x1b[31mred" not in shown
    assert shown.count(rb"\x1b[31mred") > 3
    for section in SECTIONS:
        assert b"\x1b" not in said(f"--{section}", str(tmp_path))
        assert b"\x1b" not in said(f"--{section}", "--json", str(tmp_path))


def test_a_terminal_gets_aligned_columns(rich: Path) -> None:
    lines = on_a_terminal("cluster", "--users", rich).decode().replace("\r", "").splitlines()
    (alice,) = [line for line in lines if "SHA-256" in line]
    assert alice.split() == ["alice", "SCRAM-SHA-256", "4096"]
    assert "\t" not in "".join(lines)


# --- secrets --------------------------------------------------------------------------------------------------------

SECRETS = (b"kfs-secret-salt!", b"kfs-secret-stored", b"kfs-secret-server", b"kfs-secret-config", b"kfs-secret-future")


def shapes(secret: bytes) -> Iterator[bytes]:
    """Yield a secret as it may be shown, cut to what survives base64 at any alignment."""
    yield secret
    yield secret.hex().encode()
    for padding in range(3):
        encoded = base64.b64encode(b"\0" * padding + secret)
        yield encoded[4:-4]


def outputs(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield everything that the tree and the command say of the cluster."""
    tree = open_tree(root)
    for path in cluster_files(tree):
        node = tree.resolve(path)
        assert isinstance(node, File)
        yield path, node.read(0, node.attributes().size)
    for section in ("", *(f"--{one}" for one in SECTIONS)):
        for form in ((), ("--json",)):
            yield f"kfs cluster {section} {form}", said(*filter(None, (section, *form)), str(root))


def cluster_files(tree: KafkaTree) -> list[str]:
    return [listed.path for listed in every_node(tree, ".kfs/cluster") if isinstance(listed.node, File)]


def test_no_secret_is_in_any_output(tmp_path: Path) -> None:
    salt, stored, server, plain, future = SECRETS
    credential = value(
        "user_scram_credential", name="u", mechanism=1, salt=salt, storedKey=stored, serverKey=server, iterations=4096
    )
    values = [
        credential,
        credential[:-3],  # broken, and so it isn't applied
        b"\x01\x0b\x09" + credential[3:],  # of a version that is to come
        b"\x01\x63\x00" + future,  # of a type that is to come
        *(config(4, resource, f"x.{name}", plain.decode()) for resource in ("", "1") for name in ("password", "y")),
        config(4, "", "sasl.jaas.config", plain.decode()),
        config(2, "t", "some.secret", plain.decode()),
        config(32, "g", "api.key", plain.decode()),
        value("delegation_token", tokenId="t", owner="User:o") + future,
    ]
    write_segment(broker(tmp_path), batch(0, values))
    shown = list(outputs(tmp_path))
    assert any(b"SCRAM-SHA-256" in output for _, output in shown)
    assert_none(shown, SECRETS)
    assert all(secret not in repr(metadata_log(tmp_path).state()).encode() for secret in SECRETS)


def test_no_secret_that_was_given_to_a_broker_is_in_any_output(rich: Path) -> None:
    log = b"".join(path.read_bytes() for path in (rich / "__cluster_metadata-0").iterdir())
    assert b"kfs-secret" in log
    assert_none(list(outputs(rich)), [b"kfs-secret"])


def assert_none(shown: list[tuple[str, bytes]], secrets: Any) -> None:
    for where, output in shown:
        for secret in secrets:
            for shape in shapes(secret):
                assert shape not in output, (where, secret)


# --- the manual -----------------------------------------------------------------------------------------------------


def test_the_manual_names_every_option_and_every_file() -> None:
    text = PAGE.read_text()
    for section in SECTIONS:
        assert f"`--{section}`" in text
    for name in ("cluster.json", "topics/<topic>.json", *(f"{one}.jsonl" for one in SECTIONS)):
        assert f"`{name}`" in text
