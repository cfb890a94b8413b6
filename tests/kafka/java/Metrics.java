import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads a topic of ten records as a member of a group, commits, and prints its metrics: group, name and tags' names. */
public class Metrics {
    public static void main(String[] args) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", args[1]);
        settings.put("auto.offset.reset", "earliest");
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(args[2]));
            for (int seen = 0; seen < 10; ) {
                seen += consumer.poll(Duration.ofMillis(100)).count();
            }
            consumer.commitSync();
            consumer.metrics().keySet().forEach(each -> System.out.println(
                    each.group() + " " + each.name() + " "
                            + new TreeSet<>(each.tags().keySet()).stream().collect(Collectors.joining(","))));
        }
    }
}
