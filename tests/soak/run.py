"""One run: a broker, its load, mounts, readers of everything, and what watches them."""

from __future__ import annotations

import json
import logging
import os
import random
import re
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.broker.real_broker import RealBroker, errors_in
from tests.soak.checks import Checker, LogStart
from tests.soak.commands import Api, Cat
from tests.soak.findings import Findings
from tests.soak.journal import Journal
from tests.soak.killing import BACK_SECONDS, Killer, share, unshare
from tests.soak.load import Load
from tests.soak.mounts import DESCRIPTORS, SoakMount
from tests.soak.plan import BROKER, Plan
from tests.soak.reading import Ended
from tests.soak.slow import SlowReaders
from tests.soak.small_caches import drop_kernel_caches
from tests.soak.watch import Watch

#: Readers, how many of each there are for a mount, and the seconds between two reads of one.
_READERS: Final = {
    "offset": (1, 0.15),
    "value": (1, 0.1),
    "key": (1, 0.2),
    "first": (1, 0.1),
    "last": (1, 0.05),
    "at": (1, 0.15),
    "hours": (1, 0.5),
    "segment": (1, 0.1),
    "records": (1, 0.2),
    "meta": (1, 0.5),
    "raw": (1, 0.2),
    "about": (1, 1.0),
    "deleted": (1, 0.5),
    "walk": (1, 0.5),
    "many": (1, 2.0),
    "slow_segment": (3, 0.1),
    "slow_records": (4, 0.1),
    "follow": (2, 0.1),
    "held_record": (2, 0.1),
}
#: What has to have happened, and where records have to have been read, in every run.
_EVENTS: Final = (
    "records",
    "commits",
    "DeleteRecords",
    "partitions added",
    "topics re-created",
    "transactions commit",
    "transactions abort",
)
_RECORDS_OF: Final = (
    "offset",
    "offset held",
    "value",
    "first.json",
    "last.json",
    "time",
    "at",
    "segment",
    "segment slowly",
    "records.jsonl",
    "records.jsonl slowly",
    "tail -f",
    "deleted",
)
#: An entry of a log is one line, or has a traceback in those that follow.
_NEW_ENTRY: Final = re.compile(r"^(?=[0-9]{4}-[0-9]{2}-[0-9]{2} )", re.MULTILINE)
_TROUBLE: Final = re.compile(r" (WARNING|ERROR|CRITICAL) |Traceback")
#: What a daemon says that finds a killed one's mount.
_REPLACED: Final = "a daemon died here; its mount is replaced"
#: A read that takes longer hangs.
_SECONDS_TO_END: Final = 60


