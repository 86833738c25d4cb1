"""The options of a source as arguments, for another process, and back."""

from __future__ import annotations

from dataclasses import asdict, fields

import click
import pytest

from kfs.cli.source import SourceOptions, source_options

#: Every option as nobody has it who doesn't say so.
OTHERS = SourceOptions(
    views=True,
    on_damage="skip",
    until="hw",
    isolation="read_committed",
    topics=("orders*", "--views", "%2Ekfs"),
    max_batch_bytes=4711,
    cache_bytes=47,
)


@click.command()
@source_options
def command(source: SourceOptions) -> SourceOptions:
    return source


def parsed(arguments: list[str]) -> SourceOptions:
    found = command.main(arguments, standalone_mode=False)
    assert isinstance(found, SourceOptions)
    return found


def test_no_options_are_the_defaults() -> None:
    assert parsed([]) == SourceOptions()


@pytest.mark.parametrize("options", [SourceOptions(), OTHERS, SourceOptions(topics=("a",), views=True)])
def test_options_are_restored_from_their_arguments(options: SourceOptions) -> None:
    assert parsed(options.arguments()) == options


def test_that_leaves_no_option_out() -> None:
    """A new one belongs in OTHERS."""
    default = asdict(SourceOptions())
    assert [field.name for field in fields(OTHERS) if getattr(OTHERS, field.name) == default[field.name]] == []
