"""Kafka's own topics: the schemas of their records, and decoders that give the fields by name.

:data:`~kfs.internal.topics.GROUP_KINDS` and its neighbours say for each topic what its records are; their
``decode`` takes the key and the value of a record and returns its kind, its version and its fields.
"""
