"""``python -m kfs``: the command line."""

from kfs.cli.main import main

main(prog_name="kfs")
