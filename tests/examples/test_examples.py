"""Each script of mount_examples/ runs by itself, shows what it promises, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Protocol

import pytest

from benchmarks.kafka_jars import spark_kafka_jars
from benchmarks.maven_jars import CACHE
from tests.requirements import need_jars, need_kafka, need_pyspark, need_redis
from tests.servers.kept_classes import spark_options

EXAMPLES = Path(__file__).parents[2] / "mount_examples"

pytestmark = [
    pytest.mark.fuse,
    pytest.mark.skipif(not EXAMPLES.is_dir(), reason="these tests are away from the checkout"),
]


class Run(Protocol):
    """Runs an example with more variables; returns what it prints."""

    def __call__(self, name: str, **more: str) -> str: ...


#: These start Spark several times, and a broker: on a machine that has other things to do they take minutes.
SECONDS_WITH_SPARK = 900


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return the function that runs an example as a user would, checks that it cleans up, and returns its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON"))}

    def run_example(name: str, **more: str) -> str:
        done = subprocess.run(
            [EXAMPLES / name],
            env=environment | {"TMPDIR": str(tmp_path)} | more,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS_WITH_SPARK,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        assert list(tmp_path.iterdir()) == []
        assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
        return done.stdout

    return run_example


def test_every_example_is_tested_here() -> None:
    tested = {"quickstart.sh", "search_topic.sh", "extract_payloads.sh", "dead_broker.sh", "from_python.sh"}
    for name in ("consumer_loop", "word_count", "kafka_job", "three_ways"):
        tested |= {f"{name}.sh", f"{name}.py"}  # the one runs the other
    assert {path.name for path in EXAMPLES.iterdir()} == tested


def test_quickstart(run: Run) -> None:
    output = run("quickstart.sh")
    assert "$ kfs demo data\ndata: 9 topics, 20862 messages\n" in output
    assert "$ kfs mount data mnt\n\n" in output
    assert "$ ls mnt\nclickstream\ncustomer-profiles\n" in output
    assert (
        "$ cat mnt/launch_info/0/offset/368776.json\n"
        '{"topic":"launch_info","partition":0,"offset":368776,"timestamp":1606446771205,"timestampType":"CreateTime",'
        '"time":"2020-11-27T03:12:51.205Z","key":null,"value":"4567890","headers":[{"key":"trace","value":"a1"}]}\n'
    ) in output
    assert re.search(r"^-r--r--r-- 1 \S+ \S+ 213 2020-11-27 03:12 mnt/launch_info/0/offset/368776.json$", output, re.M)
    assert re.search(r"^\$ grep -rl .*\n(mnt/orders/1/offset/\d+\.json\n){3}", output, re.M)
    assert re.search(r"^\$ find .* -newermt .*\n(mnt/payments/[01]/offset/\d+\.json\n)+\n", output, re.M)
    assert '{"key":"o-0000007","time":"2020-11-24T02:36:09.711Z","status":"paid","total":173.6}\n' in output
    assert sum(map(int, re.findall(r"^ +(\d+) (?:created|paid|shipped|delivered)$", output, re.M))) == 3 * 700
    assert '  "logEndOffset": 369105,\n' in output
    assert "$ kfs umount mnt\n\n$ ls mnt | wc -l\n0\n" in output


def test_search_topic(run: Run) -> None:
    output = run("search_topic.sh")
    assert re.search(r"^\$ grep -hc 'Teapot' .*\n([1-9]\d*\n){9}\n", output, re.M)
    assert '[1448,"2020-11-29T17:48:18.535Z","{\\"id\\":\\"c-00001\\",' in output
    assert re.search(r"\.value == null\) \| \.key' \| head -3\n(c-\d{5}\n){3}\n", output)
    assert '[0,5,"o-0000005"]\n' in output
    assert '["o-0000175",798]\n' in output
    offsets = ["368776.json", "368777.json", "368778.json"]
    assert "".join(f"mnt/launch_info/0/offset/{name}\n" for name in offsets) in output
    assert "$ ls mnt/launch_info/0/time/2020-11-27/03\n" + "".join(f"{name}\n" for name in offsets) in output
    assert (
        '$ cat mnt/launch_info/0/at/2020-11-27T03:00:00Z.json\n{"topic":"launch_info","partition":0,"offset":368776,'
        in output
    )
    assert re.search(r"grep -lF 'shipped' \| sort -V\n(mnt/orders/[0-2]/offset/\d+\.json\n)+\Z", output)


def test_extract_payloads(run: Run) -> None:
    output = run("extract_payloads.sh")
    assert "\n 211   P   N   G  \\r  \\n 032  \\n\n" in output
    sums = re.findall(r"^([0-9a-f]{64})  -$", output, re.M)
    assert len(sums) == 2
    assert sums[0] == sums[1]
    assert "$ ls pictures | wc -l\n48\n" in output
    assert "\nall intact\n" in output
    assert len(re.findall(r"^ a5 01( [0-9a-f]{2}){14}$", output, re.M)) == 3


def test_dead_broker(run: Run) -> None:
    output = run("dead_broker.sh")
    assert '  "cleanShutdown": false\n' in output
    assert "\nclickstream-0\t0\t3994\t4000\n" in output
    assert "mnt/orders/1/segment/00000000000000000253.jsonl: Input/output error\nnot all could be read\n" in output
    assert re.search(r'"file": ".*/disk/orders-1/0{17}253.log",\n  "position": 18660,\n', output)
    # All but the lost batch (12 messages), the torn one (6), and what DeleteRecords had hidden (250).
    assert f"$ cat saved/*/*/records.jsonl | wc -l\n{20862 - 12 - 6 - 250}\n" in output
    assert "\n347 to 358\n" in output
    assert output.endswith("nothing on it has changed\n")


def test_from_python(run: Run) -> None:
    output = run("from_python.sh")
    assert "\n368601 369105 b'4567890'\n" in output
    assert "\n368776 2020-11-27T03:12:51.205000+00:00 b'4567890' {'trace': b'a1'}\n" in output
    assert "\ndelivered 531\ncreated 528\n" in output
    assert "\n452 records, 397 of them committed\n" in output
    assert re.search(r"^2020-11-24 +0 +632 +633$", output, re.M)
    assert output.endswith("created 528 98398.25\ndelivered 531 98667.25\npaid 525 95089.8\nshipped 516 87454.05\n")


def test_consumer_loop(run: Run) -> None:
    output = run("consumer_loop.sh")
    assert "0: 100 to 200, 1: 100 to 200, 2: 100 to 200\n" in output
    assert "killed: exit code 137\n" in output
    assert re.search(
        r"^paid-orders\torders\t2\t200\t0\t445\t245\t-\t-\t1\tprocess \d+ on .*, which has ended\t-$", output, re.M
    )
    assert "$ ls paid\norders-0-00000000000000000000-00000000000000000100.jsonl\n" in output
    assert "-name '*.jsonl' | wc -l\n3\n" in output
    # The second run begins where the first was killed, the third where the second ended.
    runs = re.findall(r"^\$ python consumer_loop.py mnt/orders paid \$store(?: 3 .*)?\n((?:\d: .*\n)+)", output, re.M)
    assert [re.findall(r"0: (\d+) to (\d+),", each) for each in runs] == [
        [("0", "100"), ("100", "200")],
        [("200", "300"), ("300", "400"), ("400", "477")],
        [("477", "577"), ("577", "677"), ("677", "700")],
    ]
    assert "paid-orders\torders\t0\t700\t0\t700\t0\t-\t-\t3\t-\t-\n" in output
    assert "$ cmp found expected && wc -l <found\n525\n" in output
    assert "paid-orders\torders\t0\t700\t596\tq_u86jCSxfmhCmzvxJCVOQ\t2\t-\n" in output


@pytest.fixture
def spark_and_kafka() -> None:
    """What these examples need; jars are not fetched for each run of the tests."""
    need_pyspark()
    need_kafka()
    need_jars("Spark", spark_kafka_jars)
    CACHE.mkdir(parents=True, exist_ok=True)
    of_the_run = Path(os.environ["XDG_CACHE_HOME"]) / CACHE.name
    if not of_the_run.is_symlink():
        of_the_run.symlink_to(CACHE)


@pytest.mark.usefixtures("spark_and_kafka")
@pytest.mark.timeout(SECONDS_WITH_SPARK)
def test_word_count(run: Run) -> None:
    need_redis()
    output = run("word_count.sh", SPARK_JAVA_OPTIONS=spark_options())
    killed, again = re.findall(r"^\$ (?:cat job.log|python word_count.py broker.*)\n((?:.*\n)*?)\n", output, re.M)
    ranges = {}
    for partition in "01":
        ranges[partition] = re.findall(rf"\blines-{partition}: offsets (\d+) to (\d+)", killed + again)
        # Each batch begins where the one before ended, across the kill; one may have been committed and not printed.
        assert ranges[partition][0][0] == "0"
        starts, ends = [int(start) for start, _ in ranges[partition]], [int(end) for _, end in ranges[partition]]
        gaps = [start - end for start, end in zip(starts[1:], ends, strict=False)]
        assert all(gap >= 0 for gap in gaps)
        assert sum(gap > 0 for gap in gaps) <= 1
        first, then = re.findall(rf"^word-count\tlines\t{partition}\t(\d+|-)\t0\t(\d+)\t(\d+|-)\t", output, re.M)
        if "-" not in first:  # nothing of it was read yet
            assert 0 < int(first[0]) == int(first[1]) - int(first[2])
        assert then == (str(ends[-1]), str(ends[-1]), "0")
    assert "which has ended" in output
    assert re.search(r"^\$ sort -rn -k 2 counted .*\nthe\t\d+\n", output, re.M)
    assert re.search(r"cmp - .*\n[1-9]\d{3}\n\Z", output)


@pytest.mark.long  # tests/spark/test_as_sparks_kafka_source.py has both sources, and a checkpoint that moves, daily
@pytest.mark.usefixtures("spark_and_kafka")
@pytest.mark.timeout(SECONDS_WITH_SPARK)
def test_kafka_job(run: Run) -> None:
    output = run("kafka_job.sh", SPARK_JAVA_OPTIONS=spark_options())
    assert re.search(r'^<         reader.format\("kafka"\)\n---\n>         reader.format\("kfs"\)$', output, re.M)
    assert re.search(r'^<         .load\(\)\n---\n>         .load\("broker/data"\)$', output, re.M)
    assert re.search(r"^city,status,orders,revenue\n(\w+,\w+,\d+,[\d.]+\n){3}", output, re.M)
    assert re.findall(r"out/archive/\*.json \| wc -l\n(\d+)\n", output) == ["1421", "1421", "2100"]
    assert output.endswith("| uniq -d | wc -l\n0\n")


@pytest.mark.long  # what it finds is found every day by tests/spark/test_mounted_lines.py, in the tests' own session
@pytest.mark.usefixtures("spark_and_kafka")
@pytest.mark.timeout(SECONDS_WITH_SPARK)
def test_three_ways(run: Run) -> None:
    output = run("three_ways.sh", SPARK_JAVA_OPTIONS=spark_options())
    assert re.findall(r"^kfs: ([\d,]+) records in", output, re.M) == ["1,387", "713"]
    exports = re.findall(r"^TOPIC\tPARTITION\tFROM-OFFSET\tUNTIL-OFFSET\b.*\n((?:orders\t.*\n)+)", output, re.M)
    first, then = ([line.split("\t") for line in lines.splitlines()] for lines in exports)
    assert [line[3] for line in first] == [line[2] for line in then]
    assert "\n2020-11-24,85,15177.75\n" in output
    assert output.endswith("\nsource\nmount\ndataset\n")
