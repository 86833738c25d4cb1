"""Where the threads of a process were when a supervisor ended it by SIGABRT, because it gave no sign of life."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from typing import Final

_STDERR: Final = 2


def print_stacks_at_abort() -> None:
    """Have SIGABRT, and a crash, print the stacks of all threads to standard error before the process ends.

    Call it in the main thread, before others are started: what they inherit leaves the signal to the one that waits.

    At SIGABRT faulthandler alone would print from a signal handler, while the other threads run and change the frames
    that it follows, and may crash there. The thread that waits holds the interpreter lock while it prints. If another
    never releases that, nothing is printed, and the supervisor ends the process by SIGKILL.
    """
    faulthandler.enable()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGABRT})
    threading.Thread(target=_print_at_abort, name="kfs-abort-stacks", daemon=True).start()


def _print_at_abort() -> None:
    signal.sigwait({signal.SIGABRT})
    os.write(_STDERR, b"ended by SIGABRT; the threads were here:\n")
    faulthandler.dump_traceback(_STDERR)
    faulthandler.disable()  # or it prints them again
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGABRT})
    signal.raise_signal(signal.SIGABRT)
