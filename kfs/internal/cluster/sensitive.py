"""Detection of sensitive configs by name; values aren't checked.

Kafka decides by the type in its config definition (``ConfigDef.Type.PASSWORD``), and treats undefined configs as
sensitive. Here the name decides, for every Kafka version. A config is sensitive if its name contains a word of
:data:`_ANYWHERE`, or if one of the name's parts is in :data:`_PARTS`. A broker config is also sensitive if Kafka
doesn't allow changing it on a running broker, because the configs of plugins are among those. This covers everything
that 4.3 hides, and a little more.
"""

from __future__ import annotations

import re
from typing import Final

from kfs.internal.cluster.names import BROKER_RESOURCE

_ANYWHERE: Final = re.compile(
    r"passw(or)?d|passphrase|secret|jaas|credential|token|(private|api|access|shared|account).?key", re.IGNORECASE
)
_PARTS: Final = frozenset({"key", "keys", "pwd", "pass", "certificate", "certificates"})
_PART: Final = re.compile(r"[^a-z0-9]+")
_LISTENER: Final = re.compile(r"listener\.name\.[^.]+\.((plain|gssapi|oauthbearer|scram-sha-(256|512))\.)?")

#: ``DynamicConfig.Broker`` of 4.3, and further ones of 3.x and 2.x.
_CHANGEABLE: Final = """
advertised.listeners background.threads compression.gzip.level compression.lz4.level compression.type
compression.zstd.level config.providers cordoned.log.dirs follower.fetch.last.tiered.offset.enable
follower.replication.throttled.rate group.consumer.assignment.interval.ms
group.coordinator.cached.buffer.max.bytes group.share.assignment.interval.ms group.streams.assignment.interval.ms
leader.replication.throttled.rate listener.security.protocol.map listeners log.cleaner.backoff.ms
log.cleaner.dedupe.buffer.size log.cleaner.delete.retention.ms log.cleaner.io.buffer.load.factor
log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second log.cleaner.max.compaction.lag.ms
log.cleaner.min.cleanable.ratio log.cleaner.min.compaction.lag.ms log.cleaner.threads log.cleanup.policy
log.flush.interval.messages log.flush.interval.ms log.index.interval.bytes log.index.size.max.bytes
log.local.retention.bytes log.local.retention.ms log.message.downconversion.enable log.message.format.version
log.message.timestamp.after.max.ms log.message.timestamp.before.max.ms log.message.timestamp.difference.max.ms
log.message.timestamp.type log.preallocate log.retention.bytes log.retention.hours log.retention.minutes
log.retention.ms log.roll.hours log.roll.jitter.hours log.roll.jitter.ms log.roll.ms log.segment.bytes
log.segment.delete.delay.ms max.connection.creation.rate max.connections max.connections.per.ip
max.connections.per.ip.overrides message.max.bytes metric.reporters min.insync.replicas num.io.threads
num.network.threads num.recovery.threads.per.data.dir num.replica.fetchers principal.builder.class
producer.id.expiration.ms remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms
remote.log.index.file.cache.total.size.bytes remote.log.manager.copier.thread.pool.size
remote.log.manager.copy.max.bytes.per.second remote.log.manager.expiration.thread.pool.size
remote.log.manager.fetch.max.bytes.per.second remote.log.manager.follower.thread.pool.size
remote.log.manager.thread.pool.size remote.log.reader.threads replica.alter.log.dirs.io.max.bytes.per.second
sasl.enabled.mechanisms sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
sasl.kerberos.ticket.renew.window.factor sasl.login.refresh.buffer.seconds
sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
sasl.mechanism.inter.broker.protocol share.coordinator.cached.buffer.max.bytes ssl.cipher.suites ssl.client.auth
ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.keymanager.algorithm
ssl.keystore.location ssl.keystore.type ssl.protocol ssl.provider ssl.secure.random.implementation
ssl.trustmanager.algorithm ssl.truststore.location ssl.truststore.type
transaction.partition.verification.enable unclean.leader.election.enable
"""
_OF_BROKERS: Final = frozenset(_CHANGEABLE.split())


def is_sensitive(resource_type: int, name: str) -> bool:
    """Whether a config's value must be hidden; ``resource_type`` is a number of ``ConfigResource.Type``."""
    if _ANYWHERE.search(name) or not _PARTS.isdisjoint(_PART.split(name.lower())):
        return True
    return resource_type == BROKER_RESOURCE and _LISTENER.sub("", name, count=1) not in _OF_BROKERS
