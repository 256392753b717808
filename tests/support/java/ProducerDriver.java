import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;

import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Runs Kafka producers by commands on standard input, one per line, with fields separated by
 * tabs. The response to a command is one line: "ok", or "error" and the reason. Bytes are
 * written as "=" and hexadecimal digits, a null as "-".
 *
 * <pre>
 * open   NAME  [PROPERTY=VALUE]...
 * send   NAME  TOPIC  PARTITION  TIMESTAMP  KEY  VALUE  [HEADER  VALUE]...
 * sync   NAME                        responds: ok  OFFSET:TIMESTAMP...  (sends since last sync)
 * init | begin | commit | abort | close  NAME
 * exit                               ends the process without closing producers
 * </pre>
 */
public class ProducerDriver {
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final Map<String, List<Future<RecordMetadata>>> pending = new HashMap<>();

    public static void main(String[] args) throws Exception {
        ProducerDriver driver = new ProducerDriver();
        BufferedReader in = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = in.readLine()) != null) {
            String[] fields = line.split("\t", -1);
            if (fields[0].equals("exit")) {
                break;
            }
            String answer;
            try {
                answer = driver.execute(fields);
            } catch (Exception e) {
                answer = "error\t" + e.toString().replace('\n', ' ').replace('\t', ' ');
            }
            System.out.println(answer);
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private String execute(String[] fields) throws Exception {
        String name = fields[1];
        if (fields[0].equals("open")) {
            open(name, fields);
            return "ok";
        }
        KafkaProducer<byte[], byte[]> producer = producers.get(name);
        if (producer == null) {
            return "error\tno producer " + name;
        }
        switch (fields[0]) {
            case "send":
                pending.get(name).add(producer.send(record(fields)));
                return "ok";
            case "sync":
                return sync(name, producer);
            case "init":
                producer.initTransactions();
                return "ok";
            case "begin":
                producer.beginTransaction();
                return "ok";
            case "commit":
                producer.commitTransaction();
                return "ok";
            case "abort":
                producer.abortTransaction();
                return "ok";
            case "close":
                producer.close();
                producers.remove(name);
                return "ok";
            default:
                return "error\tunknown command " + fields[0];
        }
    }

    private void open(String name, String[] fields) {
        Properties properties = new Properties();
        for (int i = 2; i < fields.length; i++) {
            int cut = fields[i].indexOf('=');
            properties.put(fields[i].substring(0, cut), fields[i].substring(cut + 1));
        }
        producers.put(name, new KafkaProducer<>(
            properties, new ByteArraySerializer(), new ByteArraySerializer()));
        pending.put(name, new ArrayList<>());
    }

    private String sync(String name, KafkaProducer<byte[], byte[]> producer) throws Exception {
        producer.flush();
        StringBuilder answer = new StringBuilder("ok");
        for (Future<RecordMetadata> future : pending.get(name)) {
            RecordMetadata metadata = future.get();
            answer.append('\t').append(metadata.offset()).append(':').append(metadata.timestamp());
        }
        pending.get(name).clear();
        return answer.toString();
    }

    private static ProducerRecord<byte[], byte[]> record(String[] fields) {
        Long timestamp = fields[4].equals("-") ? null : Long.valueOf(fields[4]);
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
            fields[2], Integer.valueOf(fields[3]), timestamp, bytes(fields[5]), bytes(fields[6]));
        for (int i = 7; i < fields.length; i += 2) {
            record.headers().add(new RecordHeader(fields[i], bytes(fields[i + 1])));
        }
        return record;
    }

    private static byte[] bytes(String text) {
        return text.equals("-") ? null : HexFormat.of().parseHex(text.substring(1));
    }
}
