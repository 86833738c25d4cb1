"""The options that commands on the tree of a LOG_DIR share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from kfs.cli.messages import say_what_is_logged
from kfs.cli.options import (
    bytes_option,
    isolation_option,
    max_batch_bytes_option,
    on_damage_option,
    topic_option,
    until_option,
)
from kfs.internal.broker_state import BrokerState
from kfs.log.storage import DEFAULT_CACHE_BYTES
from kfs.tree.options import DEFAULT_RENDERED_BYTES
from kfs.tree.source import TreeSource

if TYPE_CHECKING:
    from kfs.log.data_dir import DataDir
    from kfs.tree.kafka_tree import KafkaTree

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class SourceOptions(TreeSource):
    """The values of a command's options on how to read and show LOG_DIRs."""

    def arguments(self) -> list[str]:
        """Return command line arguments that result in these options."""
        arguments: list[str] = []
        for option in _only_options.params:
            assert isinstance(option, click.Option)
            assert option.name is not None
            value = getattr(self, option.name)
            if option.is_flag:
                arguments += option.opts if value else ()
            else:
                for each in value if option.multiple else (value,):
                    arguments += (option.opts[0], str(each))
        return arguments

    @contextmanager
    def opened_data(self, *paths: str) -> Iterator[DataDir]:
        """Open the data directory for a command; problems are printed on standard error."""
        say_what_is_logged()
        data_dir = self.data_dir(paths)
        BrokerState(data_dir)
        try:
            yield data_dir
        finally:
            data_dir.close()

    @contextmanager
    def opened(self, *paths: str) -> Iterator[KafkaTree]:
        """Open the tree for a command; problems are printed on standard error."""
        say_what_is_logged()
        tree = self.open(paths)
        try:
            yield tree
        finally:
            tree.close()


def source_options(command: Command) -> Command:
    """Add the source options to a command, which gets them as the keyword argument ``source``."""

    @functools.wraps(command)
    def collect(*args: Any, **kwargs: Any) -> Any:
        names = SourceOptions.__dataclass_fields__
        return command(*args, source=SourceOptions(**{name: kwargs.pop(name) for name in names}), **kwargs)

    decorated: Any = collect
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return cast(Command, decorated)


_OPTIONS = (
    topic_option,
    click.option(
        "--views", is_flag=True, help="Also list what otherwise only resolves by name: value/, time/, .kfs/ ..."
    ),
    until_option(
        "Where logs end: at their end, at the high watermark checkpoint, or where they end now, whatever follows.",
        "now",
    ),
    isolation_option,
    on_damage_option,
    max_batch_bytes_option,
    bytes_option(
        "--cache-bytes",
        default=DEFAULT_CACHE_BYTES + DEFAULT_RENDERED_BYTES,
        shown="80M",
        help_text="Memory for decoded and rendered batches.",
    ),
)


@click.command()
@source_options
def _only_options(source: SourceOptions) -> None:
    """A command that says which options there are."""
