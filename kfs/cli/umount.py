"""``kfs umount``."""

from __future__ import annotations

import click

from kfs.mount import unmount


@click.command()
@click.argument("mountpoint", type=click.Path(readable=False))
@click.option("--lazy", is_flag=True, help="Unmount even while it is in use, and clean up later.")
def umount(mountpoint: str, lazy: bool) -> None:
    """Unmount MOUNTPOINT, even if its daemon was killed; returns once the daemon has ended."""
    unmount(mountpoint, lazy=lazy)
