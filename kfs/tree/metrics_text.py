"""Metrics as text: Prometheus' exposition format (version 0.0.4), and the same as fields of JSON.

``prometheus_client`` would do this, too: importing it takes 25 ms, and 3 MiB of a process that runs for months, because
it has servers and a registry of its own. Tests have its parser read what this module writes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from kfs.metrics import Distribution, Metric


def prometheus_text(metrics: Iterable[Metric], common: Mapping[str, str]) -> str:
    """Return metrics in Prometheus' format; each sample has the ``common`` labels, too."""
    return "".join(line + "\n" for metric in metrics for line in _lines(metric, common))


def _lines(metric: Metric, common: Mapping[str, str]) -> Iterator[str]:
    yield f"# HELP {metric.name} {_escaped(metric.text)}"
    yield f"# TYPE {metric.name} {metric.type}"
    for value, labels in metric.samples:
        labels = {**common, **labels}
        if isinstance(value, Distribution):
            bounds = [*map(_number, value.bounds), "+Inf"]
            for bound, count in zip(bounds, accumulate(value.counts), strict=True):
                yield f"{metric.name}_bucket{_labels({**labels, 'le': bound})} {count}"
            yield f"{metric.name}_sum{_labels(labels)} {_number(value.total)}"
            yield f"{metric.name}_count{_labels(labels)} {sum(value.counts)}"
        else:
            yield f"{metric.name}{_labels(labels)} {_number(value)}"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    quoted = (f'{name}="{_escaped(value).replace(chr(34), chr(92) + chr(34))}"' for name, value in labels.items())
    return "{" + ",".join(quoted) + "}"


def _escaped(text: str) -> str:
    r"""Return ``text`` on one line, as the format has it; bytes that aren't UTF-8 become ``\x..`` of their own."""
    readable = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return readable.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value)).replace("inf", "Inf")


def json_fields(metrics: Iterable[Metric]) -> dict[str, Any]:
    """Return metrics by name, for JSON: a number, or a list of objects with the labels and ``value``.

    A histogram has ``count``, ``sum`` and ``buckets`` in place of ``value``: how many were at most that large.
    """
    return {metric.name: _json_value(metric) for metric in metrics}


def _json_value(metric: Metric) -> Any:
    if len(metric.samples) == 1 and not metric.samples[0].labels:
        return metric.samples[0].value
    return [{**labels, **_json_sample(value)} for value, labels in metric.samples]


def _json_sample(value: float | Distribution) -> dict[str, Any]:
    if not isinstance(value, Distribution):
        return {"value": value}
    bounds = [_number(bound) for bound in (*value.bounds, math.inf)]
    buckets = dict(zip(bounds, accumulate(value.counts), strict=True))
    return {"count": sum(value.counts), "sum": value.total, "buckets": buckets}
