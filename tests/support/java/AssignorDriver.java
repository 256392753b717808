import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;

/**
 * Runs Kafka's own assignors. Each line of standard input is a case:
 * {"assignor": CLASS, "topics": {TOPIC: [[RACK, ...] per partition]},
 *  "members": [[MEMBER, INSTANCE or null, SUBSCRIPTION bytes in base64], ...]}
 * The response is a line {MEMBER: ASSIGNMENT bytes in base64}, or {"error": REASON}.
 */
public class AssignorDriver {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = in.readLine()) != null) {
            ObjectNode answer = MAPPER.createObjectNode();
            try {
                assign(MAPPER.readTree(line), answer);
            } catch (Exception e) {
                answer.removeAll();
                answer.put("error", e.toString());
            }
            System.out.println(answer);
        }
        System.out.flush();
    }

    private static void assign(JsonNode given, ObjectNode answer) throws Exception {
        String name = "org.apache.kafka.clients.consumer." + given.get("assignor").asText();
        ConsumerPartitionAssignor assignor =
            (ConsumerPartitionAssignor) Class.forName(name).getDeclaredConstructor().newInstance();
        Map<String, Node> nodes = new TreeMap<>();
        List<PartitionInfo> partitions = new ArrayList<>();
        given.get("topics").fields().forEachRemaining(topic -> {
            int number = 0;
            for (JsonNode racks : topic.getValue()) {
                List<Node> replicas = new ArrayList<>();
                for (JsonNode rack : racks) {
                    replicas.add(nodes.computeIfAbsent(rack.asText(), r -> new Node(nodes.size(), "h", 1, r)));
                }
                if (replicas.isEmpty()) {
                    replicas.add(nodes.computeIfAbsent("", r -> new Node(nodes.size(), "h", 1)));
                }
                Node[] all = replicas.toArray(new Node[0]);
                partitions.add(new PartitionInfo(topic.getKey(), number++, all[0], all, all));
            }
        });
        Map<String, Subscription> members = new HashMap<>();
        for (JsonNode member : given.get("members")) {
            ByteBuffer bytes = ByteBuffer.wrap(Base64.getDecoder().decode(member.get(2).asText()));
            Subscription subscription = ConsumerProtocol.deserializeSubscription(bytes);
            if (!member.get(1).isNull()) {
                subscription.setGroupInstanceId(Optional.of(member.get(1).asText()));
            }
            members.put(member.get(0).asText(), subscription);
        }
        Cluster cluster = new Cluster(
            "c", nodes.values(), partitions, Collections.emptySet(), Collections.emptySet());
        Map<String, Assignment> made = assignor.assign(cluster, new GroupSubscription(members)).groupAssignment();
        made.forEach((member, assignment) -> {
            ByteBuffer bytes = ConsumerProtocol.serializeAssignment(assignment);
            byte[] copy = new byte[bytes.remaining()];
            bytes.get(copy);
            answer.put(member, Base64.getEncoder().encodeToString(copy));
        });
    }
}
