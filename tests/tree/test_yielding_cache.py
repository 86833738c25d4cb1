"""A cache that is left less room drops what was used longest ago, and keeps what was just put into it."""

from __future__ import annotations

from kfs.tree.yielding_cache import YieldingCache


def test_all_of_its_size_is_used_unless_it_has_to_yield() -> None:
    cache = YieldingCache[str, bytes](10, len)
    for key in "abcd":
        cache[key] = bytes(3)
    assert list(cache) == ["b", "c", "d"]


def test_what_was_used_longest_ago_gives_way() -> None:
    cache = YieldingCache[str, bytes](12, len)
    for key in "abcd":
        cache[key] = bytes(3)
    assert cache["a"]
    cache.share = 0.5
    cache["e"] = bytes(3)
    assert set(cache) == {"a", "e"}


def test_one_value_is_kept_however_large() -> None:
    cache = YieldingCache[str, bytes](12, len)
    cache.share = 0.0
    cache["a"] = bytes(12)
    assert set(cache) == {"a"}
    cache["b"] = bytes(3)
    assert set(cache) == {"b"}
