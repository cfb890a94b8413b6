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

/** A member that is the Java client. A line of standard input is a command; its answer is a line of standard output. */
public class Peer {
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
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(args[2]), new ConsumerRebalanceListener() {
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) { }

                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    try {
                        consumer.commitSync();
                    } catch (RebalanceInProgressException e) {
                        // It closes amid a rebalance. What the last turn returned was committed by that turn.
                    }
                }

                public void onPartitionsLost(Collection<TopicPartition> partitions) {
                    partitions.forEach(each -> lost.add("" + each.partition()));
                }
            });
            BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
            for (String command = commands.readLine(); command != null; command = commands.readLine()) {
                if (command.equals("close")) {
                    return;
                }
                List<String> seen = new ArrayList<>();
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(50))) {
                    seen.add(each.partition() + ":" + each.offset());
                }
                try {
                    consumer.commitSync();
                } catch (RebalanceInProgressException e) {
                    // This client refuses; the next turn, or the revoke, commits the same positions.
                }
                String owned = consumer.assignment().stream().map(each -> "" + each.partition())
                        .collect(Collectors.joining(","));
                System.out.println(String.join(",", seen) + "|" + owned + "|" + String.join(",", lost));
                lost.clear();
            }
        }
    }
}
