// Java's assignors on the input of benchmarks/assignors.py: prints a line of JSON with the CPU seconds of one assignment,
// the best of five, since the first ones are not compiled yet.
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

public class Assignors {
    static Cluster cluster(int topics, int partitions, int racks, boolean withRacks) {
        Node[] nodes = new Node[racks];
        for (int rack = 0; rack < racks; rack++) {
            nodes[rack] = new Node(rack, "b", 1000 + rack, withRacks ? "r" + rack : null);
        }
        List<PartitionInfo> infos = new ArrayList<>();
        for (int topic = 0; topic < topics; topic++) {
            for (int number = 0; number < partitions / topics; number++) {
                Set<Integer> places = new TreeSet<>(List.of(number % racks).stream().toList());
                places.add(number / racks % racks);
                Node[] replicas = places.stream().map(place -> nodes[place]).toArray(Node[]::new);
                infos.add(new PartitionInfo(String.format("t%03d", topic), number, replicas[0], replicas, replicas));
            }
        }
        return new Cluster("c", List.of(nodes), infos, Collections.emptySet(), Collections.emptySet());
    }

    static GroupSubscription group(ConsumerPartitionAssignor assignor, Cluster cluster, int members, int racks,
            boolean withRacks, Map<String, Assignment> before) {
        List<String> topics = new ArrayList<>(new TreeSet<>(cluster.topics()));
        Map<String, Subscription> found = new HashMap<>();
        for (int number = 0; number < members; number++) {
            String name = String.format("m%04d", number);
            List<TopicPartition> owned = before.containsKey(name) ? before.get(name).partitions() : List.of();
            ByteBuffer data = assignor.subscriptionUserData(new HashSet<>(topics));
            Optional<String> rack = withRacks ? Optional.of("r" + number % racks) : Optional.empty();
            found.put(name, new Subscription(topics, data, owned, owned.isEmpty() ? -1 : 1, rack));
        }
        return new GroupSubscription(found);
    }

    public static void main(String[] told) throws Exception {
        int members = Integer.parseInt(told[0]), partitions = Integer.parseInt(told[1]), racks = Integer.parseInt(told[2]);
        Map<String, Class<? extends ConsumerPartitionAssignor>> all = Map.of("range", RangeAssignor.class, "roundrobin",
                RoundRobinAssignor.class, "sticky", StickyAssignor.class, "cooperative-sticky", CooperativeStickyAssignor.class);
        StringBuilder out = new StringBuilder("{");
        for (String name : List.of("range", "roundrobin", "sticky", "cooperative-sticky")) {
            out.append(out.length() > 1 ? ", " : "").append("\"").append(name).append("\": [");
            String comma = "";
            for (int topics : new int[] {1, 100}) {
                for (boolean withRacks : new boolean[] {false, true}) {
                    Cluster cluster = cluster(topics, partitions, racks, withRacks);
                    double best = Double.POSITIVE_INFINITY;
                    for (int run = 0; run < 5; run++) {
                        ConsumerPartitionAssignor assignor = all.get(name).getDeclaredConstructor().newInstance();
                        GroupSubscription half = group(assignor, cluster, members / 2, racks, withRacks, Map.of());
                        Map<String, Assignment> before = assignor.assign(cluster, half).groupAssignment();
                        GroupSubscription whole = group(assignor, cluster, members, racks, withRacks, before);
                        long start = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
                        assignor.assign(cluster, whole);
                        best = Math.min(best, (ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() - start) / 1e9);
                    }
                    out.append(comma).append(String.format(java.util.Locale.ROOT, "%.3f", best));
                    comma = ", ";
                }
            }
            out.append("]");
        }
        System.out.println(out.append("}"));
    }
}
