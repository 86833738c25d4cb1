"""The options of the data source: those of Spark's Kafka source, checked as it checks them, and a few of our own.

Nothing here needs Spark. The rules are those of ``KafkaSourceProvider.scala``; where that throws an
``IllegalArgumentException``, this raises :class:`~kfs.errors.InvalidOption`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Final, TypeVar

from kfs.errors import InvalidOption
from kfs.log.problem import DamagePolicy
from kfs.log.storage import DEFAULT_MAX_BATCH_BYTES
from kfs.read.isolation_level import IsolationLevel
from kfs.spark.offset_limits import (
    ENDING,
    STARTING,
    STRATEGY_OPTION,
    Earliest,
    Latest,
    LogLimit,
    OffsetLimit,
    check_batch_limits,
    check_order,
    parse_assignment,
    parse_limit,
    parse_start,
)
from kfs.spark.paths import parse_paths
from kfs.spark.strategies import Assign, Strategy, Subscribe, SubscribePattern

Options = Mapping[str, str]
Choice = TypeVar("Choice", bound=StrEnum)


_STRATEGIES: Final = ("assign", "subscribe", "subscribePattern")
#: The options that only streams use.
_STREAMING: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_KAFKA: Final = "kafka."
_ISOLATION: Final = "isolation.level"
#: Options of Kafka's consumer that Spark's source refuses, and what to do instead.
_REFUSED: Final = {
    "auto.offset.reset": "say where to start with option 'startingOffsets'",
    "key.deserializer": "keys are bytes, to be deserialized by operations on the DataFrame",
    "value.deserializer": "values are bytes, to be deserialized by operations on the DataFrame",
    "enable.auto.commit": "nothing is committed",
    "interceptor.classes": "nothing may change what is read",
}
#: The end options, which only a batch has.
_BATCH: Final = (*ENDING, "filterPushdown")
_DEFAULT_TRIGGER_DELAY: Final = "15m"
#: Suffixes of Spark's times, in seconds (``JavaUtils.timeSuffixes``); numbers without one are milliseconds.
_UNITS: Final = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "": 1e-3,
}
_TIME: Final = re.compile(r"(-?[0-9]+)([a-z]*)")
#: The options that a batch uses.
_OBEYED: Final = (
    *_STRATEGIES,
    *STARTING,
    *ENDING,
    STRATEGY_OPTION,
    _ISOLATION,
    _KAFKA + _ISOLATION,
    "minPartitions",
    "maxRecordsPerPartition",
    "maxPartitionBytes",
    "failOnDataLoss",
    "includeHeaders",
    "path",
    "paths",
    "columns",
    "onDamage",
    "skippedPath",
    "filterPushdown",
    "maxBatchBytes",
)
#: Options of Spark's Kafka source about its communication with brokers, besides ``kafka.*``: ignored here.
IGNORED: Final = (
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
)
#: For a table, Spark passes all table properties: these are among them, and its options again with a prefix
#: (``TableCatalog.OPTION_PREFIX``).
_OF_TABLES: Final = frozenset({"owner", "provider"})
_TABLE_OPTION: Final = "option."
_KNOWN: Final = {name.lower(): name for name in (*_OBEYED, *_STREAMING, *IGNORED)}
#: The least similarity of a Kafka option's name to one of ours to count as a misspelling of that.
_ALIKE: Final = 0.85


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Read options of tasks; ``skipped_path`` is the directory that gets a file for each task that skipped bytes."""

    fail_on_data_loss: bool = True
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    on_damage: DamagePolicy = DamagePolicy.FAIL
    skipped_path: str | None = None
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES


@dataclass(frozen=True, slots=True)
class SplitOptions:
    """How a batch is cut into tasks: their least number, and their largest size."""

    min_partitions: int | None = None
    max_records: int | None = None
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """All options of a batch query; ``ignored`` are the names of those without effect."""

    paths: tuple[str, ...]
    strategy: Strategy
    starting: OffsetLimit
    ending: LogLimit
    split: SplitOptions
    read: ReadOptions
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RateOptions:
    """The least offsets of a micro-batch, unless it is ``longest_delay`` seconds late, and the most."""

    least: int | None = None
    most: int | None = None
    longest_delay: float = 900.0


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """All options of a streaming query; ``ignored`` as in :class:`BatchOptions`."""

    paths: tuple[str, ...]
    strategy: Strategy
    starting: OffsetLimit
    rates: RateOptions
    split: SplitOptions
    read: ReadOptions
    ignored: tuple[str, ...] = ()


