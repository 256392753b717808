import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;

import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads a topic with the configuration of Kafka's ConsumerPerformance, but with manually assigned partitions, because
 * that tool can only join a group. Arguments: bootstrap servers, topic, number of partitions, records to measure, records
 * to read first as a warm-up. Prints one line of JSON.
 */
public class AssignedConsumer {
    private static final int FETCH_BYTES = 1024 * 1024;
    private static final int SOCKET_BUFFER_BYTES = 2 * 1024 * 1024;
    private static final Duration POLL = Duration.ofMillis(100);
    private static final long STALL_NANOS = 60_000_000_000L;

    private long records;
    private long bytes;

    public static void main(String[] args) {
        Properties properties = new Properties();
        properties.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        properties.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        properties.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        properties.put(ConsumerConfig.RECEIVE_BUFFER_CONFIG, SOCKET_BUFFER_BYTES);
        properties.put(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG, FETCH_BYTES);
        properties.put(ConsumerConfig.CHECK_CRCS_CONFIG, false);
        properties.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        List<TopicPartition> partitions = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(args[2]); number++) {
            partitions.add(new TopicPartition(args[1], number));
        }
        AssignedConsumer reader = new AssignedConsumer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties)) {
            consumer.assign(partitions);
            reader.readAll(consumer, partitions, Long.parseLong(args[4]));
            long started = System.nanoTime();
            reader.readAll(consumer, partitions, Long.parseLong(args[3]));
            double seconds = (System.nanoTime() - started) / 1e9;
            System.out.printf("{\"records\": %d, \"bytes\": %d, \"seconds\": %.6f}%n",
                reader.records, reader.bytes, seconds);
        }
    }

    private void readAll(KafkaConsumer<byte[], byte[]> consumer, List<TopicPartition> partitions, long wanted) {
        for (TopicPartition partition : partitions) {
            consumer.seek(partition, 0);
        }
        records = 0;
        bytes = 0;
        long moved = System.nanoTime();
        while (records < wanted) {
            ConsumerRecords<byte[], byte[]> found = consumer.poll(POLL);
            for (ConsumerRecord<byte[], byte[]> record : found) {
                bytes += record.value().length;
            }
            records += found.count();
            if (!found.isEmpty()) {
                moved = System.nanoTime();
            } else if (System.nanoTime() - moved > STALL_NANOS) {
                throw new IllegalStateException("no record for a minute");
            }
        }
    }
}
