"""Start and end of reading, in the options of Spark's Kafka source (``KafkaOffsetRangeLimit.scala``)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kfs.errors import InvalidOption
from kfs.format.checkpoint import TopicPartition
from kfs.format.layout import MAX_INT32, MAX_INT64
from kfs.spark.stream_offsets import Identities, identities_in

#: The placeholders for the end and the start of the log in JSON.
LATEST: Final = -1
EARLIEST: Final = -2

PartitionNumbers = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first offset of every partition."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The offset after the last one of every partition."""


@dataclass(frozen=True, slots=True)
class SpecificOffsets:
    """An offset for every partition, :data:`LATEST` or :data:`EARLIEST`, and its log's identity if given."""

    offsets: PartitionNumbers
    identities: Identities = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpecificTimestamps:
    """For every partition a time in milliseconds; ``latest_where_none`` applies if no record is later."""

    timestamps: PartitionNumbers
    latest_where_none: bool


@dataclass(frozen=True, slots=True)
class GlobalTimestamp:
    """One time for every partition, as in :class:`SpecificTimestamps`."""

    timestamp: int
    latest_where_none: bool


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """The committed offsets of a consumer group; ``otherwise``, :data:`LATEST` or :data:`EARLIEST`, if none."""

    group: str
    otherwise: int


#: Limits that can be resolved from a log alone.
LogLimit = Earliest | Latest | SpecificOffsets | SpecificTimestamps | GlobalTimestamp
OffsetLimit = LogLimit | GroupOffsets


class LimitOptions(NamedTuple):
    """The names of the options for one end, in order of precedence."""

    by_timestamp: str
    by_timestamps: str
    by_offsets: str