def parse_batch_options(options: Options) -> BatchOptions:
    """Parse the options of a batch query; their names are case-insensitive.

    Raises:
        InvalidOption: an option is missing, refused or invalid.
    """
    given = _given(options)
    starting = parse_start(given, Earliest())
    ending = parse_limit(given, ENDING, Latest())
    check_batch_limits(starting, ending)
    strategy = _strategy(given)
    split = _split_options(given)
    _check_kafka_options(given)
    _check_rates(given)
    check_order(starting, ending)
    read = _read_options(given)
    return BatchOptions(parse_paths(given), strategy, starting, ending, split, read, _ignored(given, _OBEYED))


def parse_stream_options(options: Options) -> StreamOptions:
    """Parse the options of a streaming query; their names are case-insensitive.

    Raises:
        InvalidOption: an option is missing, refused or invalid.
    """
    given = _given(options)
    for name in (ENDING.by_offsets, ENDING.by_timestamps):  # Spark's source ignores the third one
        if name.lower() in given:
            raise InvalidOption(f"option {name!r} is not valid in streaming queries: a stream has no end")
    strategy = _strategy(given)
    split = _split_options(given)
    _check_kafka_options(given)
    rates = _rate_options(given)
    starting = parse_start(given, Latest())
    ignored = _ignored(given, {*_OBEYED, *_STREAMING}.difference(_BATCH))
    return StreamOptions(parse_paths(given), strategy, starting, rates, split, _read_options(given), ignored)


def check_options(options: Options) -> None:
    """Raise :class:`InvalidOption` if the options suit neither kind of query; the kind isn't always known."""
    try:
        parse_batch_options(options)
    except InvalidOption as error:
        try:
            parse_stream_options(options)
        except InvalidOption:
            raise error from None


def includes_headers(options: Options) -> bool:
    """Return the value of option ``includeHeaders``."""
    return _flag({name.lower(): value for name, value in options.items()}, "includeHeaders", default=False)


def pushes_filters(options: Options, *, default: bool) -> bool:
    """Return the value of option ``filterPushdown``."""
    return _flag({name.lower(): value for name, value in options.items()}, "filterPushdown", default=default)


def only_for_streams(ignored: tuple[str, ...]) -> list[str]:
    """Return the ignored options that a streaming query would use."""
    return [name for name in _STREAMING if name in ignored]


def _given(options: Options) -> Options:
    """Return the options by their lower-case names.

    Raises:
        InvalidOption: there are none, or one is unknown; options of Kafka's consumer are accepted unless they look like
            a misspelling of one that is used.
    """
    given = {name.lower(): value for name, value in options.items()}
    if given.keys() >= _OF_TABLES:
        of_table = {name for name in given if name.startswith(_TABLE_OPTION)}
        paths = {name: given[name] for name in ("path", "paths") if name in given}
        given = paths | {name.removeprefix(_TABLE_OPTION): given[name] for name in of_table}
    if not given:
        raise InvalidOption(
            "no options were received: Spark passes those of CREATE TABLE to no source in Python: "
            "use CREATE TEMPORARY VIEW ... USING kfs OPTIONS (...), or SELECT ... FROM the table WITH (...)"
        )
    for name in sorted(given.keys() - _KNOWN.keys()):
        is_kafkas = name.startswith(_KAFKA)
        nearest = get_close_matches(name.removeprefix(_KAFKA) if is_kafkas else name, _KNOWN, 1, _ALIKE)
        if not is_kafkas:
            nearest = nearest or get_close_matches(name, _KNOWN, 1)
        if nearest or not is_kafkas:
            meant = f": is it {_KNOWN[nearest[0]]!r}?" if nearest else ", nor one that is like it"
            raise InvalidOption(f"there is no option {name!r}{meant}")
    return given


def _ignored(given: Options, obeyed: Iterable[str]) -> tuple[str, ...]:
    """Return the names of options without effect; those of Kafka's consumer in lower case, as all names here are."""
    return tuple(sorted(_KNOWN.get(name, name) for name in given.keys() - {name.lower() for name in obeyed}))


