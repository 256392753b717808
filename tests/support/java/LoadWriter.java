import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;

import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes numbered records in turn to all partitions until standard input ends. Arguments: the name of the writer, the
 * topic, the number of partitions, the size of values, the records in flight or in a transaction, how often a
 * transaction is aborted (0: no transactions, 5: every fifth), and properties of the producer (KEY=VALUE).
 *
 * Prints a line for each result:
 * <pre>
 * ack     NUMBER OFFSET    acknowledged; in a transaction: committed
 * aborted NUMBER           its transaction was aborted
 * failed  NUMBER REASON
 * end     NUMBER           the number of records that were sent; all results are printed
 * </pre>
 */
public class LoadWriter {
    private static final long GIVE_UP_MS = 180_000;

    private final String name;
    private final String topic;
    private final int partitions;
    private final int valueBytes;
    private final KafkaProducer<byte[], byte[]> producer;
    private volatile boolean enough;
    private int sent;

    public static void main(String[] args) throws Exception {
        LoadWriter writer = new LoadWriter(args);
        Thread waiter = new Thread(writer::awaitEnd);
        waiter.setDaemon(true);
        waiter.start();
        int atOnce = Integer.parseInt(args[4]);
        int abortEvery = Integer.parseInt(args[5]);
        if (abortEvery == 0) {
            writer.write(atOnce);
        } else {
            writer.writeTransactions(atOnce, abortEvery);
        }
        print("end " + writer.sent);
        writer.producer.close();
    }

    private LoadWriter(String[] args) {
        name = args[0];
        topic = args[1];
        partitions = Integer.parseInt(args[2]);
        valueBytes = Integer.parseInt(args[3]);
        Properties properties = new Properties();
        for (String property : Arrays.asList(args).subList(6, args.length)) {
            int cut = property.indexOf('=');
            properties.put(property.substring(0, cut), property.substring(cut + 1));
        }
        producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private void awaitEnd() {
        try {
            while (System.in.read() >= 0) {
                // Ignores the input; only its end matters.
            }
        } catch (java.io.IOException error) {
            print("failed -1 " + error);
        }
        enough = true;
        try {
            Thread.sleep(GIVE_UP_MS);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
        Runtime.getRuntime().halt(1);  // in a test that failed nobody else would end this process
    }

    private static synchronized void print(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private ProducerRecord<byte[], byte[]> next() {
        byte[] value = new byte[valueBytes];
        Arrays.fill(value, (byte) '.');
        byte[] text = (name + ":" + sent).getBytes(StandardCharsets.UTF_8);
        System.arraycopy(text, 0, value, 0, text.length);
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, sent % partitions, null, value);
        sent++;
        return record;
    }

    private void write(int onTheWay) throws InterruptedException {
        Semaphore free = new Semaphore(onTheWay);
        while (!enough) {
            free.acquire();
            int number = sent;
            producer.send(next(), (metadata, error) -> {
                print(error == null ? "ack " + number + " " + metadata.offset() : "failed " + number + " " + error);
                free.release();
            });
        }
        producer.flush();
    }

    private void writeTransactions(int records, int abortEvery) throws InterruptedException {
        retry(producer::initTransactions);
        for (int transaction = 1; !enough; transaction++) {
            int first = sent;
            List<Future<RecordMetadata>> results = new ArrayList<>();
            boolean committed = false;
            try {
                producer.beginTransaction();
                for (int count = 0; count < records; count++) {
                    results.add(producer.send(next()));
                }
                producer.flush();
                for (Future<RecordMetadata> result : results) {
                    result.get();
                }
                if (transaction % abortEvery != 0) {
                    retry(producer::commitTransaction);
                    committed = true;
                } else {
                    retry(producer::abortTransaction);
                }
            } catch (ProducerFencedException | InterruptException error) {
                throw error;
            } catch (KafkaException | ExecutionException error) {
                System.err.println("transaction " + transaction + " must be aborted: " + error);
                retry(producer::abortTransaction);
            }
            for (int number = first; number < sent; number++) {
                print(committed ? "ack " + number + " " + offset(results.get(number - first)) : "aborted " + number);
            }
        }
    }

    private static long offset(Future<RecordMetadata> result) throws InterruptedException {
        try {
            return result.get().offset();
        } catch (ExecutionException error) {
            throw new IllegalStateException("a committed record has failed", error);
        }
    }

    /** After a timeout the outcome is unknown; the same call must be repeated. */
    private static void retry(Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException error) {
                System.err.println("will retry: " + error);
            }
        }
    }
}
