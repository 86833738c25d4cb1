"""Writes the records that are appended to partitions, until there is nothing more to come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kfs.cat.output import OutputFormat, Renderer
from kfs.format.checkpoint import TopicPartition
from kfs.log.problem import Problem
from kfs.read.followed_log import Event
from kfs.read.follower import Follower
from kfs.storage.descriptors import write_all


@dataclass(frozen=True, slots=True)
class FollowingRequest:
    """A request to write what a follower reads; ``path_of`` returns a partition's path in the tree."""

    follower: Follower
    output: OutputFormat
    path_of: Callable[[TopicPartition], str]

    def write(self, out: int) -> Iterator[Event | Problem]:
        """Write to the descriptor ``out`` without end; yield what happened, and damage that was skipped.

        It ends when nothing more is wanted of any partition. Records are written as soon as they are read.

        Raises:
            CorruptData: there is damage, and that isn't to be skipped.
            OSError: ``out`` can't be written to; a BrokenPipeError also while there is nothing to write.
        """
        renderer = Renderer(self.output)
        while True:
            for item in self.follower.read_on():
                if isinstance(item, Event):
                    yield item
                    continue
                log = item.log
                write_all(out, [renderer.render(self.path_of(log.topic_partition), log, item.selected)])
                yield from item.selected.problems
            if self.follower.is_done:
                return
            self.follower.wait(out)
