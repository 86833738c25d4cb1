"""The producers of a partition with their snapshots on disk (``ProducerStateManager.java``)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from kfs.broker_log.log_config import Clock, LogConfig
from kfs.broker_log.log_segment import segment_path
from kfs.errors import CorruptData
from kfs.format.producer_snapshot import encode_producer_snapshot, parse_producer_snapshot
from kfs.log.producer_state import ProducerState
from kfs.storage.side_file import read_side_file

_NAME: Final = re.compile(r"([0-9]{20})\.snapshot\Z")


class ProducerStateManager:
    """A :class:`ProducerState`, and the broker's handling of a partition directory's ``.snapshot`` files."""

    def __init__(self, directory: str, config: LogConfig, clock: Clock) -> None:
        self.state = ProducerState(config.producer_id_expiration_ms)
        #: Errors of unreadable snapshots, which were removed.
        self.unreadable: list[CorruptData] = []
        self._directory = directory
        self._clock = clock
        self._last_snapshot_offset = 0
        self._offsets = self._list()

    def _list(self) -> set[int]:
        matches = map(_NAME.match, os.listdir(self._directory))
        return {int(match[1]) for match in matches if match is not None}

    def path(self, offset: int) -> str:
        """Return the path of the snapshot as of ``offset``, which covers the offsets below that."""
        return segment_path(self._directory, offset, ".snapshot")

    @property
    def latest_snapshot_offset(self) -> int | None:
        """The offset of the latest snapshot, or None if there is none."""
        return max(self._offsets, default=None)

    def take_snapshot(self) -> None:
        """Write a snapshot of the state, unless nothing was replayed since the last one."""
        offset = self.state.map_end_offset
        if offset > self._last_snapshot_offset:
            with open(self.path(offset), "wb") as file:
                file.write(encode_producer_snapshot(self.state.entries()))
            self._offsets.add(offset)
            self._last_snapshot_offset = offset

    def remove_snapshot(self, offset: int) -> None:
        """Remove the snapshot as of ``offset``, if there is one."""
        if offset in self._offsets:
            self._offsets.discard(offset)
            with suppress(FileNotFoundError):
                os.unlink(self.path(offset))

    def remove_stray_snapshots(self, base_offsets: Iterable[int]) -> None:
        """Remove the snapshots that belong to no segment, but keep the latest if it is above all segments.

        A clean shutdown writes that one.
        """
        self._offsets = self._list()
        known = set(base_offsets)
        strays = sorted(self._offsets - known)
        if strays and strays[-1] >= max(known, default=0):
            strays.pop()
        for offset in strays:
            self.remove_snapshot(offset)

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int) -> None:
        """Remove the snapshots outside the log; load the latest one unless the state is that of the log end."""
        for offset in sorted(self._offsets):
            if offset > log_end_offset or offset <= log_start_offset:
                self.remove_snapshot(offset)
        if log_end_offset != self.state.map_end_offset:
            self.state.clear()
            self._load(log_start_offset)
        else:
            self.state.map_end_offset = max(self.state.map_end_offset, log_start_offset)
            latest = self.latest_snapshot_offset
            self._last_snapshot_offset = log_start_offset if latest is None else latest

    def _load(self, log_start_offset: int) -> None:
        offset = self.latest_snapshot_offset
        while offset is not None:
            try:
                entries = read_side_file(self.path(offset), parse_producer_snapshot)
            except CorruptData as error:
                self.unreadable.append(error)
                self.remove_snapshot(offset)
            else:
                self.state.load(entries or (), offset, self._clock())
                self._last_snapshot_offset = offset
                return
            offset = self.latest_snapshot_offset
        self._last_snapshot_offset = self.state.map_end_offset = log_start_offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Clear the state and remove all snapshots."""
        self.state.clear()
        for known in sorted(self._offsets):
            self.remove_snapshot(known)
        self._last_snapshot_offset = 0
        self.state.map_end_offset = offset
