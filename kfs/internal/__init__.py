"""Kafka's internal topics: the schemas of their records, and decoders that return the fields by name.

:data:`~kfs.internal.topics.GROUP_KINDS` and its neighbors define the kinds of records of each topic. Their ``decode``
takes the key and the value of a record and returns its kind, its version and its fields.
"""
