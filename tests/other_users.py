"""Commands as another user than root, who starts them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

NOBODY: Final = 65534


def in_own_namespace_as_nobody(command: list[str], scratch: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command as nobody, where ``/dev/fuse`` is for everyone, with the right to read this Python.

    ``more`` goes into its environment.
    """
    device = scratch / "fuse"
    prepare = (
        'mknod "$0" c 10 229 && chmod 666 "$0" && mount --bind "$0" /dev/fuse && '
        f"exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups "
        '--inh-caps=+dac_read_search --ambient-caps=+dac_read_search -- "$@"'
    )
    return subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", prepare, str(device), *command],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={**os.environ, "HOME": str(scratch), "XDG_CACHE_HOME": str(scratch / "cache"), **more},
    )


def without_roots_rights(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command as a root who has no more right to read than other users."""
    kept = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"]
    return subprocess.run([*kept, "--", *command], capture_output=True, text=True, check=False)
