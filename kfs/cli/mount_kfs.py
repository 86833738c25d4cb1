"""``mount.kfs``: what mount(8) calls for ``mount -t kfs`` and for lines of fstab(5) with the type ``kfs``.

Its options are those of ``kfs mount``, without the leading hyphens: ``-o allow_other,topic=orders*`` is
``--allow-other --topic 'orders*'``.
"""

from __future__ import annotations

import getopt
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

import click

from kfs.cli.main import main as kfs
from kfs.cli.messages import messages
from kfs.cli.mount import mount

#: The exit codes of mount(8).
EXIT_USAGE: Final = 1
EXIT_INTERRUPTED: Final = 8
EXIT_FAILED: Final = 32

_USAGE: Final = "mount.kfs LOG_DIR MOUNTPOINT [-sfnvrw] [-o OPTION[=VALUE],...]"
#: The options of ``kfs mount`` that mount(8) decides: it waits for the mount, not for its end.
_NOT_OFFERED: Final = frozenset({"--foreground", "--help"})
#: Options of every filesystem that change nothing here: what is mounted is read-only, and has no devices, programs or
#: access times.
_NO_EFFECT: Final = frozenset(
    (
        *("defaults", "ro", "rw", "suid", "nosuid", "dev", "nodev", "exec", "noexec", "mand", "nomand"),
        *("sync", "async", "dirsync", "silent", "loud", "iversion", "noiversion", "lazytime", "nolazytime"),
        *("atime", "noatime", "diratime", "nodiratime", "relatime", "norelatime", "strictatime", "nostrictatime"),
    )
)
#: Options that mount(8) and systemd act upon. Some versions of them hand these on, others don't.
_OF_MOUNT: Final = re.compile(
    r"(auto|noauto|nofail|_netdev|nouser|users|nousers|owner|noowner|group|nogroup|(user|comment)(=.*)?|[xX]-.*)\Z",
    re.DOTALL,
)


class _WrongUsage(Exception):
    """What mount.kfs was called with is wrong; the message says what."""


@dataclass(frozen=True, slots=True)
class _Request:
    """What mount(8) asks for: arguments of ``kfs mount``, and its own flags."""

    arguments: list[str]
    is_fake: bool = False
    is_verbose: bool = False


def main() -> NoReturn:
    """Run the command; the exit code is one of mount(8)'s."""
    sys.exit(_run(sys.argv[1:]))


def _run(arguments: list[str]) -> int:
    try:
        request = request_of(arguments)
        if request.is_verbose:
            click.echo(f"kfs mount {shlex.join(request.arguments)}")
        if request.is_fake:
            mount.make_context("mount", request.arguments)
            return 0
        failed = kfs.main(["mount", *request.arguments], prog_name="kfs", standalone_mode=False)
        return EXIT_FAILED if failed else 0
    except (_WrongUsage, click.UsageError) as error:
        messages.say(error.format_message() if isinstance(error, click.UsageError) else str(error))
        return EXIT_USAGE
    except click.Abort:
        return EXIT_INTERRUPTED


def request_of(arguments: list[str]) -> _Request:
    """Parse the arguments of mount.kfs; raise :class:`_WrongUsage`."""
    try:
        options, operands = getopt.gnu_getopt(arguments, "sfnvrwo:t:N:")
    except getopt.GetoptError as error:
        raise _WrongUsage(f"{error.msg}: {_USAGE}") from None
    if len(operands) != 2:
        raise _WrongUsage(_USAGE)
    flags = {name for name, _ in options}
    if "-N" in flags:
        raise _WrongUsage("-N is not supported: nsenter --mount=... mount ...")
    values = [each for name, value in options if name == "-o" for each in _split(value)]
    chosen, others = _translated(values, is_sloppy="-s" in flags)
    return _Request([*chosen, "--", operands[0], *others, operands[1]], "-f" in flags, "-v" in flags)


def _translated(values: list[str], *, is_sloppy: bool) -> tuple[list[str], list[str]]:
    """Return the options of ``kfs mount`` that mean the same, and the LOG_DIRs of ``also``."""
    chosen: list[str] = []
    others: list[str] = []
    known = _known()
    for each in values:
        name, equals, value = each.partition("=")
        option = "--" + name.replace("_", "-")
        if name == "remount":
            raise _WrongUsage("nothing of a mount can be changed: unmount it and mount it anew")
        if name == "also":
            others.append(_given(name, value))
        elif option in known and known[option] and not equals:
            chosen.append(option)
        elif option in known and not known[option]:
            chosen.append(f"{option}={_given(name, value)}")
        elif not is_sloppy and each not in _NO_EFFECT and not _OF_MOUNT.match(each):
            wrong = "takes no value" if option in known else "there is no such option; 'kfs mount --help' has all"
            raise _WrongUsage(f"option {each!r}: {wrong}")
    return chosen, others


def _known() -> dict[str, bool]:
    """Return the long options of ``kfs mount``, and whether each is a flag."""
    options = [parameter for parameter in mount.params if isinstance(parameter, click.Option)]
    names = {name: option.is_flag for option in options for name in (*option.opts, *option.secondary_opts)}
    return {name: is_flag for name, is_flag in names.items() if name.startswith("--") and name not in _NOT_OFFERED}


def _given(name: str, value: str) -> str:
    if not value:
        raise _WrongUsage(f"option {name!r}: a value is missing: {name}=...")
    return value


def _split(options: str) -> Iterator[str]:
    """Yield the options in a comma-separated list. A value in double quotes may have commas, as mount(8) has it."""
    for each in re.findall(r'(?:"[^"]*"|[^,"]|")+', options):
        yield each.replace('"', "")


if __name__ == "__main__":
    main()