@dataclass
class Soak:
    """What a run is to be."""

    directory: Path
    seconds: float
    fronts: tuple[str, ...]
    seed: int
    java: str
    committed: bool = True
    descriptors: int = DESCRIPTORS
    plan: Plan = field(default_factory=Plan)
    #: How much slower than usual readers are.
    ease: float = 1.0
    #: Whether mounts keep so little that what grows is no cache.
    small_caches: bool = False
    #: Every how many seconds the daemons are killed, under a supervisor; 0 for never.
    kill_every: float = 0.0
    say: Callable[[str], None] = lambda _: None

    def run(self) -> dict[str, Any]:
        """Do it; return the report."""
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
        findings = Findings()
        broker = RealBroker.make(self.directory / "broker", self.java, BROKER)
        with broker.running() as log:
            self.say("the broker is up")
            journal = Journal()
            load = Load(broker.port, broker.data, self.plan, journal, findings, self.seed)
            load.start()
            self.say("the topics are filled")
            try:
                return self._soak(broker, load, journal, findings, log)
            finally:
                load.stop()

    def _soak(self, broker: RealBroker, load: Load, journal: Journal, findings: Findings, log: Path) -> dict[str, Any]:
        checker = Checker(journal, findings, LogStart(load.log_start))
        environment = {"XDG_CACHE_HOME": str(self.directory / "cache")}
        mounts = [self._mount(broker, front) for front in self.fronts]
        if self.committed:
            mounts.append(self._mount(broker, self.fronts[0], committed=True))
        running: dict[str, int] = {}
        with ExitStack() as stack:
            if self.kill_every:
                share(self.directory)
                stack.callback(unshare, self.directory)
            for mount in mounts:
                stack.callback(mount.discard)
                (mount.start_supervised if self.kill_every else mount.start)(environment, self.descriptors)
                running[mount.name] = mount.pid
            self.say("mounted: " + ", ".join(mount.name for mount in mounts))
            api = Api(broker.data, checker, self._rng("api"), running, self.descriptors)
            api.start()
            stack.callback(api.stop)
            cat = Cat(broker.data, checker, self._rng("cat"), running, self.descriptors)
            watch = Watch(
                broker.data, lambda: dict(running), findings, self.descriptors, may_grow=not self.small_caches
            )
            findings.started = started = time.time()
            watch.start()
            crowd = Crowd(findings)
            for mount in mounts:
                for kind, (count, pause) in _READERS.items():
                    for number in range(count):
                        rng = self._rng(f"{mount.name}/{kind}/{number}")
                        reader = getattr(SlowReaders(mount, checker, rng, crowd.is_over), kind)
                        crowd.add(f"{kind} {mount.name}", reader, pause * self.ease * len(mounts))
            if self.small_caches and os.geteuid() == 0:
                crowd.add("drop_caches", drop_kernel_caches, 5.0)
            crowd.add("kfs cat", cat.run, 1.0 * self.ease)
            crowd.add("kfs.open", api.run, 0.5 * self.ease)
            killer = Killer(
                mounts if self.kill_every else (), self.kill_every, BACK_SECONDS * self.ease, findings, running
            )
            killer.start()
            self._wait(findings, load, watch)
            killer.stop()
            crowd.end()
            watch.stop(time.time() - started)
            checker.prove_late()
            for mount in mounts:
                _judge_log(mount, findings)
            _judge_effort(load, journal, findings, [mount.name for mount in mounts])
            report = self._report(findings, load, watch, time.time() - started, errors_in(log))
            return {**report, "kills": killer.summary()}

    def _mount(self, broker: RealBroker, front: str, *, committed: bool = False) -> SoakMount:
        return SoakMount.make(self.directory, broker.data, front, committed=committed, small_caches=self.small_caches)

    def _rng(self, name: str) -> random.Random:
        return random.Random(f"{self.seed}/{name}")

    def _wait(self, findings: Findings, load: Load, watch: Watch) -> None:
        until = time.monotonic() + self.seconds
        next_word, told = time.monotonic() + 15, 0
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 1))
            if findings.counts.get("soak-error load"):
                return
            if time.monotonic() > next_word:
                next_word += 15
                found = dict(findings.counts) or "nothing found"
                self.say(f"{left:.0f} s left, {findings.reads.total()} reads, {load.events}, {found}")
                for details in findings.details[told:]:  # now: a long run may not come to its end
                    self.say(f"found {details}")
                    told += 1

    def _report(
        self, findings: Findings, load: Load, watch: Watch, seconds: float, errors: list[str]
    ) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "fronts": self.fronts,
            "seconds": round(seconds, 1),
            "events": load.events,
            "reads": dict(sorted(findings.reads.items())),
            "notes": dict(sorted(findings.notes.items())),
            "processes": watch.summary(),
            "longest that a deleted file was kept": round(watch.longest_kept, 1),
            "errors of the broker": errors[:20],
            "found": dict(sorted(findings.counts.items())),
            "details": findings.details,
        }


class Crowd:
    """Threads that each do one thing again and again until it is over."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def is_over(self) -> bool:
        """Whether readers have to come to an end."""
        return self._over.is_set()

    def add(self, name: str, reader: Callable[[], None], pause: float) -> None:
        """Start a reader."""
        thread = threading.Thread(target=self._run, args=(name, reader, pause), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, name: str, reader: Callable[[], None], pause: float) -> None:
        while not self._over.wait(pause):
            try:
                reader()
            except Ended:
                continue
            except Exception as error:
                if not self._over.is_set():
                    self._findings.add("soak-error", name, error=repr(error), stack=traceback.format_exc()[-1500:])
                    self._over.wait(1)

    def end(self) -> None:
        """Have all of them stop; who doesn't, hangs in a read."""
        self._over.set()
        until = time.monotonic() + _SECONDS_TO_END
        for thread in self._threads:
            thread.join(max(0.1, until - time.monotonic()))
            if thread.is_alive():
                self._findings.add("no end", thread.name)


def _judge_log(mount: SoakMount, findings: Findings) -> None:
    """What a mount logs of a healthy log directory is no warning."""
    for entry in _NEW_ENTRY.split(mount.mount.log()):
        if _TROUBLE.search(entry) and not (mount.supervisor and _REPLACED in entry):
            findings.add("logged", mount.name, entry=entry[:2500])
    if not mount.is_alive():
        findings.add("died", mount.name)


def _judge_effort(load: Load, journal: Journal, findings: Findings, wheres: list[str]) -> None:
    """A run in which nothing happened, or nobody read anything, says nothing."""
    for event in _EVENTS:
        if not load.events.get(event):
            findings.add("nothing happened", "load", event=event)
    if not any(part.log_start for part in journal.parts() if part.topic == "expiring"):
        findings.add("nothing happened", "load", event="retention")
    read = [(kind, where) for kind in _RECORDS_OF for where in wheres]
    read += [("kfs cat", "kfs cat"), ("kfs.open read", "kfs.open"), ("kfs.open scan", "kfs.open")]
    for kind, where in read:
        if not findings.reads[f"records of {kind} {where}"]:
            findings.add("nothing read", where, read=kind)


def write(report: dict[str, Any], path: Path) -> None:
    """Write the report to a file."""
    path.write_text(json.dumps(report, indent=1, default=str) + os.linesep)
