import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;

import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreatePartitionsOptions;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's Java clients and console tools on command. Each line of standard input is a JSON object with the name of
 * the operation in "op" and a number in "call". The response is a line on standard output with that number in "id", and
 * either the result in "ok", or a code and a text in "error" and "message".
 * Bytes are base64. The tools run in this JVM, which saves starting one for each of them.
 */
@SuppressWarnings("unchecked")
public class BrokerDriver {
    private static final Duration POLL = Duration.ofMillis(500);
    private static final long DEADLINE_MS = 60_000;

    private final String bootstrap;
    private final Admin admin;
    private final List<Runnable> shutdownHooks = new ArrayList<>();  // of the tool that runs
    private final Map<String, KafkaProducer<byte[], byte[]>> transactional = new HashMap<>();  // by the test's names
    private Integer exitStatus;

    private static class ToolExit extends RuntimeException {
    }

    private static final PrintStream ANSWERS = System.out;

    public static void main(String[] args) throws Exception {
        System.setOut(System.err);  // of what tools or libraries may print, nothing comes between the answers
        BrokerDriver driver = new BrokerDriver(args[0]);
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, Object> answer = new HashMap<>();
            try {
                Map<String, Object> call = mapper.readValue(line, Map.class);
                answer.put("id", call.get("call"));
                answer.put("ok", driver.execute(call));
            } catch (Throwable error) {
                answer.putAll(describe(error));
            }
            ANSWERS.println(mapper.writeValueAsString(answer));
            ANSWERS.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private BrokerDriver(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        Exit.setExitProcedure((status, message) -> toolExits(status));
        Exit.setHaltProcedure((status, message) -> toolExits(status));
        Exit.setShutdownHookAdder((name, hook) -> shutdownHooks.add(hook));
    }

    private void toolExits(int status) {
        if (exitStatus == null) {
            exitStatus = status;
        }
        throw new ToolExit();
    }

    private static Map<String, Object> describe(Throwable error) {
        while (error.getCause() != null
            && (error instanceof ExecutionException || error instanceof CompletionException)) {
            error = error.getCause();
        }
        Map<String, Object> description = new HashMap<>();
        description.put("error", (int) Errors.forException(error).code());
        description.put("message", error.toString());
        return description;
    }

    private Object execute(Map<String, Object> call) throws Exception {
        String topic = (String) call.get("topic");
        switch ((String) call.get("op")) {
            case "produce": return produce(topic, call);
            case "read": return read(topic, call);
            case "transaction": return transaction(topic, call);
            case "first": return first(topic, call);
            case "consumer_offsets": return consumerOffsets(topic, call);
            case "create": return create(topic, call);
            case "delete": return delete(call);
            case "grow": return grow(topic, call);
            case "topics": return admin.listTopics().names().get();
            case "describe": return describeTopic(call);
            case "cluster": return cluster();
            case "configs": return configs(call);
            case "alter": return alter(call);
            case "config_resources": return configResources(call);
            case "delete_records": return deleteRecords(topic, call);
            case "offset": return listOffset(topic, call);
            case "log_dirs": return logDirs();
            case "producers": return producers(topic, call);
            case "round_trip": return roundTrip(topic, call);
            case "distinguished_name": return distinguishedName((String) call.get("certificate"));
            case "tool": return tool(call);
            default: throw new IllegalArgumentException("no operation " + call.get("op"));
        }
    }

    // ---- security

    /** Produces a record and consumes it, with the given configs. Without a topic, only asks for the cluster's id. */
    private Object roundTrip(String topic, Map<String, Object> call) throws Exception {
        Map<String, Object> configs = new HashMap<>((Map<String, Object>) call.get("configs"));
        configs.put("request.timeout.ms", "30000");
        if (topic == null) {
            try (Admin secured = Admin.create(configs)) {
                return secured.describeCluster().clusterId().get();
            }
        }
        configs.put("enable.metrics.push", "false");
        byte[] value = "java".getBytes(StandardCharsets.UTF_8);
        RecordMetadata written;
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(configs, new ByteArraySerializer(), new ByteArraySerializer())) {
            written = producer.send(new ProducerRecord<>(topic, 0, null, value)).get();
        }
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(configs, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seek(partition, written.offset());
            for (long end = System.currentTimeMillis() + DEADLINE_MS; System.currentTimeMillis() < end;) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    return new String(record.value(), StandardCharsets.UTF_8);
                }
            }
        }
        throw new IllegalStateException("no record arrived");
    }

    private static String distinguishedName(String certificate) throws Exception {
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        InputStream der = new ByteArrayInputStream(Base64.getDecoder().decode(certificate));
        return ((X509Certificate) factory.generateCertificate(der)).getSubjectX500Principal().getName();
    }

    // ---- producer and consumer

    private Properties settings(Map<String, Object> call) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        Map<String, Object> settings = (Map<String, Object>) call.getOrDefault("settings", Map.of());
        settings.forEach((key, value) -> properties.put(key, String.valueOf(value)));
        return properties;
    }

    private List<Object> produce(String topic, Map<String, Object> call) throws Exception {
        List<Object> results = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                 new KafkaProducer<>(settings(call), new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (List<Object> fields : (List<List<Object>>) call.get("records")) {
                ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
                    topic, (Integer) fields.get(0), number(fields.get(1)), bytes(fields.get(2)), bytes(fields.get(3)));
                for (List<String> header : (List<List<String>>) fields.get(4)) {
                    record.headers().add(new RecordHeader(header.get(0), bytes(header.get(1))));
                }
                sent.add(producer.send(record));
            }
            producer.flush();
            for (Future<RecordMetadata> future : sent) {
                try {
                    results.add(List.of(future.get().offset(), future.get().timestamp()));
                } catch (ExecutionException error) {
                    results.add(describe(error));
                }
            }
        }
        return results;
    }

    /** One step of a transactional producer, which lives from "init" to "close". */
    private Object transaction(String topic, Map<String, Object> call) throws Exception {
        String name = (String) call.get("producer");
        KafkaProducer<byte[], byte[]> producer = transactional.get(name);
        switch ((String) call.get("step")) {
            case "init":
                producer = new KafkaProducer<>(settings(call), new ByteArraySerializer(), new ByteArraySerializer());
                transactional.put(name, producer);
                producer.initTransactions();
                break;
            case "begin":
                producer.beginTransaction();
                break;
            case "send":
                for (List<Object> fields : (List<List<Object>>) call.get("records")) {
                    Integer partition = (Integer) fields.get(0);
                    producer.send(new ProducerRecord<>(
                        topic, partition, number(fields.get(1)), bytes(fields.get(2)), bytes(fields.get(3))));
                }
                producer.flush();
                break;
            case "offset":
                producer.sendOffsetsToTransaction(
                    Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(number(call.get("offset")))),
                    new ConsumerGroupMetadata((String) call.get("group")));
                break;
            case "commit":
                producer.commitTransaction();
                break;
            case "abort":
                producer.abortTransaction();
                break;
            default:
                transactional.remove(name).close(Duration.ZERO);
        }
        return null;
    }

    private KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> call) {
        Properties properties = settings(call);
        properties.putIfAbsent("enable.auto.commit", "false");
        properties.putIfAbsent("allow.auto.create.topics", "false");
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static List<TopicPartition> partitions(String topic, Map<String, Object> call) {
        List<TopicPartition> partitions = new ArrayList<>();
        for (int partition : (List<Integer>) call.get("partitions")) {
            partitions.add(new TopicPartition(topic, partition));
        }
        return partitions;
    }

    /** Returns all records from the offset "start" (null: the beginning) to the end. */
    private List<Object> read(String topic, Map<String, Object> call) {
        List<Object> found = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(call)) {
            List<TopicPartition> partitions = partitions(topic, call);
            consumer.assign(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            if (call.get("start") == null) {
                consumer.seekToBeginning(partitions);
            } else {
                partitions.forEach(tp -> consumer.seek(tp, number(call.get("start"))));
            }
            long deadline = System.currentTimeMillis() + DEADLINE_MS;
            while (partitions.stream().anyMatch(tp -> consumer.position(tp) < ends.get(tp))) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("the end was not reached in time");
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    found.add(fields(record));
                }
            }
        }
        return found;
    }

    /** Returns the first record after the current end of the topic. A first response, with only the id, reports that the consumer waits. */
    private Object first(String topic, Map<String, Object> call) {
        KafkaConsumer<byte[], byte[]> consumer = consumer(call);
        try {
            List<TopicPartition> partitions = partitions(topic, call);
            consumer.assign(partitions);
            consumer.seekToEnd(partitions);
            partitions.forEach(consumer::position);
            ANSWERS.println("{\"id\": " + call.get("call") + "}");
            ANSWERS.flush();
            long deadline = System.currentTimeMillis() + DEADLINE_MS;
            while (System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    return fields(record);
                }
            }
            throw new IllegalStateException("no record came");
        } finally {
            // A clean close would close the fetch session, and so wait for the fetch that is in flight.
            consumer.close(CloseOptions.timeout(Duration.ZERO));
        }
    }

    private static List<Object> fields(ConsumerRecord<byte[], byte[]> record) {
        List<Object> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(Arrays.asList(header.key(), text(header.value())));
        }
        return Arrays.asList(record.partition(), record.offset(), record.timestamp(),
            text(record.key()), text(record.value()), headers);
    }

    private Object consumerOffsets(String topic, Map<String, Object> call) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(call)) {
            List<TopicPartition> partitions = partitions(topic, call);
            TopicPartition first = partitions.get(0);
            Map<String, Object> result = new HashMap<>();
            result.put("beginning", consumer.beginningOffsets(partitions).get(first));
            result.put("end", consumer.endOffsets(partitions).get(first));
            Map<String, Object> times = new HashMap<>();
            for (Object time : (List<Object>) call.get("times")) {
                OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(first, number(time))).get(first);
                times.put(time.toString(), found == null ? null : List.of(found.offset(), found.timestamp()));
            }
            result.put("times", times);
            return result;
        }
    }

    // ---- admin

    private Object create(String topic, Map<String, Object> call) throws Exception {
        Map<String, List<Integer>> assignment = (Map<String, List<Integer>>) call.get("assignment");
        NewTopic fresh;
        if (assignment == null) {
            fresh = new NewTopic(topic, Optional.ofNullable((Integer) call.get("partitions")),
                Optional.ofNullable((Integer) call.get("replicas")).map(Integer::shortValue));
        } else {
            Map<Integer, List<Integer>> replicas = new HashMap<>();
            assignment.forEach((partition, brokers) -> replicas.put(Integer.valueOf(partition), brokers));
            fresh = new NewTopic(topic, replicas);
        }
        fresh.configs((Map<String, String>) call.get("configs"));
        CreateTopicsOptions options =
            new CreateTopicsOptions().validateOnly((Boolean) call.getOrDefault("validate_only", false));
        CreateTopicsResult result = admin.createTopics(List.of(fresh), options);
        result.all().get();
        Map<String, String> configs = new TreeMap<>();
        result.config(topic).get().entries().forEach(entry -> configs.put(entry.name(), entry.value()));
        return Map.of("partitions", result.numPartitions(topic).get(),
            "replicas", result.replicationFactor(topic).get(),
            "id", result.topicId(topic).get().toString(), "configs", configs);
    }

    private Object delete(Map<String, Object> call) throws Exception {
        TopicCollection topics = call.get("id") == null
            ? TopicCollection.ofTopicNames(List.of((String) call.get("topic")))
            : TopicCollection.ofTopicIds(List.of(Uuid.fromString((String) call.get("id"))));
        admin.deleteTopics(topics).all().get();
        return null;
    }

    private Object grow(String topic, Map<String, Object> call) throws Exception {
        List<List<Integer>> assignments = (List<List<Integer>>) call.get("assignments");
        int count = (Integer) call.get("partitions");
        NewPartitions more =
            assignments == null ? NewPartitions.increaseTo(count) : NewPartitions.increaseTo(count, assignments);
        admin.createPartitions(Map.of(topic, more), new CreatePartitionsOptions()
            .validateOnly((Boolean) call.getOrDefault("validate_only", false))).all().get();
        return null;
    }

    private Object describeTopic(Map<String, Object> call) throws Exception {
        DescribeTopicsOptions options =
            new DescribeTopicsOptions().partitionSizeLimitPerResponse((Integer) call.getOrDefault("limit", 2000));
        TopicDescription topic;
        if (call.get("id") == null) {
            String name = (String) call.get("topic");
            topic = admin.describeTopics(List.of(name), options).allTopicNames().get().get(name);
        } else {
            Uuid id = Uuid.fromString((String) call.get("id"));
            topic = admin.describeTopics(TopicCollection.ofTopicIds(List.of(id)), options)
                .allTopicIds().get().get(id);
        }
        List<Object> partitions = new ArrayList<>();
        for (TopicPartitionInfo each : topic.partitions()) {
            partitions.add(Arrays.asList(
                each.partition(), each.leader().id(), ids(each.replicas()), ids(each.isr())));
        }
        return Map.of("name", topic.name(), "id", topic.topicId().toString(),
            "internal", topic.isInternal(), "partitions", partitions);
    }

    private static List<Integer> ids(Collection<Node> nodes) {
        return nodes.stream().map(Node::id).toList();
    }

    private Object cluster() throws Exception {
        DescribeClusterResult result = admin.describeCluster();
        Map<String, Object> nodes = new HashMap<>();
        for (Node node : result.nodes().get()) {
            nodes.put(node.idString(), List.of(node.host(), node.port()));
        }
        return Map.of("id", result.clusterId().get(), "controller", result.controller().get().id(), "nodes", nodes);
    }

    private static ConfigResource resource(Map<String, Object> call) {
        return new ConfigResource(
            ConfigResource.Type.valueOf(((String) call.get("kind")).toUpperCase()), (String) call.get("name"));
    }

    private Object configs(Map<String, Object> call) throws Exception {
        ConfigResource resource = resource(call);
        DescribeConfigsOptions options =
            new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        Map<String, Object> found = new HashMap<>();
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource), options).all().get().get(resource).entries()) {
            Map<String, Object> fields = new HashMap<>();
            fields.put("value", entry.value());
            fields.put("source", entry.source().name());
            fields.put("read_only", entry.isReadOnly());
            fields.put("sensitive", entry.isSensitive());
            fields.put("type", entry.type().name());
            fields.put("documentation", entry.documentation());
            List<Object> synonyms = new ArrayList<>();
            entry.synonyms().forEach(each ->
                synonyms.add(Arrays.asList(each.name(), each.value(), each.source().name())));
            fields.put("synonyms", synonyms);
            found.put(entry.name(), fields);
        }
        return found;
    }

    private Object alter(Map<String, Object> call) throws Exception {
        Collection<AlterConfigOp> operations = new ArrayList<>();
        for (List<String> each : (List<List<String>>) call.get("operations")) {
            operations.add(new AlterConfigOp(
                new ConfigEntry(each.get(1), each.get(2)), AlterConfigOp.OpType.valueOf(each.get(0).toUpperCase())));
        }
        admin.incrementalAlterConfigs(Map.of(resource(call), operations)).all().get();
        return null;
    }

    private Object configResources(Map<String, Object> call) throws Exception {
        Set<ConfigResource.Type> types = new HashSet<>();
        for (String kind : (List<String>) call.get("kinds")) {
            types.add(ConfigResource.Type.valueOf(kind.toUpperCase()));
        }
        List<Object> found = new ArrayList<>();
        admin.listConfigResources(types, new org.apache.kafka.clients.admin.ListConfigResourcesOptions()).all().get()
            .forEach(each -> found.add(List.of(each.type().name().toLowerCase(), each.name())));
        return found;
    }

    private Object deleteRecords(String topic, Map<String, Object> call) throws Exception {
        TopicPartition tp = new TopicPartition(topic, (Integer) call.get("partition"));
        return admin.deleteRecords(Map.of(tp, RecordsToDelete.beforeOffset(number(call.get("offset")))))
            .lowWatermarks().get(tp).get().lowWatermark();
    }

    private Object listOffset(String topic, Map<String, Object> call) throws Exception {
        TopicPartition tp = new TopicPartition(topic, (Integer) call.get("partition"));
        Object wanted = call.get("spec");
        OffsetSpec spec;
        if (wanted.equals("earliest")) {
            spec = OffsetSpec.earliest();
        } else if (wanted.equals("latest")) {
            spec = OffsetSpec.latest();
        } else if (wanted.equals("max_timestamp")) {
            spec = OffsetSpec.maxTimestamp();
        } else {
            spec = OffsetSpec.forTimestamp(number(wanted));
        }
        ListOffsetsResult.ListOffsetsResultInfo found =
            admin.listOffsets(Map.of(tp, spec)).partitionResult(tp).get();
        return Arrays.asList(found.offset(), found.timestamp(), found.leaderEpoch().orElse(null));
    }

    private Object logDirs() throws Exception {
        List<Integer> brokers = admin.describeCluster().nodes().get().stream().map(Node::id).toList();
        Map<String, Object> found = new HashMap<>();
        for (Map<String, LogDirDescription> each : admin.describeLogDirs(brokers).allDescriptions().get().values()) {
            each.forEach((path, directory) -> {
                Map<String, Object> sizes = new HashMap<>();
                directory.replicaInfos().forEach((tp, replica) -> sizes.put(tp.toString(), replica.size()));
                found.put(path, Map.of("partitions", sizes,
                    "total", directory.totalBytes().orElse(-1), "usable", directory.usableBytes().orElse(-1)));
            });
        }
        return found;
    }

    private Object producers(String topic, Map<String, Object> call) throws Exception {
        TopicPartition tp = new TopicPartition(topic, (Integer) call.get("partition"));
        return admin.describeProducers(List.of(tp)).partitionResult(tp).get().activeProducers().size();
    }

    // ---- console tools

    private Object tool(Map<String, Object> call) throws Exception {
        String[] args = ((List<String>) call.get("args")).toArray(new String[0]);
        InputStream in = System.in;
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream complaints = new ByteArrayOutputStream();
        exitStatus = null;
        System.setIn(new ByteArrayInputStream(bytes(call.get("stdin"))));
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(complaints, true, StandardCharsets.UTF_8));
        try {
            Class.forName((String) call.get("main")).getMethod("main", String[].class).invoke(null, (Object) args);
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof ToolExit)) {
                error.getCause().printStackTrace();
                exitStatus = exitStatus == null ? Integer.valueOf(1) : exitStatus;
            }
        } finally {
            shutdownHooks.forEach(Runnable::run);
            shutdownHooks.clear();
            System.out.flush();
            System.setIn(in);
            System.setOut(out);
            System.setErr(err);
        }
        return Map.of("status", exitStatus == null ? 0 : exitStatus,
            "out", text(printed.toByteArray()), "err", text(complaints.toByteArray()));
    }

    // ---- values

    private static Long number(Object value) {
        return value == null ? null : ((Number) value).longValue();
    }

    private static byte[] bytes(Object value) {
        return value == null ? null : Base64.getDecoder().decode((String) value);
    }

    private static String text(byte[] value) {
        return value == null ? null : Base64.getEncoder().encodeToString(value);
    }
}