def _strategy(given: Options) -> Strategy:
    names = [name for name in _STRATEGIES if name.lower() in given]
    if len(names) != 1:
        reason = "only one of these options can be given" if names else "one of these options has to be given"
        raise InvalidOption(f"{reason}: {', '.join(_STRATEGIES)}")
    name, value = names[0], given[names[0].lower()]
    if name == "assign":
        if not value.strip().startswith("{"):
            raise InvalidOption(f"option 'assign' names no partitions to read: {value!r}")
        return Assign(parse_assignment(value))
    if name == "subscribe":
        topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
        if not topics:
            raise InvalidOption(f"option 'subscribe' names no topics to read: {value!r}")
        return Subscribe(topics)
    if not value.strip():
        raise InvalidOption(f"option 'subscribePattern' is empty: {value!r}")
    try:
        return SubscribePattern(re.compile(value.strip()))
    except re.error as error:
        raise InvalidOption(f"option 'subscribePattern' is no regular expression: {value!r}: {error}") from None


def _number(given: Options, name: str) -> int | None:
    value = given.get(name.lower())
    if value is None:
        return None
    try:
        return int(value)
    except ValueError:
        raise InvalidOption(f"option {name!r} has to be a number, not {value!r}") from None


def _positive(given: Options, name: str) -> int | None:
    number = _number(given, name)
    if number is not None and number <= 0:
        raise InvalidOption(f"option {name!r} has to be positive, not {number}")
    return number


def _flag(given: Options, name: str, *, default: bool) -> bool:
    value = given.get(name.lower())
    if value is None:
        return default
    if value.lower() not in ("true", "false"):
        raise InvalidOption(f"option {name!r} has to be true or false, not {value!r}")
    return value.lower() == "true"


def _check_kafka_options(given: Options) -> None:
    for name, advice in _REFUSED.items():
        if _KAFKA + name in given:
            raise InvalidOption(f"Kafka option {name!r} is not supported: {advice}")


def _split_options(given: Options) -> SplitOptions:
    return SplitOptions(
        _positive(given, "minPartitions"),
        _positive(given, "maxRecordsPerPartition"),
        _positive(given, "maxPartitionBytes"),
    )


def _check_rates(given: Options) -> None:
    least, most = _number(given, "minOffsetsPerTrigger"), _number(given, "maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise InvalidOption(f"minOffsetsPerTrigger ({least}) is higher than maxOffsetsPerTrigger ({most})")


def _rate_options(given: Options) -> RateOptions:
    _check_rates(given)
    least, most = _positive(given, "minOffsetsPerTrigger"), _positive(given, "maxOffsetsPerTrigger")
    return RateOptions(least, most, _seconds(given, "maxTriggerDelay", _DEFAULT_TRIGGER_DELAY))


def _seconds(given: Options, name: str, default: str) -> float:
    text = given.get(name.lower(), default)
    match = _TIME.fullmatch(text.strip().lower())
    if match is None or match[2] not in _UNITS:
        raise InvalidOption(f"option {name!r} has to be a time like 90s, 15m or 500ms, not {text!r}")
    return int(match[1]) * _UNITS[match[2]]


def _read_options(given: Options) -> ReadOptions:
    levels = {given[name].lower() for name in (_ISOLATION, _KAFKA + _ISOLATION) if name in given}
    if len(levels) > 1:
        raise InvalidOption(f"'isolation.level' and 'kafka.isolation.level' differ: {', '.join(sorted(levels))}")
    return ReadOptions(
        _flag(given, "failOnDataLoss", default=True),
        _choice(_ISOLATION, levels.pop() if levels else IsolationLevel.READ_UNCOMMITTED, IsolationLevel),
        _choice("onDamage", given.get("ondamage", DamagePolicy.FAIL).lower(), DamagePolicy),
        given.get("skippedpath"),
        _positive(given, "maxBatchBytes") or DEFAULT_MAX_BATCH_BYTES,
    )


def _choice(name: str, value: str, choices: type[Choice]) -> Choice:
    try:
        return choices(value)
    except ValueError:
        raise InvalidOption(f"option {name!r} has to be {' or '.join(choices)}, not {value!r}") from None
