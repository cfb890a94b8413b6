import java.lang.reflect.Modifier;
import java.util.Arrays;
import java.util.List;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/** What the Java client offers to a consumer: "setting NAME", and "method CLASS NAME", one a line. */
public class Names {
    private static final List<Class<?>> CLASSES = List.of(
        KafkaConsumer.class, ConsumerRebalanceListener.class, ConsumerInterceptor.class, ConsumerPartitionAssignor.class,
        ConsumerRecords.class, ConsumerRecord.class, OffsetAndMetadata.class, OffsetAndTimestamp.class,
        ConsumerGroupMetadata.class, CloseOptions.class, TopicPartition.class, PartitionInfo.class, Node.class);

    public static void main(String[] arguments) {
        for (String name : new TreeSet<>(ConsumerConfig.configNames()))
            System.out.println("setting " + name);
        for (Class<?> kind : CLASSES)
            Arrays.stream(kind.getMethods())
                .filter(method -> method.getDeclaringClass() != Object.class && Modifier.isPublic(method.getModifiers()))
                .map(method -> "method " + kind.getSimpleName() + " " + method.getName())
                .distinct().sorted().forEach(System.out::println);
    }
}
