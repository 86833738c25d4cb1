"""A mount of the broker's log directory that has few descriptors to use."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.soak import small_caches as small
from tests.soak.outages import Outages
from tests.supervisor import Supervisor
from tests.system.kafka_mount import KFS, KafkaMount

DESCRIPTORS: Final = 1024
COMMITTED: Final = "committed"


def limited(descriptors: int) -> Callable[[], None]:
    """Return what gives a process that is about to start so many descriptors, soft and hard."""
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))


@dataclass(slots=True)
class SoakMount:
    """A mount that readers use; ``name`` is its front, or says that it shows what is committed."""

    name: str
    mount: KafkaMount
    data: Path
    committed: bool = False
    small_caches: bool = False
    #: Runs the daemon, if it is to be killed.
    supervisor: Supervisor | None = None
    outages: Outages = field(default_factory=Outages)

    @classmethod
    def make(
        cls, directory: Path, data: Path, front: str, *, committed: bool = False, small_caches: bool = False
    ) -> SoakMount:
        """Return one that isn't mounted yet."""
        name = COMMITTED if committed else front
        options = ["--views", *(["--isolation", "read_committed"] if committed else [])]
        options += small.OPTIONS if small_caches else ()
        mount = KafkaMount(directory / name, data, front=front, options=options)
        return cls(name, mount, data, committed, small_caches)

    @property
    def root(self) -> str:
        """Where it is mounted."""
        return str(self.mount.point)

    @property
    def pid(self) -> int:
        """The process that serves it now."""
        return self.mount.pid if self.supervisor is None else self.supervisor.pid

    @property
    def program(self) -> list[str]:
        """The command that is ``kfs``."""
        return [sys.executable, "-m", small.__name__] if self.small_caches else [KFS]

    def start(self, environment: dict[str, str], descriptors: int) -> None:
        """Mount; when this returns, the mount answers."""
        done = subprocess.run(
            [*self.program, "mount", *self.mount.arguments],
            capture_output=True,
            preexec_fn=limited(descriptors),
            timeout=60,
            check=False,
            env={**os.environ, **environment},
        )
        if done.returncode:
            raise RuntimeError(f"{self.name}: {done.stderr.decode()}")

    def start_supervised(self, environment: dict[str, str], descriptors: int) -> None:
        """Mount under a supervisor; when this returns, the mount answers."""
        limits = ["prlimit", f"--nofile={descriptors}:{descriptors}"]
        command = [*limits, *self.program, "mount", "--foreground", *self.mount.arguments]
        directory = self.mount.point.with_name(f"{self.name}.supervisor")
        directory.mkdir()
        self.supervisor = Supervisor(command, directory, environment=environment)
        self.supervisor.start()
        self.supervisor.wait_for("READY=1")

    def discard(self) -> None:
        """Take it away, in whatever state it is."""
        if self.supervisor is not None:
            self.supervisor.stop()
        self.mount.discard()

    def is_alive(self) -> bool:
        """Whether it is there and is served."""
        return self.mount.is_alive() if self.supervisor is None else bool(self.supervisor.pid)
