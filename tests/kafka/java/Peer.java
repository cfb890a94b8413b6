import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A member that is the Java client. A line of standard input is a command; its response is a line of standard output. */
public class Peer {
    /** For as long a close takes part in a rebalance: it ends only if the other members poll, which a test may not have them do. */
    private static final long CLOSE_NANOS = Duration.ofSeconds(20).toNanos();

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", args[1]);
        settings.put("client.id", args[3]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("group.protocol", args[4]);
        if (args[4].equals("classic")) {
            settings.put("heartbeat.interval.ms", System.getenv().getOrDefault("PEER_HEARTBEAT_MS", "100"));
            settings.put("session.timeout.ms", args[6]);
            settings.put("partition.assignment.strategy", args[5]);
        }
        List<String> lost = new ArrayList<>();
        boolean[] closing = {false};
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(args[2]), new ConsumerRebalanceListener() {
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    if (closing[0]) {
                        consumer.pause(partitions);
                    }
                }

                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    try {
                        consumer.commitSync();
                    } catch (RebalanceInProgressException e) {
                        // It closes amid a rebalance: what it returned was committed before, see commitAll.
                    }
                }

                public void onPartitionsLost(Collection<TopicPartition> partitions) {
                    partitions.forEach(each -> lost.add("" + each.partition()));
                }
            });
            BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
            for (String command = commands.readLine(); command != null; command = commands.readLine()) {
                if (command.equals("close")) {
                    closing[0] = true;
                    commitAll(consumer);
                    return;
                }
                List<String> seen = new ArrayList<>();
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(50))) {
                    seen.add(each.partition() + ":" + each.offset());
                }
                commit(consumer);  // where it is refused, the next turn, the revoke or the close commits the same positions
                String owned = consumer.assignment().stream().map(each -> "" + each.partition())
                        .collect(Collectors.joining(","));
                System.out.println(String.join(",", seen) + "|" + owned + "|" + String.join(",", lost));
                lost.clear();
            }
        }
    }

    /** False where this client refuses, since a rebalance is going on. */
    private static boolean commit(KafkaConsumer<byte[], byte[]> consumer) {
        try {
            consumer.commitSync();
            return true;
        } catch (RebalanceInProgressException e) {
            return false;
        }
    }

    /**
     * This client commits nothing between a JoinGroup and the end of its rebalance. If it closed then, the next owner would
     * read again what the last turns returned. So it takes part until the rebalance ends, and reads nothing more.
     */
    private static void commitAll(KafkaConsumer<byte[], byte[]> consumer) {
        long deadline = System.nanoTime() + CLOSE_NANOS;
        while (!commit(consumer) && System.nanoTime() < deadline) {
            consumer.pause(consumer.assignment());
            consumer.poll(Duration.ofMillis(50));
        }
    }
}
