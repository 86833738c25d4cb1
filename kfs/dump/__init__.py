"""Dumps of a log's files: the output of ``kafka-dump-log``, or the same as JSON.

A :class:`~kfs.dump.dumper.Dumper` reads one file after another. It passes all that it finds (a batch with its records,
an index entry, a producer) to a :class:`~kfs.dump.forms.Form`, which formats it.
"""
