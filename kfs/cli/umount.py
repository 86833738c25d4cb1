"""``kfs umount``."""

from __future__ import annotations

import click

from kfs.mount import unmount


@click.command()
@click.argument("mountpoint", type=click.Path(readable=False))
@click.option("--lazy", is_flag=True, help="Unmount even while it is in use, and clean up later.")
def umount(mountpoint: str, lazy: bool) -> None:
    """Unmount MOUNTPOINT, and what a killed daemon left there; returns once the daemon is gone."""
    unmount(mountpoint, lazy=lazy)
