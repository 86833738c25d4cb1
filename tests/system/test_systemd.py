"""``packaging/kfs@.service`` under a real systemd, and what of systemd hides a mount from everybody else."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.mount.toy_mount import ROOT, eventually
from tests.requirements import need_fuse
from tests.system.kafka_mount import KFS
from tests.system.real_systemd import RealSystemd, running_systemd
from tests.system.shop import Shop

#: It takes a root filesystem, cgroups and namespaces that not every machine has.
pytestmark = [pytest.mark.fuse, pytest.mark.long]

UNIT: Final = ROOT / "packaging" / "kfs@.service"
UNITS: Final = "/etc/systemd/system"
#: How long, in seconds, what takes one on a quiet machine may take.
_SOON: Final = 30.0


class Service:
    """The unit's instance for a mount point that all see."""

    def __init__(self, systemd: RealSystemd, shop: Shop) -> None:
        self.systemd = systemd
        self.point = Path("/mnt/all-of-it")
        systemd.output("mkdir", self.point)
        self.instance = systemd.output("systemd-escape", "--path", self.point).strip()
        self.name = f"kfs@{self.instance}.service"
        self.source = Path("/var/lib/kafka-data")
        shutil.copytree(shop.root, systemd.path(self.source))
        systemd.path(self.source).chmod(0o755)
        self.configure()

    def configure(self, *lines: str) -> None:
        """Write the instance's drop-in, with more lines than it needs."""
        directory = self.systemd.path(f"{UNITS}/{self.name}.d")
        directory.mkdir(exist_ok=True)
        needed = ("[Unit]", f"RequiresMountsFor={self.source}", "[Service]", f"Environment=LOG_DIRS={self.source}")
        (directory / "override.conf").write_text("\n".join((*needed, *lines)) + "\n")
        self.systemd.output("systemctl", "daemon-reload")

    def ctl(self, verb: str) -> None:
        self.systemd.output("systemctl", verb, self.name)

    def get(self, name: str) -> str:
        return self.systemd.property(self.name, name)

    def topics(self) -> list[str]:
        """What ``ls`` shows to those who don't belong to the unit; its error, if there is one."""
        done = self.systemd.run("ls", self.point)
        return (done.stdout or done.stderr).splitlines()


