"""Exceptions as errnos, and what of them is written down."""

from __future__ import annotations

import errno
import logging

import pytest

from kfs.errors import CorruptData, IsADirectory, KfsError, LimitExceeded, NotADirectory, NotFound, ReadOnly
from kfs.mount.errnos import Translator


@pytest.mark.parametrize(
    ("error", "number"),
    [
        (NotFound("x"), errno.ENOENT),
        (NotADirectory("x"), errno.ENOTDIR),
        (IsADirectory("x"), errno.EISDIR),
        (ReadOnly("x"), errno.EROFS),
    ],
)
def test_what_the_user_got_wrong_is_not_logged(error: KfsError, number: int, caplog: pytest.LogCaptureFixture) -> None:
    assert Translator().errno_of(error, "getattr", b"/x") == number
    assert not caplog.records


def test_a_directory_that_goes_while_it_is_open_is_stale_and_not_missing() -> None:
    assert Translator().errno_of(NotFound("x"), "readdir", b"/x") == errno.ESTALE


def test_damage_is_logged_on_one_line_and_once(caplog: pytest.LogCaptureFixture) -> None:
    translator = Translator()
    for error in (
        CorruptData("bad", 7, "/0.log"),
        CorruptData("bad", 7, "/0.log"),
        LimitExceeded("large", 9, "/0.log"),
    ):
        assert translator.errno_of(error, "read", b"/t/0/offset/5.json") == errno.EIO
    assert [record.getMessage() for record in caplog.records] == [
        "read /t/0/offset/5.json: /0.log: position 7: bad",
        "read /t/0/offset/5.json: /0.log: position 9: large",
    ]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_a_name_cannot_drive_a_terminal(caplog: pytest.LogCaptureFixture) -> None:
    Translator().errno_of(CorruptData("bad"), "read", b"/\x1b[31m\n\xff")
    assert caplog.records[0].getMessage() == "read '/\\x1b[31m\\n\\udcff': <bytes>: position 0: bad"


@pytest.mark.parametrize("error", [ZeroDivisionError("oh"), OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_a_mistake_is_logged_with_its_traceback(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(type(error)) as caught:
        raise error
    assert Translator().errno_of(caught.value, "read", "/x") == errno.EIO
    assert caplog.records[0].exc_info is not None
    assert "Traceback" in caplog.text
