"""What the benchmarks that compare contenders codec by codec are asked, and how they answer."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from platformdirs import user_cache_dir

from benchmarks.bulk_report import report
from benchmarks.machine import machine
from benchmarks.measurement import Measurement
from benchmarks.produced import Producer
from kfs.format.codecs import Codec


def parser_for(
    module: str, about: str | None, groups: Iterable[str], rounds: int, meaning: str
) -> argparse.ArgumentParser:
    """Return a parser of what all have in common; ``meaning`` is that of the rounds."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=(about or "").split("\n")[0])
    parser.add_argument("--records", type=int, default=1_500_000, help="how many records a log has")
    parser.add_argument("--rounds", type=int, default=rounds, help=meaning)
    parser.add_argument("--only", action="append", choices=list(groups), help="this group only; repeatable")
    codecs = [codec.label for codec in Codec]
    parser.add_argument("--codec", action="append", choices=codecs, help="this codec only; repeatable")
    add_place_of_logs(parser)
    parser.add_argument("--chart", type=Path, help="draw a chart into this file, such as one that ends in .svg")
    parser.add_argument("--json", action="store_true", help="print every measurement, as JSON")
    return parser


def add_place_of_logs(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where logs are kept, and what writes them."""
    default = user_cache_dir("kfs-benchmarks", appauthor=False)
    parser.add_argument("--directory", type=Path, default=Path(default), help="where logs and jars are kept")
    parser.add_argument(
        "--producer",
        type=Producer,
        choices=list(Producer),
        default=Producer.at_hand(),
        help="what writes the logs (%(default)s); all but kfs need Java, for a broker",
    )


def codecs_of(options: argparse.Namespace) -> tuple[Codec, ...]:
    """Return the codecs that are asked for."""
    return tuple(codec for codec in Codec if not options.codec or codec.label in options.codec)


def say(measurements: Sequence[Measurement], is_json: bool) -> None:
    """Print the results."""
    if is_json:
        print(json.dumps([asdict(measurement) for measurement in measurements], indent=1))
    else:
        print("\n".join([machine(), "", *report(measurements)]))
