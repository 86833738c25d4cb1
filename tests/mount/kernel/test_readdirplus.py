"""When a listing brings attributes along."""

from __future__ import annotations

from kfs.mount.kernel.readdirplus import CREDIT, LOOKUP_SECONDS, ReaddirplusPolicy

CHEAP = LOOKUP_SECONDS / 10


def test_a_listing_starts_with_attributes() -> None:
    assert ReaddirplusPolicy().pays(b"/t/0/offset", at_start=True)


def test_credit_runs_out_where_nobody_looks() -> None:
    policy = ReaddirplusPolicy()
    for _ in range(CREDIT // 1000):
        assert policy.pays(b"/t", at_start=False)
        policy.spend(b"/t", 1000, 1000 * CHEAP)
    assert not policy.pays(b"/t", at_start=False)
    assert policy.pays(b"/other", at_start=False)


def test_a_look_up_renews_credit() -> None:
    policy = ReaddirplusPolicy()
    for directory in (7, 1):
        policy.spend(directory, CREDIT, CREDIT * CHEAP)
        assert not policy.pays(directory, at_start=False)
        policy.looked_up_in(directory)
        assert policy.pays(directory, at_start=False)


def test_a_new_listing_has_credit_again() -> None:
    policy = ReaddirplusPolicy()
    policy.spend(b"/t", CREDIT, CREDIT * CHEAP)
    assert policy.pays(b"/t", at_start=True)


def test_attributes_that_are_dear_are_left_until_somebody_asks() -> None:
    policy = ReaddirplusPolicy()
    policy.spend(b"/t", 200, 200 * LOOKUP_SECONDS * 2)
    assert policy.pays(b"/t", at_start=False)
    policy.spend(b"/t", 200, 200 * LOOKUP_SECONDS * 25)
    assert not policy.pays(b"/t", at_start=False)
    policy.looked_up_in(b"/t")
    assert policy.pays(b"/t", at_start=False)
