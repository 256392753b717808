import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import kafka.security.authorizer.AclAuthorizer;
import kafka.zk.AclChangeNode;
import kafka.zk.ResourceZNode;
import kafka.zk.ZkAclStore;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.security.authorizer.AclEntry;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.zookeeper.data.Stat;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Decides the cases of each line of the input with Kafka's two authorizers, and shows how Kafka stores the ACLs. The
 * AclAuthorizer gets its ACLs without ZooKeeper. ACLs, cases and filters are arrays in the order of their fields.
 */
public class AuthorizerDriver {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
    }

    private static ObjectNode answer(JsonNode scenario) throws Exception {
        List<AclBinding> acls = new ArrayList<>();
        for (JsonNode acl : scenario.get("acls")) {
            acls.add(new AclBinding(
                    new ResourcePattern(
                            ResourceType.fromCode((byte) acl.get(0).asInt()),
                            acl.get(1).asText(),
                            PatternType.fromCode((byte) acl.get(2).asInt())),
                    new AccessControlEntry(
                            acl.get(3).asText(),
                            acl.get(4).asText(),
                            AclOperation.fromCode((byte) acl.get(5).asInt()),
                            AclPermissionType.fromCode((byte) acl.get(6).asInt()))));
        }
        Map<ResourcePattern, Set<AclEntry>> byPattern = new HashMap<>();
        for (AclBinding acl : acls) {
            byPattern.computeIfAbsent(acl.pattern(), ignored -> new HashSet<>()).add(new AclEntry(acl.entry()));
        }
        String superUsers = scenario.get("super_users").asText();
        boolean everyone = scenario.get("everyone").asBoolean();
        Authorizer standard = standardAuthorizer(acls, superUsers, everyone);
        AclAuthorizer withZooKeeper = aclAuthorizer(byPattern, superUsers, everyone);
        StringBuilder standardDecisions = new StringBuilder();
        StringBuilder decisions = new StringBuilder();
        for (JsonNode one : scenario.get("cases")) {
            AuthorizableRequestContext context = new Context(one.get(0).asText(), one.get(1).asText());
            List<Action> actions = List.of(new Action(
                    AclOperation.fromCode((byte) one.get(2).asInt()),
                    new ResourcePattern(
                            ResourceType.fromCode((byte) one.get(3).asInt()), one.get(4).asText(), PatternType.LITERAL),
                    1,
                    false,
                    false));
            standardDecisions.append(digit(standard.authorize(context, actions).get(0)));
            decisions.append(digit(withZooKeeper.authorize(context, actions).get(0)));
        }
        StringBuilder any = new StringBuilder();
        for (JsonNode one : scenario.get("any")) {
            any.append(digit(withZooKeeper.authorizeByResourceType(
                    new Context(one.get(0).asText(), one.get(1).asText()),
                    AclOperation.fromCode((byte) one.get(2).asInt()),
                    ResourceType.fromCode((byte) one.get(3).asInt()))));
        }
        ObjectNode answer = JSON.createObjectNode();
        answer.put("standard", standardDecisions.toString());
        answer.put("zookeeper", decisions.toString());
        answer.put("any", any.toString());
        answer.set("selected", selected(withZooKeeper, scenario.get("filters")));
        answer.set("nodes", nodes(byPattern));
        answer.set("decoded", decoded(scenario.get("nodes")));
        return answer;
    }

    private static char digit(AuthorizationResult result) {
        return result == AuthorizationResult.ALLOWED ? '1' : '0';
    }

    private static Authorizer standardAuthorizer(List<AclBinding> acls, String superUsers, boolean everyone) {
        StandardAuthorizer authorizer = new StandardAuthorizer();
        authorizer.configure(Map.of(
                "node.id", "1", "super.users", superUsers, "allow.everyone.if.no.acl.found", Boolean.toString(everyone)));
        Map<Uuid, StandardAcl> stored = new HashMap<>();
        for (AclBinding acl : new HashSet<>(acls)) {
            stored.put(Uuid.randomUuid(), StandardAcl.fromAclBinding(acl));
        }
        authorizer.loadSnapshot(stored);
        authorizer.completeInitialLoad();
        return authorizer;
    }

    private static AclAuthorizer aclAuthorizer(
            Map<ResourcePattern, Set<AclEntry>> acls, String superUsers, boolean everyone) throws Exception {
        AclAuthorizer authorizer = new AclAuthorizer();
        Set<KafkaPrincipal> principals = new HashSet<>();
        for (String user : superUsers.split(";")) {
            if (!user.isBlank()) {
                principals.add(SecurityUtils.parseKafkaPrincipal(user.trim()));
            }
        }
        set(authorizer, "superUsers", scalaSet(principals));
        set(authorizer, "shouldAllowEveryoneIfNoAclIsFound", everyone);
        acls.forEach((pattern, entries) ->
                authorizer.updateCache(pattern, new AclAuthorizer.VersionedAcls(scalaSet(entries), 0)));
        return authorizer;
    }

    private static void set(AclAuthorizer authorizer, String name, Object value) throws Exception {
        Field field = AclAuthorizer.class.getDeclaredField(name);
        field.setAccessible(true);
        field.set(authorizer, value);
    }

    @SuppressWarnings("unchecked")
    private static <T> scala.collection.immutable.Set<T> scalaSet(Set<T> items) {
        return (scala.collection.immutable.Set<T>) (Object) CollectionConverters.asScala(items).toSet();
    }

    private static ArrayNode selected(Authorizer authorizer, JsonNode filters) {
        ArrayNode all = JSON.createArrayNode();
        for (JsonNode one : filters) {
            AclBindingFilter filter = new AclBindingFilter(
                    new ResourcePatternFilter(
                            ResourceType.fromCode((byte) one.get(0).asInt()),
                            one.get(1).isNull() ? null : one.get(1).asText(),
                            PatternType.fromCode((byte) one.get(2).asInt())),
                    new AccessControlEntryFilter(
                            one.get(3).isNull() ? null : one.get(3).asText(),
                            one.get(4).isNull() ? null : one.get(4).asText(),
                            AclOperation.fromCode((byte) one.get(5).asInt()),
                            AclPermissionType.fromCode((byte) one.get(6).asInt())));
            ArrayNode found = all.addArray();
            TreeSet<String> texts = new TreeSet<>();
            authorizer.acls(filter).forEach(acl -> texts.add(acl.pattern().resourceType().code() + "|"
                    + acl.pattern().name() + "|" + acl.pattern().patternType().code() + "|" + text(acl.entry())));
            texts.forEach(found::add);
        }
        return all;
    }

    private static String text(AccessControlEntry entry) {
        return entry.principal() + "|" + entry.host() + "|" + entry.operation().code() + "|"
                + entry.permissionType().code();
    }

    /** Paths and data of the nodes and of their change notifications. */
    private static ArrayNode nodes(Map<ResourcePattern, Set<AclEntry>> acls) {
        ArrayNode nodes = JSON.createArrayNode();
        acls.forEach((pattern, entries) -> {
            AclChangeNode change = ZkAclStore.apply(pattern.patternType()).changeStore().createChangeNode(pattern);
            nodes.addArray()
                    .add(ResourceZNode.path(pattern))
                    .add(new String(ResourceZNode.encode(scalaSet(entries)), StandardCharsets.UTF_8))
                    .add(change.path())
                    .add(new String(change.bytes(), StandardCharsets.UTF_8));
        });
        return nodes;
    }

    /** The ACLs that Kafka reads from the data of nodes. */
    private static ArrayNode decoded(JsonNode nodes) throws Exception {
        ArrayNode all = JSON.createArrayNode();
        for (JsonNode data : nodes) {
            TreeSet<String> texts = new TreeSet<>();
            for (AclEntry entry : CollectionConverters.asJava(
                    ResourceZNode.decode(data.asText().getBytes(StandardCharsets.UTF_8), new Stat()).acls())) {
                texts.add(text(entry));
            }
            ArrayNode found = all.addArray();
            texts.forEach(found::add);
        }
        return all;
    }

    private static final class Context implements AuthorizableRequestContext {
        private final KafkaPrincipal principal;
        private final InetAddress address;

        Context(String principal, String host) throws Exception {
            this.principal = SecurityUtils.parseKafkaPrincipal(principal);
            this.address = InetAddress.getByName(host);
        }

        @Override
        public String listenerName() {
            return "PLAINTEXT";
        }

        @Override
        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.PLAINTEXT;
        }

        @Override
        public KafkaPrincipal principal() {
            return principal;
        }

        @Override
        public InetAddress clientAddress() {
            return address;
        }

        @Override
        public int requestType() {
            return 3;
        }

        @Override
        public int requestVersion() {
            return 1;
        }

        @Override
        public String clientId() {
            return "client";
        }

        @Override
        public int correlationId() {
            return 1;
        }
    }
}
