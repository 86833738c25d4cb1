"""Java that starts sooner: what it makes of the classes of Kafka and Spark is kept from one start to the next.

::

    python -m tests.servers.kept_classes

makes archives of them (JEP 350) where there are none yet, which takes a minute; ``tests/run.sh`` does that first. With
them, a broker or a session starts in half of the time. Java itself looks at an archive, and goes on without one that
is of another Java or class path; tests go on without one that is not there.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from benchmarks.maven_jars import CACHE

#: Starts sooner, and is slower in the long run.
QUICK_START: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
#: What a session of Spark is to be like in tests: small, on its own, and soon there.
SMALL: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "768m",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}
#: Java warns of an archive that it doesn't use, in the midst of what a tool prints.
_SILENT: Final = "-Xlog:disable"


def _archive(directory: Path, name: str, java: str) -> Path:
    program = Path(java).resolve()
    state = f"{program} {program.stat().st_mtime_ns} {directory}"
    return directory / f"{name}-classes-{hashlib.sha256(state.encode()).hexdigest()[:16]}.jsa"


def _kafka_archive(java: str) -> Path:
    return _archive(CACHE, "kafka", java)


def _spark_archive() -> Path | None:
    java = shutil.which(os.path.join(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java")
    return _archive(Path(sys.prefix, "share", "kfs-development"), "spark", java) if java else None


def _options(archive: Path | None) -> tuple[str, ...]:
    if archive is None or not archive.exists() or archive.stat().st_size == 0:
        return QUICK_START
    return (*QUICK_START, f"-XX:SharedArchiveFile={archive}", _SILENT)


def kafka_options(java: str) -> tuple[str, ...]:
    """Return Java's options with which a broker and its tools start sooner."""
    return _options(_kafka_archive(java))


def spark_options() -> str:
    """Return Java's options with which Spark starts sooner, as one setting."""
    return " ".join(_options(_spark_archive()))


def small_session() -> dict[str, str]:
    """Return the settings of a small session that starts soon."""
    return {**SMALL, "spark.driver.extraJavaOptions": spark_options()}


def _make(archive: Path, train: Callable[[str], None]) -> None:
    """Make an archive where there is none; ``train`` starts what it is for with an option, and has it end by itself."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if archive.exists():
            return
        with tempfile.TemporaryDirectory(prefix=f"{archive.stem}.partial-", dir=archive.parent) as directory:
            made = Path(directory, archive.name)
            train(f"-XX:ArchiveClassesAtExit={made}")
            if not made.exists():
                made.touch()  # this Java can't: nor is it asked again
            made.rename(archive)


def _train_kafka(java: str, option: str) -> None:
    from tests.broker.real_broker import RealBroker

    with tempfile.TemporaryDirectory() as directory:
        formatted = RealBroker.make(Path(directory, "broker"), java, {})
        broker = replace(formatted, java_options=(*QUICK_START, option))
        with broker.running():
            broker.create_topics({"t": 1})
            broker.consumed("read_committed", ["t-0"])


def _train_spark(option: str) -> None:
    options = " ".join((*QUICK_START, option, _SILENT))
    subprocess.run([sys.executable, "-m", "tests.servers.spark_training", options], check=True, capture_output=True)


def main() -> None:
    """Make what is missing; what can't be made isn't worth a failure."""
    java = shutil.which("java")
    try:
        if java is not None:
            _make(_kafka_archive(java), lambda option: _train_kafka(java, option))
        if (archive := _spark_archive()) is not None and find_spec("pyspark"):
            _make(archive, _train_spark)
    except (OSError, AssertionError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"Java will start more slowly, as its classes can't be kept: {error}\n")


if __name__ == "__main__":
    main()
