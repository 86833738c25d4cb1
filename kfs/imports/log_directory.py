"""A log directory as the lines of its records, to be imported."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import BinaryIO

from kfs.cat.output import OutputFormat
from kfs.cat.records import CatRequest, Place
from kfs.errors import KfsError
from kfs.log.data_dir import DataDir
from kfs.log.problem import Problem
from kfs.log.storage import Storage
from kfs.read.isolation_level import IsolationLevel
from kfs.read.selection import Selection


class LogDirectoryLines:
    """What ``kfs cat`` prints of every topic in a log or partition directory, as a file to read once, to its end.

    A thread writes them while they are read. ``report`` gets what can't be read, and isn't in the lines.
    """

    def __init__(self, path: str, isolation: IsolationLevel, report: Callable[[Problem], None]) -> None:
        """Open the directory; raise :class:`~kfs.errors.UnusableSource` where it holds nothing of Kafka's."""
        self._data_dir = DataDir([path], Storage())
        self._request = CatRequest(Selection(), OutputFormat(), isolation=isolation)
        self._report = report
        self._failure: KfsError | None = None

    def __enter__(self) -> BinaryIO:
        read_fd, write_fd = os.pipe()
        self._lines = os.fdopen(read_fd, "rb")
        self._thread = threading.Thread(target=self._run, args=(write_fd,), name="kfs-import")
        self._thread.start()
        return self._lines

    def _run(self, out: int) -> None:
        try:
            for problem in self._request.write(out, [Place(log, "") for log in self._data_dir.logs()]):
                self._report(problem)
        except BrokenPipeError:  # the reader has failed, and says why
            pass
        except KfsError as error:
            self._failure = error
        finally:
            os.close(out)

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._thread.join()
        self._data_dir.close()

    def check(self) -> None:
        """Raise :class:`KfsError` if the lines that were read aren't all."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure
