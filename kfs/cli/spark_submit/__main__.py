"""Print the path of the script."""

from __future__ import annotations

import os

import click

click.echo(os.path.join(os.path.dirname(__file__), "kfs_export.py"))