STARTING: Final = LimitOptions("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDING: Final = LimitOptions("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
STRATEGY_OPTION: Final = "startingOffsetsByTimestampStrategy"
#: The prefix of a group's name as the start: not in Spark's source, which uses no group.
_GROUP: Final = "group:"


def parse_limit(options: Mapping[str, str], names: LimitOptions, default: LogLimit) -> LogLimit:
    """Return the limit in the options, whose names are in lower case (``getKafkaOffsetRangeLimit``).

    Raises:
        InvalidOption: the option with precedence is invalid.
    """
    strategy = options.get(STRATEGY_OPTION.lower(), "error").lower()
    if strategy not in ("error", "latest"):
        raise InvalidOption(f"option {STRATEGY_OPTION!r} has to be 'error' or 'latest', not {strategy!r}")
    latest_where_none = strategy == "latest"
    timestamp = options.get(names.by_timestamp.lower())
    if timestamp is not None:
        return GlobalTimestamp(_timestamp(names.by_timestamp, timestamp), latest_where_none)
    timestamps = options.get(names.by_timestamps.lower())
    if timestamps is not None:
        numbers = _partition_numbers(names.by_timestamps, timestamps, '{"topicA":{"0":1606446771205}}')
        return SpecificTimestamps(numbers, latest_where_none)
    offsets = options.get(names.by_offsets.lower())
    if offsets is None:
        return default
    named = named_end(offsets)
    if named is not None:
        return named
    numbers = _partition_numbers(names.by_offsets, offsets, '{"topicA":{"0":23,"1":-1}}')
    return SpecificOffsets(numbers, _identities(names.by_offsets, offsets))


def parse_start(options: Mapping[str, str], default: Earliest | Latest) -> OffsetLimit:
    """Return the start, as :func:`parse_limit`, or that of a group if the options name one."""
    name = STARTING.by_offsets.lower()
    group = named_group(options.get(name, ""))
    if group is None:
        return parse_limit(options, STARTING, default)
    by_time = parse_limit({**options, name: "earliest"}, STARTING, default)
    if not isinstance(by_time, Earliest):  # which takes precedence
        return by_time
    return GroupOffsets(group, EARLIEST if isinstance(default, Earliest) else LATEST)


def named_end(text: str) -> Earliest | Latest | None:
    """Return the end of a log that a text names (case-insensitive), or None."""
    word = text.strip().lower()
    if word == "earliest":
        return Earliest()
    return Latest() if word == "latest" else None


def named_group(text: str) -> str | None:
    """Return the group that a text names after ``group:``, or None."""
    text = text.strip()
    return text[len(_GROUP) :] if text.lower().startswith(_GROUP) else None


def _timestamp(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidOption(f"option {name!r} has to be one number of milliseconds, not {text.strip()!r}") from None


def _partition_numbers(name: str, text: str, example: str) -> dict[TopicPartition, int]:
    try:
        topics = json.loads(text)
        numbers = {
            TopicPartition(topic, int(partition)): _int64(number)
            for topic, partitions in topics.items()
            for partition, number in partitions.items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise InvalidOption(f"option {name!r} has to be like {example}, not {text}") from None
    if any(not 0 <= each.partition <= MAX_INT32 for each in numbers):
        raise InvalidOption(f"option {name!r} has to be like {example}, not {text}")
    return numbers


def _identities(name: str, text: str) -> Identities:
    """Return the identities of the logs of a checkpoint's offsets."""
    try:
        return identities_in(json.loads(text))
    except ValueError as error:
        raise InvalidOption(f"option {name!r} has {str(error)!r}, which is not how a checkpoint names a log") from None


def _int64(number: object) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not -MAX_INT64 <= number <= MAX_INT64:
        raise ValueError(number)
    return number


def parse_assignment(text: str) -> tuple[TopicPartition, ...]:
    """Return the partitions in option ``assign``."""
    example = '{"topicA":[0,1],"topicB":[2]}'
    try:
        return tuple(
            TopicPartition(topic, _int64(partition))
            for topic, partitions in json.loads(text).items()
            for partition in partitions
        )
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise InvalidOption(f"option 'assign' has to be like {example}, not {text}") from None


def moves(limit: OffsetLimit) -> bool:
    """Return whether a limit may resolve to another offset later, as logs and groups advance."""
    return isinstance(limit, (Latest, GroupOffsets)) or (
        isinstance(limit, SpecificOffsets) and LATEST in limit.offsets.values()
    )


def check_batch_limits(starting: OffsetLimit, ending: OffsetLimit) -> None:
    """Raise :class:`InvalidOption` if a batch can't start or end there (``validateBatchOptions``)."""
    if isinstance(starting, Latest):
        raise InvalidOption("the starting offset can't be latest for a batch query")
    if isinstance(starting, SpecificOffsets):
        _check_without(starting, LATEST, "startingOffsets", "latest")
    if isinstance(ending, Earliest):
        raise InvalidOption("the ending offset can't be earliest for a batch query")
    if isinstance(ending, SpecificOffsets):
        _check_without(ending, EARLIEST, "endingOffsets", "earliest")


def _check_without(limit: SpecificOffsets, forbidden: int, option: str, meaning: str) -> None:
    for each, offset in limit.offsets.items():
        if offset == forbidden:
            raise InvalidOption(f"{option} for {each} can't be {meaning} for a batch query")


def check_order(starting: OffsetLimit, ending: OffsetLimit) -> None:
    """Raise :class:`InvalidOption` if both ends are given and contradict (``checkOffsetLimitValidity``)."""
    if isinstance(starting, SpecificOffsets) and isinstance(ending, SpecificOffsets):
        _check_pairs(starting.offsets, ending.offsets, "offset")
    elif isinstance(starting, SpecificTimestamps) and isinstance(ending, SpecificTimestamps):
        _check_pairs(starting.timestamps, ending.timestamps, "timestamp")


def _check_pairs(starting: PartitionNumbers, ending: PartitionNumbers, what: str) -> None:
    if starting.keys() != ending.keys():
        raise InvalidOption(
            f"the starting and ending {what}s have to be of the same partitions, "
            f"not of {names_of(starting)} and of {names_of(ending)}"
        )
    for each, start in starting.items():
        if start > ending[each] >= 0:
            raise InvalidOption(
                f"the starting {what} {start} of {each} is greater than the ending {what} {ending[each]}"
            )


def names_of(partitions: Mapping[TopicPartition, object] | set[TopicPartition]) -> str:
    """Return the names of partitions, for a message."""
    return ", ".join(map(str, sorted(partitions))) or "none"
