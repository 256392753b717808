import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.regex.Pattern;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Runs group members with Kafka's own client. Commands and events are those of tests/support/coordinator/group_member.py. */
@SuppressWarnings("unchecked")
public class GroupMember implements ConsumerRebalanceListener {
    private static final long PAUSE_MS = 100;
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final PrintStream OUT = System.out;
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "RangeAssignor",
        "roundrobin", "RoundRobinAssignor",
        "sticky", "StickyAssignor",
        "cooperative-sticky", "CooperativeStickyAssignor");

    private static final BlockingQueue<Map<String, Object>> MEMBERS = new LinkedBlockingQueue<>();
    private static final Map<String, Object> NO_MORE = Map.of();
    private static volatile boolean isOver;
    private static volatile boolean isPaused;
    private static volatile boolean saidPaused;

    private Set<TopicPartition> assigned = Set.of();

    public static void main(String[] args) throws Exception {
        Thread orders = new Thread(GroupMember::readOrders);
        orders.setDaemon(true);
        orders.start();
        for (Map<String, Object> options = MEMBERS.take(); options != NO_MORE; options = MEMBERS.take()) {
            new GroupMember().run(options);
            say("left", true);
        }
        Runtime.getRuntime().halt(0);
    }

    private static void readOrders() {
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                if (line.equals("leave")) {
                    isOver = true;
                } else if (line.equals("pause") || line.equals("resume")) {
                    saidPaused = false;
                    isPaused = line.equals("pause");
                } else {
                    isOver = isPaused = false;
                    MEMBERS.add(MAPPER.readValue(line, Map.class));
                }
            }
        } catch (IOException error) {
            System.err.println(error);
        }
        isOver = true;
        MEMBERS.add(NO_MORE);
    }

    private static Map<String, Object> settings(Map<String, Object> options) {
        List<String> strategies = new ArrayList<>();
        for (String name : (List<String>) options.get("strategies")) {
            strategies.add("org.apache.kafka.clients.consumer." + ASSIGNORS.get(name));
        }
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", options.get("bootstrap"));
        settings.put("group.id", options.get("group"));
        settings.put("group.instance.id", options.get("instance"));
        settings.put("group.protocol", "classic");
        settings.put("auto.offset.reset", "earliest");
        settings.put("session.timeout.ms", options.get("session_ms"));
        settings.put("max.poll.interval.ms", options.get("poll_interval_ms"));
        settings.put("heartbeat.interval.ms", 300);
        settings.put("metadata.max.age.ms", 300);
        settings.put("enable.auto.commit", options.get("commit").equals("auto"));
        settings.put("auto.commit.interval.ms", 200);
        settings.put("fetch.max.wait.ms", 100);
        settings.put("partition.assignment.strategy", strategies);
        return settings;
    }

    private void run(Map<String, Object> options) throws Exception {
        String topic = (String) options.get("topic");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                settings(options), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            if (topic.startsWith("^")) {
                consumer.subscribe(Pattern.compile(topic), this);
            } else {
                consumer.subscribe(List.of(topic), this);
            }
            while (!isOver) {
                if (isPaused) {
                    if (!saidPaused) {
                        saidPaused = true;
                        say("paused", true);
                    }
                    Thread.sleep(PAUSE_MS);
                } else {
                    poll(consumer, options);
                }
            }
        }
    }

    private void poll(KafkaConsumer<byte[], byte[]> consumer, Map<String, Object> options) {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis((Integer) options.get("poll_ms")));
        if (!consumer.assignment().equals(assigned)) {
            assigned = new HashSet<>(consumer.assignment());
            say("assigned", list(assigned));
        }
        if (records.isEmpty()) {
            return;
        }
        List<Object> received = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            received.add(List.of(record.topic(), record.partition(), record.offset()));
        }
        say("records", received);
        if (options.get("commit").equals("hand")) {
            try {
                consumer.commitSync();
            } catch (KafkaException error) {
                say("commit", error.getClass().getSimpleName());
            }
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        say("revoked", list(partitions));
    }

    private static List<Object> list(Collection<TopicPartition> partitions) {
        List<Object> found = new ArrayList<>();
        partitions.forEach(tp -> found.add(List.of(tp.topic(), tp.partition())));
        return found;
    }

    private static void say(String what, Object value) {
        try {
            OUT.println(MAPPER.writeValueAsString(Map.of(what, value)));
            OUT.flush();
        } catch (JsonProcessingException error) {
            throw new IllegalStateException(error);
        }
    }
}
