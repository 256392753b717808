import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The scenario of client_versions/scenario.py with Kafka's Java client, from version 2.8 on.
 *
 * <p>Arguments: BOOTSTRAP TOPIC INPUT START_MS. Prints a report in JSON.
 */
public class ClientScenario {
    private static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};
    private static final int PER_CODEC = 20;
    private static final int KEPT = 6;
    private static final long DEADLINE_MS = 60_000;

    private final String bootstrap;
    private final String topic;
    private final String group;
    private final Admin admin;

    private ClientScenario(String bootstrap, String topic) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.group = topic + "-group";
        this.admin = Admin.create(config());
    }

    public static void main(String[] args) throws Exception {
        ClientScenario scenario = new ClientScenario(args[0], args[1]);
        System.out.println(scenario.run(args[2], Long.parseLong(args[3])));
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private String run(String input, long startMs) throws Exception {
        List<String> report = new ArrayList<>();
        create(topic, 2, Map.of("retention.ms", "86400001"));
        waitFor(() -> partitionCount(topic) == 2, "the topic has two partitions");
        List<String> produced = new ArrayList<>();
        for (String codec : CODECS) {
            List<String> values = new ArrayList<>();
            for (int number = 0; number < PER_CODEC; number++) {
                values.add(codec + "-" + number);
            }
            produced.add(quote(codec) + ": " + produce(values, codec, startMs));
        }
        report.add("\"produced\": {" + String.join(", ", produced) + "}");
        writeKept();
        consume(report);
        report.add("\"since\": " + texts(readSince(input, startMs + 5)));
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        String value = admin.describeConfigs(List.of(resource)).all().get().get(resource)
            .get("retention.ms").value();
        report.add("\"config\": " + quote(value));
        boolean listed = admin.listConsumerGroups().all().get().stream()
            .anyMatch(each -> each.groupId().equals(group));
        report.add("\"group listed\": " + listed);
        String doomed = topic + "-doomed";
        create(doomed, 1, Map.of());
        waitFor(() -> partitionCount(doomed) == 1, "the second topic exists");
        admin.deleteTopics(List.of(doomed)).all().get();
        waitFor(() -> partitionCount(doomed) == 0, "the second topic is deleted");
        return "{" + String.join(", ", report) + "}";
    }

    private Map<String, Object> config() {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        return config;
    }

    private void create(String name, int partitions, Map<String, String> configs) throws Exception {
        NewTopic created = new NewTopic(name, partitions, (short) 1).configs(configs);
        admin.createTopics(List.of(created)).all().get();
    }

    private int partitionCount(String name) {
        try {
            if (!admin.listTopics().names().get().contains(name)) {
                return 0;
            }
            try (KafkaConsumer<String, String> consumer = consumer("none")) {
                return consumer.partitionsFor(name).size();
            }
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }

    private KafkaProducer<String, String> producer(Map<String, Object> more) {
        Map<String, Object> config = config();
        config.put("enable.idempotence", true);
        config.put("linger.ms", 20);
        config.putAll(more);
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    private KafkaConsumer<String, String> consumer(String groupId) {
        Map<String, Object> config = config();
        config.put("group.id", groupId);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", false);
        config.put("isolation.level", "read_committed");
        config.put("heartbeat.interval.ms", 200);
        config.put("session.timeout.ms", 30_000);
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    private List<Long> produce(List<String> values, String codec, long startMs) throws Exception {
        List<Future<RecordMetadata>> futures = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer(Map.of("compression.type", codec))) {
            for (int number = 0; number < values.size(); number++) {
                futures.add(producer.send(
                    new ProducerRecord<>(topic, 0, startMs + number, "key", values.get(number))));
            }
        }
        List<Long> offsets = new ArrayList<>();
        for (Future<RecordMetadata> future : futures) {
            offsets.add(future.get().offset());
        }
        return offsets;
    }

    private void writeKept() {
        Map<String, Object> config = Map.of("transactional.id", topic + "-producer");
        try (KafkaProducer<String, String> producer = producer(config)) {
            producer.initTransactions();
            for (int part = 0; part < 3; part++) {
                producer.beginTransaction();
                for (int number = 0; number < 3; number++) {
                    String value = part == 1 ? "dropped" : "kept-" + (part / 2 * 3 + number);
                    producer.send(new ProducerRecord<>(topic, 1, "key", value));
                }
                producer.flush();
                if (part == 1) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
    }

    private void consume(List<String> report) throws Exception {
        int count = CODECS.length * PER_CODEC + KEPT;
        Member first = new Member();
        waitFor(() -> first.rows.size() >= count, count + " records are read", first);
        Member second = new Member();
        waitFor(() -> first.assigned.size() == 1 && second.assigned.size() == 1,
            "both have a partition", first, second);
        Set<Integer> shared = new TreeSet<>(first.assigned);
        shared.addAll(second.assigned);
        second.leave();
        waitFor(() -> first.assigned.size() == 2, "the first has all partitions again", first);
        first.leave();
        Map<TopicPartition, Long> committed = new HashMap<>();
        admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
            .forEach((tp, found) -> committed.put(tp, found.offset()));
        produce(List.of("last"), "none", System.currentTimeMillis());
        Member third = new Member();
        waitFor(() -> !third.rows.isEmpty(), "the last record is read", third);
        third.leave();
        report.add("\"consumed\": [" + texts(first.values(0)) + ", " + texts(first.values(1)) + "]");
        report.add("\"read again\": " + texts(second.values()));
        report.add("\"shared\": " + shared);
        report.add("\"committed\": [" + committed.get(new TopicPartition(topic, 0)) + ", "
            + committed.get(new TopicPartition(topic, 1)) + "]");
        report.add("\"continued\": " + texts(third.values()));
    }

    private List<String> readSince(String input, long timestamp) {
        List<String> values = new ArrayList<>();
        TopicPartition tp = new TopicPartition(input, 0);
        try (KafkaConsumer<String, String> consumer = consumer("none")) {
            consumer.assign(List.of(tp));
            consumer.seek(tp, consumer.offsetsForTimes(Map.of(tp, timestamp)).get(tp).offset());
            long end = consumer.endOffsets(List.of(tp)).get(tp);
            while (consumer.position(tp) < end) {
                consumer.poll(Duration.ofSeconds(1)).forEach(record -> values.add(record.value()));
            }
        }
        return values;
    }

    private static void waitFor(BooleanSupplier condition, String what, Member... members) {
        long deadline = System.currentTimeMillis() + DEADLINE_MS;
        while (!condition.getAsBoolean()) {
            for (Member member : members) {
                if (member.error != null) {
                    throw new RuntimeException("a member failed", member.error);
                }
            }
            if (System.currentTimeMillis() > deadline) {
                throw new RuntimeException("waited for: " + what);
            }
            try {
                Thread.sleep(20);
            } catch (InterruptedException error) {
                throw new RuntimeException(error);
            }
        }
    }

    private static String quote(String text) {
        return '"' + text + '"';
    }

    private static String texts(List<String> values) {
        return values.stream().map(ClientScenario::quote).collect(Collectors.joining(", ", "[", "]"));
    }

    /** A member of the group that polls in its own thread and commits what it has read. */
    private class Member extends Thread {
        final List<ConsumerRecord<String, String>> rows =
            Collections.synchronizedList(new ArrayList<>());
        volatile Set<Integer> assigned = Set.of();
        volatile Throwable error;
        private final AtomicBoolean over = new AtomicBoolean();

        Member() {
            setDaemon(true);
            start();
        }

        @Override
        public void run() {
            try (KafkaConsumer<String, String> consumer = consumer(group)) {
                consumer.subscribe(List.of(topic));
                while (!over.get()) {
                    List<ConsumerRecord<String, String>> found = new ArrayList<>();
                    consumer.poll(Duration.ofMillis(100)).forEach(found::add);
                    Set<Integer> partitions = new HashSet<>();
                    consumer.assignment().forEach(tp -> partitions.add(tp.partition()));
                    assigned = partitions;
                    if (!found.isEmpty()) {
                        consumer.commitSync();
                        rows.addAll(found);
                    }
                }
            } catch (Throwable failure) {
                error = failure;
            }
            assigned = Set.of();
        }

        void leave() throws InterruptedException {
            over.set(true);
            join(DEADLINE_MS);
            if (isAlive() || error != null) {
                throw new RuntimeException("the member did not leave", error);
            }
        }

        List<String> values() {
            return rows.stream().map(ConsumerRecord::value).collect(Collectors.toList());
        }

        List<String> values(int partition) {
            return rows.stream().filter(row -> row.partition() == partition)
                .map(ConsumerRecord::value).collect(Collectors.toList());
        }
    }
}