@pytest.fixture(scope="module")
def service(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A real systemd with the unit, installed as docs/OPERATING.md has it."""
    need_fuse("kernel")
    with running_systemd(tmp_path_factory.mktemp("systemd")) as systemd:
        shutil.copy(UNIT, systemd.path(UNITS))
        systemd.output("ln", "-s", KFS, "/usr/local/bin/kfs")
        yield Service(systemd, shop)


@pytest.fixture(autouse=True)
def stopped(service: Service) -> Iterator[None]:
    """Whatever a test does, the next one finds the unit as it was."""
    yield
    service.systemd.run("systemctl", "stop", service.name)
    service.systemd.run("systemctl", "reset-failed", service.name)
    service.configure()


def test_systemd_finds_nothing_wrong_with_the_unit(service: Service) -> None:
    done = service.systemd.run("systemd-analyze", "verify", f"{UNITS}/kfs@.service")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_started_unit_answers_everybody(service: Service) -> None:
    service.ctl("start")
    assert service.topics() == ["orders", "photos", "returns"]
    assert service.get("StatusText") == f"serving {service.source} at {service.point}"
    done = service.systemd.run("setpriv", "--reuid=65534", "--clear-groups", "ls", service.point)
    assert done.stdout.split() == ["orders", "photos", "returns"]
    assert service.systemd.path("/var/cache/kfs").is_dir()


def test_stopping_unmounts(service: Service) -> None:
    service.ctl("start")
    service.ctl("stop")
    assert service.topics() == []
    assert (service.get("Result"), service.get("ActiveState")) == ("success", "inactive")


def test_what_somebody_else_unmounts_stays_so(service: Service) -> None:
    service.ctl("start")
    service.systemd.output("umount", service.point)
    assert eventually(lambda: service.get("ActiveState") == "inactive", _SOON)
    assert (service.get("Result"), service.get("NRestarts")) == ("success", "0")
    assert service.topics() == []


def test_a_killed_mount_is_made_anew(service: Service) -> None:
    service.ctl("start")
    service.systemd.output("kill", "-9", service.get("MainPID"))
    assert eventually(lambda: service.topics() == ["orders", "photos", "returns"], _SOON)
    assert service.get("NRestarts") == "1"
    table = service.systemd.output("cat", "/proc/self/mountinfo")
    assert table.count(f" {service.point} ") == 1


def test_the_watchdog_lets_an_idle_mount_live_and_no_hung_one(service: Service) -> None:
    service.configure("WatchdogSec=1s")
    service.ctl("start")
    before = service.get("WatchdogTimestampMonotonic")
    assert eventually(lambda: service.get("WatchdogTimestampMonotonic") != before, _SOON)
    service.systemd.output("kill", f"-{signal.SIGSTOP.name[3:]}", service.get("MainPID"))
    assert eventually(lambda: service.get("NRestarts") == "1", _SOON)
    assert eventually(lambda: service.topics() == ["orders", "photos", "returns"], _SOON)


def test_wrong_usage_is_not_tried_again(service: Service) -> None:
    service.configure("Environment='KFS_OPTIONS=--isolation none'")
    assert service.systemd.run("systemctl", "start", service.name).returncode != 0
    assert (service.get("ActiveState"), service.get("NRestarts")) == ("failed", "0")


def test_several_log_dirs_and_options(service: Service) -> None:
    service.configure(
        f"Environment='LOG_DIRS={service.source}/orders-0 {service.source}/photos-0'",
        "Environment='KFS_OPTIONS=--views --topic p*'",
    )
    service.ctl("start")
    assert service.topics() == ["photos"]


def test_a_line_of_fstab_is_mounted_at_boot_or_at_its_first_use(service: Service) -> None:
    systemd = service.systemd
    systemd.output("ln", "-sf", Path(KFS).with_name("mount.kfs"), "/usr/sbin/mount.kfs")
    for more in ("", ",noauto,x-systemd.automount"):
        options = f"nofail,x-systemd.requires-mounts-for={service.source},topic=orders{more}"
        systemd.path("/etc/fstab").write_text(f"{service.source} {service.point} kfs {options} 0 0\n")
        systemd.output("systemctl", "daemon-reload")
        unit = f"{service.instance}.{'automount' if more else 'mount'}"
        systemd.output("systemctl", "start", unit)
        assert service.topics() == ["orders"]
        systemd.output("systemctl", "stop", unit, f"{service.instance}.mount")
        assert service.topics() == []


def hiding_and_safe() -> tuple[list[str], list[str]]:
    """Return the options of systemd that docs/OPERATING.md says hide a mount, and those that it says don't."""
    text = (ROOT / "docs" / "OPERATING.md").read_text()
    found = [re.findall(r"`([A-Za-z]+=[^`]*)`", line) for line in text.splitlines() if line.startswith("| hide")]
    found += [re.findall(r"`([A-Za-z]+=[^`]*)`", line) for line in text.splitlines() if line.startswith("| don't")]
    hide, safe = found
    return hide, safe


def test_options_hide_a_mount_or_do_not_as_the_docs_say(service: Service) -> None:
    systemd = service.systemd
    hide, safe = hiding_and_safe()
    assert min(len(hide), len(safe)) > 8
    for number, option in enumerate((*hide, *safe)):
        output = f"StandardOutput=truncate:/run/option{number}"
        lines = ("[Service]", "Type=oneshot", "ExecStart=readlink /proc/self/ns/mnt", output, option)
        systemd.path(f"{UNITS}/option{number}.service").write_text("\n".join(lines) + "\n")
    systemd.output("systemctl", "daemon-reload")
    systemd.output("systemctl", "start", *(f"option{number}" for number in range(len(hide) + len(safe))))
    ours = systemd.output("readlink", "/proc/1/ns/mnt")
    found = {option: systemd.path(f"/run/option{number}").read_text() for number, option in enumerate((*hide, *safe))}
    assert {option for option, namespace in found.items() if namespace == ours} == set(safe)
