"""Each script of mount_examples/ runs by itself, shows what it promises, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "mount_examples"

pytestmark = [
    pytest.mark.fuse,
    pytest.mark.skipif(not EXAMPLES.is_dir(), reason="these tests are away from the checkout"),
]


@pytest.fixture
def run(tmp_path: Path) -> Callable[[str], str]:
    """Return the function that runs an example as a user would, checks that it cleans up, and returns its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON"))}

    def run_example(name: str) -> str:
        done = subprocess.run(
            [EXAMPLES / name],
            env=environment | {"TMPDIR": str(tmp_path)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=280,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        assert list(tmp_path.iterdir()) == []
        assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
        return done.stdout

    return run_example


def test_every_example_is_tested_here() -> None:
    tested = {"quickstart.sh", "search_topic.sh", "extract_payloads.sh", "dead_broker.sh", "from_python.sh"}
    assert {path.name for path in EXAMPLES.iterdir()} == tested


def test_quickstart(run: Callable[[str], str]) -> None:
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


def test_search_topic(run: Callable[[str], str]) -> None:
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


def test_extract_payloads(run: Callable[[str], str]) -> None:
    output = run("extract_payloads.sh")
    assert "\n 211   P   N   G  \\r  \\n 032  \\n\n" in output
    sums = re.findall(r"^([0-9a-f]{64})  -$", output, re.M)
    assert len(sums) == 2
    assert sums[0] == sums[1]
    assert "$ ls pictures | wc -l\n48\n" in output
    assert "\nall intact\n" in output
    assert len(re.findall(r"^ a5 01( [0-9a-f]{2}){14}$", output, re.M)) == 3


def test_dead_broker(run: Callable[[str], str]) -> None:
    output = run("dead_broker.sh")
    assert '  "cleanShutdown": false\n' in output
    assert "\nclickstream-0\t0\t3994\t4000\n" in output
    assert "mnt/orders/1/segment/00000000000000000253.jsonl: Input/output error\nnot all could be read\n" in output
    assert re.search(r'"file": ".*/disk/orders-1/0{17}253.log",\n  "position": 18660,\n', output)
    # All but the lost batch (12 messages), the torn one (6), and what DeleteRecords had hidden (250).
    assert f"$ cat saved/*/*/records.jsonl | wc -l\n{20862 - 12 - 6 - 250}\n" in output
    assert "\n347 to 358\n" in output
    assert output.endswith("nothing on it has changed\n")


def test_from_python(run: Callable[[str], str]) -> None:
    output = run("from_python.sh")
    assert "\n368601 369105 b'4567890'\n" in output
    assert "\n368776 2020-11-27T03:12:51.205000+00:00 b'4567890' {'trace': b'a1'}\n" in output
    assert "\ndelivered 531\ncreated 528\n" in output
    assert "\n452 records, 397 of them committed\n" in output
    assert re.search(r"^2020-11-24 +0 +632 +633$", output, re.M)
    assert output.endswith("created 528 98398.25\ndelivered 531 98667.25\npaid 525 95089.8\nshipped 516 87454.05\n")
