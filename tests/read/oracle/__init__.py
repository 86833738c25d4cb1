"""Logs drawn at random, what is done to them, and what every view then has to show: ``README.md`` says more."""
