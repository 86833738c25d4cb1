"""The life of a mount, from a mount point that won't do to a daemon that was killed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from kfs.errors import MountFailed
from kfs.mount import is_mounted, mount, unmount
from kfs.mount.mounts import DEAD, mount_table
from tests.mount.conftest import EACH_FRONT
from tests.mount.toy_mount import ROOT, ToyMount, environment, eventually, is_running, output
from tests.mount.toy_tree import Control, Slot, ToyTree
from tests.other_users import NOBODY, in_own_namespace_as_nobody
from tests.requirements import need_fuse, need_setuid_helper

pytestmark = pytest.mark.fuse

MakeMount = Callable[..., ToyMount]
MOUNTINFO: Final = Path("/proc/self/mountinfo")


def test_mounting_returns_once_the_mount_answers(make_mount: MakeMount) -> None:
    toy = make_mount()
    toy.start()
    assert is_mounted(toy.point)
    assert Path(toy.path("static/a.txt")).read_bytes() == b"alpha\n"
    assert toy.pid not in (0, os.getpid())
    assert is_running(toy.pid)


def test_unmounting_returns_once_the_daemon_is_gone(make_mount: MakeMount) -> None:
    toy = make_mount()
    for _ in range(3):
        toy.start()
        toy.control[Slot.CLOSED] = 0
        unmount(toy.point)
        assert not is_mounted(toy.point)
        assert toy.control[Slot.CLOSED]
        assert eventually(lambda: not is_running(toy.pid), 1.0)
        assert os.listdir(toy.point) == []


def test_a_shell_that_waits_for_the_output_goes_on(make_mount: MakeMount) -> None:
    toy = make_mount()
    command = " ".join(f"'{word}'" for word in toy.command())
    # Also through a descriptor that the shell opened and handed down.
    script = f'out=$({command} 2>&1 9>&1); echo "status $? out $out"'
    done = subprocess.run(
        ["/bin/bash", "-c", script], capture_output=True, text=True, timeout=30, check=False, env=environment()
    )
    assert done.stdout == "status 0 out \n"


def test_a_daemon_keeps_nothing_of_the_terminal(make_mount: MakeMount) -> None:
    toy = make_mount()
    toy.start()
    held = [os.readlink(f"/proc/{toy.pid}/fd/{number}") for number in (0, 1)]
    assert held == ["/dev/null", "/dev/null"]
    assert os.readlink(f"/proc/{toy.pid}/fd/2") == str(toy.log_file)
    assert os.readlink(f"/proc/{toy.pid}/cwd") == "/"
    assert os.getsid(toy.pid) != os.getsid(0)
    assert eventually(lambda: not any(name.startswith("pipe:") for name in descriptors(toy.pid)), 1.0)


def descriptors(pid: int) -> list[str]:
    directory = f"/proc/{pid}/fd"
    return [os.readlink(f"{directory}/{number}") for number in os.listdir(directory)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("front", EACH_FRONT)
def test_a_signal_ends_a_foreground_mount_cleanly(make_mount: MakeMount, front: str, number: signal.Signals) -> None:
    need_fuse(front)
    toy = make_mount(front=front)
    process = toy.popen()
    assert Path(toy.path("static/a.txt")).read_bytes() == b"alpha\n"
    process.send_signal(number)
    _, printed = process.communicate(timeout=10)
    assert (process.returncode, printed) == (0, "")
    assert not is_mounted(toy.point)
    assert toy.control[Slot.CLOSED]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("times", [10, pytest.param(500, marks=pytest.mark.long)])
@pytest.mark.parametrize("front", EACH_FRONT)
def test_a_mount_comes_and_goes_many_times(make_mount: MakeMount, front: str, times: int) -> None:
    need_fuse(front)
    toy = make_mount(front=front)
    script = (
        "import sys; from pathlib import Path; from kfs.mount import mount, unmount\n"
        "from tests.mount.toy_tree import Control, ToyTree\n"
        "point, control, front, times = sys.argv[1:]\n"
        "for _ in range(int(times)):\n"
        "    mount(lambda: ToyTree(Control(Path(control))), point, front=front)\n"
        "    assert Path(point, 'static', 'a.txt').read_bytes() == b'alpha\\n'\n"
        "    unmount(point)\n"
    )
    command = [sys.executable, "-c", script, str(toy.point), str(toy.control_file), front, str(times)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    assert (done.returncode, done.stderr) == (0, "")
    assert not is_mounted(toy.point)
    assert os.listdir(toy.point) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_daemon_cleanly(make_mount: MakeMount, number: signal.Signals) -> None:
    toy = make_mount()
    toy.start()
    os.kill(toy.pid, number)
    assert eventually(lambda: not is_running(toy.pid))
    assert not is_mounted(toy.point)
    assert toy.control[Slot.CLOSED]


def test_a_signal_ends_a_mount_that_is_in_use(make_mount: MakeMount) -> None:
    toy = make_mount()
    toy.start()
    descriptor = os.open(toy.path("static/big.bin"), os.O_RDONLY)
    os.kill(toy.pid, signal.SIGTERM)
    assert eventually(lambda: not is_running(toy.pid))
    assert not is_mounted(toy.point)
    with contextlib.suppress(OSError):
        os.close(descriptor)


def test_a_daemon_outlives_the_terminal(make_mount: MakeMount) -> None:
    toy = make_mount()
    toy.start()
    os.kill(toy.pid, signal.SIGHUP)
    time.sleep(0.2)
    assert Path(toy.path("static/a.txt")).read_bytes() == b"alpha\n"


def test_a_foreground_mount_ends_with_the_terminal(make_mount: MakeMount) -> None:
    toy = make_mount()
    process = toy.popen()
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=10)
    assert process.returncode == 0
    assert not is_mounted(toy.point)


def test_a_killed_daemon_leaves_a_mount_that_unmount_takes_away(make_mount: MakeMount) -> None:
    toy = make_mount()
    toy.start()
    os.kill(toy.pid, signal.SIGKILL)
    assert eventually(lambda: not is_running(toy.pid))
    with pytest.raises(OSError) as caught:
        os.listdir(toy.point)
    assert caught.value.errno in DEAD
    assert is_mounted(toy.point)

    unmount(toy.point)
    assert not is_mounted(toy.point)
    toy.start()
    assert Path(toy.path("static/a.txt")).read_bytes() == b"alpha\n"


def test_mounting_over_a_dead_mount_replaces_it(make_mount: MakeMount) -> None:
    toy = make_mount()
    toy.start()
    held = os.open(toy.path("static/big.bin"), os.O_RDONLY)
    os.kill(toy.pid, signal.SIGKILL)
    assert eventually(lambda: not is_running(toy.pid))
    toy.start("--open", "slow", "--timeout", "1")
    with pytest.raises(OSError) as caught:
        os.read(held, 1)
    assert caught.value.errno in DEAD
    with contextlib.suppress(OSError):
        os.close(held)
    assert Path(toy.path("static/a.txt")).read_bytes() == b"alpha\n"
    assert [mounted.mountpoint for mounted in mount_table(MOUNTINFO.read_bytes())].count(str(toy.point)) == 1
    assert any("a daemon died here" in line for line in toy.log())


def test_a_dead_mount_stays_until_there_is_something_to_replace_it(make_mount: MakeMount) -> None:
    toy = make_mount()
    toy.start()
    os.kill(toy.pid, signal.SIGKILL)
    assert eventually(lambda: not is_running(toy.pid))
    assert toy.run("--open", "unusable").returncode == 1
    with pytest.raises(OSError) as caught:  # not an empty directory, which would look like a topic without records
        os.listdir(toy.point)
    assert caught.value.errno in DEAD


def test_a_second_mount_at_the_same_place_is_refused(make_mount: MakeMount) -> None:
    toy = make_mount()
    toy.start()
    refused = toy.run()
    assert refused.returncode == 1
    assert "already mounted (/data/kafka, old)" in refused.stderr
    assert Path(toy.path("static/a.txt")).read_bytes() == b"alpha\n"


def test_of_two_mounts_at_the_same_moment_one_wins(make_mount: MakeMount) -> None:
    toy = make_mount()
    rivals = [
        subprocess.Popen(toy.command("--open", "slow"), stderr=subprocess.PIPE, text=True, env=environment())
        for _ in range(2)
    ]
    ends = sorted((rival.wait(30), rival.communicate()[1]) for rival in rivals)
    assert [status for status, _ in ends] == [0, 1]
    assert "another kfs " in ends[1][1]
    assert MOUNTINFO.read_text().count(f" {toy.point} ") == 1


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda point: point.rmdir(), "no such directory"),
        (lambda point: (point.rmdir(), point.write_text("")), "not a directory"),
        (lambda point: (point / "something").write_text(""), "not empty"),
    ],
    ids=["missing", "a file", "not empty"],
)
def test_a_mount_point_that_will_not_do_is_refused(
    make_mount: MakeMount, prepare: Callable[[Path], object], message: str
) -> None:
    toy = make_mount()
    prepare(toy.point)
    refused = toy.run()
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"MountFailed: {toy.point}: {message}")
    assert not toy.log_file.exists()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("unusable", "UnusableSource: /data: nothing of Kafka's in it\n"),
        ("bug", "MountFailed: ZeroDivisionError: what a pity\n"),
    ],
)
def test_a_tree_that_does_not_open_is_reported_and_nothing_is_left(
    make_mount: MakeMount, how: str, message: str
) -> None:
    toy = make_mount()
    failed = toy.run("--open", how)
    assert (failed.returncode, failed.stderr) == (1, message)
    assert not is_mounted(toy.point)
    assert ("Traceback (most recent call last):" in toy.log()) == (how == "bug")


def test_time_to_open_the_tree_is_not_limited(make_mount: MakeMount) -> None:
    toy = make_mount()
    toy.start("--open", "slow", "--timeout", "1")
    assert Path(toy.path("static/a.txt")).read_bytes() == b"alpha\n"


def test_a_mount_that_does_not_answer_is_taken_away(make_mount: MakeMount) -> None:
    toy = make_mount()
    failed = toy.run("--open", "stuck", "--timeout", "1")
    assert failed.returncode == 1
    assert "did not answer within 1 s" in failed.stderr
    assert not is_mounted(toy.point)
    assert eventually(lambda: not is_running(toy.pid))


def test_what_the_kernel_refuses_is_in_the_message(make_mount: MakeMount) -> None:
    toy = make_mount(front="kernel")
    failed = toy.run("--source", "x" * 5000)
    assert failed.returncode == 1
    assert failed.stderr == f"MountFailed: {toy.point}: could not mount: Invalid argument\n"
    assert not is_mounted(toy.point)


def test_what_libfuse_says_is_part_of_the_message(make_mount: MakeMount) -> None:
    need_fuse("mfusepy")
    toy = make_mount(front="mfusepy")
    failed = toy.run("--source", "x" * 5000)
    assert failed.returncode == 1
    assert "could not mount (status" in failed.stderr
    assert "fuse: mount failed" in failed.stderr


def test_a_busy_mount_is_not_taken_away_unless_lazily(make_mount: MakeMount) -> None:
    toy = make_mount()
    toy.start()
    with subprocess.Popen(["sleep", "60"], cwd=toy.path("static")) as user:
        with pytest.raises(MountFailed) as caught:
            unmount(toy.point)
        name = Path(f"/proc/{user.pid}/comm").read_text().strip()
        assert f"in use by {name} ({user.pid});" in str(caught.value)
        assert "kfs umount --lazy" in str(caught.value)
        assert is_mounted(toy.point)
        unmount(toy.point, lazy=True)
        assert not is_mounted(toy.point)
        assert is_running(toy.pid)
        user.kill()
    assert eventually(lambda: not is_running(toy.pid))


def test_only_mounts_of_kfs_are_taken_away(tmp_path: Path) -> None:
    with pytest.raises(MountFailed, match="not mounted"):
        unmount(tmp_path)
    with pytest.raises(MountFailed, match="not by kfs"):
        unmount("/proc")
    assert not is_mounted("/proc")


@pytest.mark.skipif(os.geteuid() != 0, reason="umount(8) is root's")
def test_another_umount_ends_the_daemon_too(make_mount: MakeMount) -> None:
    toy = make_mount()
    toy.start()
    output(["umount", str(toy.point)])
    assert eventually(lambda: not is_running(toy.pid))


def test_odd_mount_points_work(make_mount: MakeMount, tmp_path: Path) -> None:
    toy = make_mount("sp ace\n\\new\tline, #\u00e9\udcff")
    toy.start()
    link = tmp_path / "link"
    link.symlink_to(toy.point)
    assert is_mounted(toy.point)
    assert is_mounted(link)
    assert is_mounted(os.path.relpath(toy.point))
    unmount(link)
    assert not is_mounted(toy.point)


def test_systemd_is_told(make_mount: MakeMount, tmp_path: Path) -> None:
    toy = make_mount()
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(address)
        notified.settimeout(10)
        process = toy.popen(NOTIFY_SOCKET=address)
        assert notified.recv(1000).startswith(b"READY=1\nSTATUS=serving /data/kafka, old at ")
    process.terminate()
    process.communicate(timeout=10)


def test_problems_go_to_standard_error_in_the_foreground(make_mount: MakeMount) -> None:
    toy = make_mount()
    command = [word for word in toy.command("--foreground") if word not in ("--log-file", str(toy.log_file))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    assert process.stdout is not None
    assert process.stdout.readline() == f"{toy.point}: mounted\n"
    with pytest.raises(OSError, match="Input/output error"):
        Path(toy.path("damaged/corrupt")).read_bytes()
    process.terminate()
    _, printed = process.communicate(timeout=10)
    (damage,) = [line for line in printed.splitlines() if " INFO " not in line]
    assert "the checksum is 1 and should be 2" in damage


def test_an_unknown_front_is_refused(tmp_path: Path) -> None:
    point = tmp_path / "mnt"
    point.mkdir()
    with pytest.raises(MountFailed, match="no front 'nfs': choose one of auto, kernel"):
        mount(lambda: ToyTree(Control(tmp_path / "control")), point, front="nfs")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_other_users_get_in_only_if_let_and_as_far_as_the_modes_allow(make_mount: MakeMount, tmp_path: Path) -> None:
    toy = make_mount()
    open_up(tmp_path, toy)
    toy.start()
    assert "Permission denied" in cat_as_nobody(toy.path("static/a.txt"))
    unmount(toy.point)
    toy.start("--allow-other")
    assert cat_as_nobody(toy.path("static/a.txt")) == "alpha\n"
    assert "Permission denied" in cat_as_nobody(toy.path("static/private"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_user_who_is_not_root_mounts_and_unmounts(make_mount: MakeMount, tmp_path: Path) -> None:
    need_setuid_helper()
    toy = make_mount()
    open_up(tmp_path, toy)
    script = (
        "import sys; from pathlib import Path; from kfs.mount import mount, unmount;"
        "from tests.mount.toy_tree import Control, ToyTree; point = sys.argv[1];"
        "mount(lambda: ToyTree(Control(Path(sys.argv[2]))), point);"
        "print(Path(point, 'static', 'a.txt').read_text(), end=''); unmount(point)"
    )
    command = [sys.executable, "-c", script, str(toy.point), str(toy.control_file)]
    done = in_own_namespace_as_nobody(command, tmp_path, PYTHONPATH=str(ROOT))
    assert (done.returncode, done.stdout, done.stderr) == (0, "alpha\n", "")
    assert not is_mounted(toy.point)


def cat_as_nobody(path: str) -> str:
    done = run_as_nobody(["cat", path])
    return done.stdout + done.stderr


def run_as_nobody(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, user=NOBODY, group=NOBODY, capture_output=True, text=True, check=False, env=environment()
    )


def open_up(directory: Path, toy: ToyMount) -> None:
    """Let any user reach a mount point below pytest's own directories, and use it."""
    for above in (directory, *directory.parents):
        if above.name.startswith(("pytest-", "popen-")):
            above.chmod(0o711)
    directory.chmod(0o711)
    toy.point.parent.chmod(0o711)
    toy.control_file.chmod(0o666)
    os.chown(toy.point, NOBODY, NOBODY)
