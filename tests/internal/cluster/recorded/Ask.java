import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.*;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;

/** Asks a broker for all that its metadata says, and writes the answers as JSON: Ask BOOTSTRAP FILE [fill]. */
public class Ask {
    public static void main(String[] args) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            if (args.length > 2) fill(admin);
            Map<String, Object> answers = new TreeMap<>();
            answers.put("clusterId", admin.describeCluster().clusterId().get());
            answers.put("brokers", ids(admin.describeCluster().nodes().get()));
            answers.put("topics", topics(admin));
            answers.put("configs", configs(admin));
            var features = admin.describeFeatures().featureMetadata().get().finalizedFeatures();
            answers.put("features", features.entrySet().stream()
                .collect(Collectors.toMap(Map.Entry::getKey, each -> each.getValue().maxVersionLevel())));
            var quorum = admin.describeMetadataQuorum().quorumInfo().get();
            answers.put("quorum", Map.of("leaderId", quorum.leaderId(), "leaderEpoch", quorum.leaderEpoch(),
                "voters", quorum.voters().stream().map(each -> each.replicaId()).toList()));
            Map<String, Object> users = new TreeMap<>();
            admin.describeUserScramCredentials().all().get().forEach((user, said) -> users.put(user,
                said.credentialInfos().stream().collect(Collectors.toMap(
                    each -> each.mechanism().mechanismName(), each -> each.iterations()))));
            answers.put("users", users);
            List<Object> quotas = new ArrayList<>();
            admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get()
                .forEach((entity, limits) -> quotas.add(Map.of("entity", entity.entries(), "limits", limits)));
            answers.put("quotas", quotas);
            answers.put("acls", acls(admin));
            ObjectMapper json = new ObjectMapper();
            json.enable(SerializationFeature.ORDER_MAP_ENTRIES_BY_KEYS);
            Files.writeString(Path.of(args[1]), json.writerWithDefaultPrettyPrinter().writeValueAsString(answers) + "\n");
        }
    }

    private static Map<String, Object> topics(Admin admin) throws Exception {
        var names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
        Map<String, Object> topics = new TreeMap<>();
        for (var topic : admin.describeTopics(names).allTopicNames().get().values()) {
            List<Object> partitions = new ArrayList<>();
            for (var each : topic.partitions()) {
                Map<String, Object> said = new TreeMap<>();
                said.put("partition", each.partition());
                said.put("leader", each.leader() == null ? null : each.leader().id());
                said.put("replicas", ids(each.replicas()));
                said.put("isr", ids(each.isr()));
                said.put("elr", each.elr() == null ? List.of() : ids(each.elr()));
                partitions.add(said);
            }
            topics.put(topic.name(), Map.of("id", topic.topicId().toString(), "partitions", partitions));
        }
        return topics;
    }

    /** The configs that were set, not those that are defaults or in the broker's file. */
    private static List<Object> configs(Admin admin) throws Exception {
        List<ConfigResource> resources = new ArrayList<>(List.of(new ConfigResource(ConfigResource.Type.BROKER, "")));
        for (var node : admin.describeCluster().nodes().get())
            resources.add(new ConfigResource(ConfigResource.Type.BROKER, node.idString()));
        for (String topic : admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get())
            resources.add(new ConfigResource(ConfigResource.Type.TOPIC, topic));
        resources.add(new ConfigResource(ConfigResource.Type.GROUP, "consumers"));
        resources.add(new ConfigResource(ConfigResource.Type.CLIENT_METRICS, "metrics"));
        Map<ConfigEntry.ConfigSource, ConfigResource.Type> set = Map.of(
            ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigResource.Type.TOPIC,
            ConfigEntry.ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigResource.Type.BROKER,
            ConfigEntry.ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, ConfigResource.Type.BROKER,
            ConfigEntry.ConfigSource.DYNAMIC_GROUP_CONFIG, ConfigResource.Type.GROUP,
            ConfigEntry.ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG, ConfigResource.Type.CLIENT_METRICS);
        List<Object> configs = new ArrayList<>();
        for (var each : admin.describeConfigs(resources).all().get().entrySet())
            for (var config : each.getValue().entries()) {
                boolean isDefault = config.source() == ConfigEntry.ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG;
                boolean isOfDefaults = each.getKey().name().isEmpty();
                if (set.get(config.source()) == each.getKey().type() && isDefault == isOfDefaults) {
                    Map<String, Object> said = new TreeMap<>();
                    said.put("resourceType", each.getKey().type().name());
                    said.put("resourceName", each.getKey().name());
                    said.put("name", config.name());
                    said.put("value", config.value());
                    said.put("sensitive", config.isSensitive());
                    configs.add(said);
                }
            }
        return configs;
    }

    private static List<Object> acls(Admin admin) throws Exception {
        List<Object> acls = new ArrayList<>();
        try {
            for (var each : admin.describeAcls(AclBindingFilter.ANY).values().get())
                acls.add(List.of(each.entry().principal(), each.entry().host(),
                    each.entry().permissionType().name(), each.entry().operation().name(),
                    each.pattern().resourceType().name(), each.pattern().name(), each.pattern().patternType().name()));
        } catch (java.util.concurrent.ExecutionException error) {
            if (!(error.getCause() instanceof org.apache.kafka.common.errors.SecurityDisabledException)) throw error;
        }
        return acls;
    }

    private static List<Integer> ids(Collection<Node> nodes) {
        return nodes.stream().map(Node::id).toList();
    }

    /** Gives a new cluster something of everything. */
    private static void fill(Admin admin) throws Exception {
        admin.createTopics(List.of(
            new NewTopic("orders", 3, (short) 1).configs(Map.of("retention.ms", "86400000", "cleanup.policy", "compact")),
            new NewTopic("again", 1, (short) 1).configs(Map.of("segment.ms", "1000")),
            new NewTopic("gone", 2, (short) 1), new NewTopic("x".repeat(249), 1, (short) 1))).all().get();
        Thread.sleep(1500);
        admin.deleteTopics(List.of("again", "gone", "x".repeat(249))).all().get();
        Thread.sleep(500);
        admin.createTopics(List.of(new NewTopic("again", 2, (short) 1))).all().get();
        admin.createPartitions(Map.of("orders", NewPartitions.increaseTo(4))).all().get();
        alter(admin, ConfigResource.Type.BROKER, "", Map.of("log.cleaner.threads", "2", "message.max.bytes", "2000000"));
        alter(admin, ConfigResource.Type.BROKER, "1", Map.of(
            "max.connections", "1234", "listener.name.plaintext.ssl.keystore.password", "kfs-secret-keystore",
            "sasl.jaas.config", "x.Login required password=\"kfs-secret-jaas\";", "of.a.plugin", "kfs-secret-plugin",
            "listener.name.plaintext.ssl.keystore.location", "/etc/keys/k.jks"));
        alter(admin, ConfigResource.Type.GROUP, "consumers", Map.of("consumer.session.timeout.ms", "50000"));
        alter(admin, ConfigResource.Type.CLIENT_METRICS, "metrics", Map.of("interval.ms", "60000", "metrics", "*"));
        alter(admin, ConfigResource.Type.TOPIC, "orders", Map.of("min.insync.replicas", "1"));
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.TOPIC, "orders"), List.of(
            new AlterConfigOp(new ConfigEntry("cleanup.policy", ""), AlterConfigOp.OpType.DELETE)))).all().get();
        admin.alterUserScramCredentials(List.of(
            scram("alice", ScramMechanism.SCRAM_SHA_256, 4096), scram("bob", ScramMechanism.SCRAM_SHA_512, 5000),
            scram("eve", ScramMechanism.SCRAM_SHA_512, 5000))).all().get();
        admin.alterUserScramCredentials(List.of(scram("alice", ScramMechanism.SCRAM_SHA_512, 8192))).all().get();
        admin.alterUserScramCredentials(List.of(
            new UserScramCredentialDeletion("eve", ScramMechanism.SCRAM_SHA_512))).all().get();
        Map<String, String> anyUser = new HashMap<>();
        anyUser.put("user", null);
        admin.alterClientQuotas(List.of(
            quota(Map.of("user", "alice", "client-id", "app"), "producer_byte_rate", 1e6),
            quota(Map.of("user", "bob"), "request_percentage", 12.5),
            quota(anyUser, "consumer_byte_rate", 5e5),
            quota(Map.of("ip", "10.0.0.1"), "connection_creation_rate", 3.0))).all().get();
        admin.alterClientQuotas(List.of(quota(Map.of("user", "bob"), "producer_byte_rate", 7.0))).all().get();
        admin.alterClientQuotas(List.of(quota(Map.of("user", "bob"), "producer_byte_rate", null))).all().get();
        admin.createAcls(List.of(
            acl(ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", AclOperation.READ, AclPermissionType.ALLOW),
            acl(ResourceType.GROUP, "app-", PatternType.PREFIXED, "User:alice", AclOperation.ALL, AclPermissionType.ALLOW),
            acl(ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL, "User:*", AclOperation.ALTER, AclPermissionType.DENY),
            acl(ResourceType.TOPIC, "old", PatternType.LITERAL, "User:bob", AclOperation.WRITE, AclPermissionType.ALLOW)))
            .all().get();
        admin.deleteAcls(List.of(new AclBindingFilter(
            new ResourcePatternFilter(ResourceType.TOPIC, "old", PatternType.LITERAL), AccessControlEntryFilter.ANY))).all().get();
        Thread.sleep(2000);
    }

    private static void alter(Admin admin, ConfigResource.Type type, String name, Map<String, String> values) throws Exception {
        List<AlterConfigOp> operations = new ArrayList<>();
        values.forEach((key, value) ->
            operations.add(new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET)));
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(type, name), operations)).all().get();
    }

    private static UserScramCredentialUpsertion scram(String user, ScramMechanism mechanism, int iterations) {
        return new UserScramCredentialUpsertion(user, new ScramCredentialInfo(mechanism, iterations), "kfs-secret-" + user);
    }

    private static ClientQuotaAlteration quota(Map<String, String> entity, String key, Double value) {
        return new ClientQuotaAlteration(new ClientQuotaEntity(entity), List.of(new ClientQuotaAlteration.Op(key, value)));
    }

    private static AclBinding acl(ResourceType type, String name, PatternType pattern, String principal,
                                  AclOperation operation, AclPermissionType permission) {
        return new AclBinding(new ResourcePattern(type, name, pattern),
            new AccessControlEntry(principal, "*", operation, permission));
    }
}
