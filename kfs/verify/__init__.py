"""Verification by several processes; what is checked, and how, is in :mod:`kfs.log.verify`."""
