"""When a listing brings attributes along."""

from __future__ import annotations

from kfs.mount.kernel.readdirplus import CREDIT, LOOKUP_SECONDS, ReaddirplusPolicy

CHEAP = LOOKUP_SECONDS / 10


def test_a_listing_starts_with_attributes() -> None:
    assert ReaddirplusPolicy().pays(b"/t/0/offset", at_start=True)


def test_credit_runs_out_where_nobody_looks() -> None:
    eagerness = ReaddirplusPolicy()
    for _ in range(CREDIT // 1000):
        assert eagerness.pays(b"/t", at_start=False)
        eagerness.spend(b"/t", 1000, 1000 * CHEAP)
    assert not eagerness.pays(b"/t", at_start=False)
    assert eagerness.pays(b"/other", at_start=False)


def test_a_look_up_renews_credit() -> None:
    eagerness = ReaddirplusPolicy()
    for directory, name in ((b"/t", b"/t/5.json"), (b"/", b"/t")):
        eagerness.spend(directory, CREDIT, CREDIT * CHEAP)
        assert not eagerness.pays(directory, at_start=False)
        eagerness.looked_up(name)
        assert eagerness.pays(directory, at_start=False)


def test_a_new_listing_has_credit_again() -> None:
    eagerness = ReaddirplusPolicy()
    eagerness.spend(b"/t", CREDIT, CREDIT * CHEAP)
    assert eagerness.pays(b"/t", at_start=True)


def test_attributes_that_are_dear_are_left_until_somebody_asks() -> None:
    eagerness = ReaddirplusPolicy()
    eagerness.spend(b"/t", 200, 200 * LOOKUP_SECONDS * 2)
    assert eagerness.pays(b"/t", at_start=False)
    eagerness.spend(b"/t", 200, 200 * LOOKUP_SECONDS * 25)
    assert not eagerness.pays(b"/t", at_start=False)
    eagerness.looked_up(b"/t/1.json")
    assert eagerness.pays(b"/t", at_start=False)
