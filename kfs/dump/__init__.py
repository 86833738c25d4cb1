"""The files of a log as lines: what ``kafka-dump-log`` prints, and the same as JSON.

A :class:`~kfs.dump.dumper.Dumper` reads one file after another and hands each thing it finds (a batch with its
records, an entry of an index, a producer) to a :class:`~kfs.dump.forms.Form`, which knows how it is written.
"""
