"""A test that needs what the machine lacks is skipped, or fails where it was required."""

from __future__ import annotations

import pytest

from tests import requirements


def test_without_java_tests_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv(requirements.REQUIRE_JAVA, raising=False)
    with pytest.raises(pytest.skip.Exception, match="there is no java"):
        requirements.need_java()


def test_without_java_tests_fail_where_it_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv(requirements.REQUIRE_JAVA, "1")
    with pytest.raises(pytest.fail.Exception, match="KFS_REQUIRE_JAVA is set, but there is no java"):
        requirements.need_java()


@pytest.mark.fuse
def test_a_marked_test_runs_only_where_kfs_can_mount() -> None:
    requirements.need_fuse()
