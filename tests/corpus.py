"""The recorded broker directories of ``tests/corpora``: extracting them, and proof that nothing wrote to them since."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import stat
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import zstandard

ARCHIVES = Path(__file__).parent / "corpora"
ARCHIVE_SUFFIX = ".tar.zst"
#: The corpus of a broker with tiered storage: most of its records are not on its disk.
TIERED = "t_local"


@dataclass(frozen=True, slots=True)
class FileState:
    """What must not change about one file or directory; ``sha256`` is of the content, or of a link's target."""

    mode: int
    size: int
    mtime_ns: int
    sha256: str


Manifest = dict[str, FileState]


class CorpusStore:
    """Extracts each archive once below ``root``, which several test processes may share."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._used: set[str] = set()

    def path(self, name: str) -> Path:
        """Return the extracted corpus ``name``, ready to be read (and only read)."""
        if name not in self._used:
            with self._locked(name):
                if not self._manifest_file(name).exists():
                    self._extract(name)
            self._used.add(name)
        return self._root / name

    def changes(self) -> list[str]:
        """Say what changed in the corpora that this process has used since they were extracted."""
        return [
            f"{name}/{change}"
            for name in sorted(self._used)
            for change in compare(load_manifest(self._manifest_file(name)), take_manifest(self._root / name))
        ]

    def _extract(self, name: str) -> None:
        partial = self._root / f"{name}.partial"
        for leftover in (partial, self._root / name):
            shutil.rmtree(leftover, ignore_errors=True)
        extract(ARCHIVES / f"{name}{ARCHIVE_SUFFIX}", partial)
        (partial / name).rename(self._root / name)
        partial.rmdir()
        # Last, because its presence means that the corpus is complete.
        save_manifest(take_manifest(self._root / name), self._manifest_file(name))

    def _manifest_file(self, name: str) -> Path:
        return self._root / f"{name}.manifest.json"

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        self._root.mkdir(parents=True, exist_ok=True)
        with (self._root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def corpus_names() -> list[str]:
    """Return the names of the corpora whose ``data/`` has all that is told of them: all but TIERED."""
    names = {archive.name.removesuffix(ARCHIVE_SUFFIX) for archive in ARCHIVES.glob(f"*{ARCHIVE_SUFFIX}")}
    return sorted(names - {TIERED})


def extract(archive: Path, target: Path) -> None:
    """Extract a ``.tar.zst``; sparse files stay sparse."""
    target.mkdir(parents=True)
    with (
        archive.open("rb") as compressed,
        zstandard.ZstdDecompressor().stream_reader(compressed) as stream,
        tarfile.open(fileobj=stream, mode="r|") as tar,
    ):
        # The archives are our own, and modes must come out as they were on the broker's disk. Python 3.11.2
        # does not know the `filter` argument, nor the names of the ready-made filters; it ignores the attribute.
        tar.extraction_filter = lambda member, _path: member
        tar.extractall(target)


def take_manifest(root: Path) -> Manifest:
    """Describe ``root`` and everything below it, by path relative to ``root``."""
    paths = [root, *root.rglob("*")]
    return {str(path.relative_to(root)): _state(path) for path in sorted(paths)}


def _state(path: Path) -> FileState:
    status = path.lstat()
    if stat.S_ISREG(status.st_mode):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    else:
        target = path.readlink() if stat.S_ISLNK(status.st_mode) else ""
        digest = hashlib.sha256(str(target).encode()).hexdigest()
    # The size of a directory is the filesystem's affair.
    size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
    return FileState(status.st_mode, size, status.st_mtime_ns, digest)


def compare(before: Manifest, after: Manifest) -> list[str]:
    """Return one line for each path that was added, removed or changed in any way."""
    lines = []
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old is None:
            lines.append(f"{path}: added")
        elif new is None:
            lines.append(f"{path}: removed")
        elif old != new:
            fields = [name for name, value in asdict(old).items() if value != getattr(new, name)]
            lines.append(f"{path}: changed {', '.join(fields)}")
    return lines


def save_manifest(manifest: Manifest, file: Path) -> None:
    """Write ``manifest`` as JSON, all of it or nothing."""
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps({path: asdict(state) for path, state in manifest.items()}))
    partial.rename(file)


def load_manifest(file: Path) -> Manifest:
    """Read what :func:`save_manifest` wrote."""
    return {path: FileState(**state) for path, state in json.loads(file.read_text()).items()}
