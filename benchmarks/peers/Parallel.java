// Confluent's parallel-consumer in the benchmark of processors: speaks what benchmarks/processor_members.py speaks.
import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.CommitMode;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

public class Parallel {
    static final List<String> FINISHED = new ArrayList<>();
    static ParallelStreamProcessor<String, String> processor;

    static void work(String kind) {
        try {
            if (kind.equals("sleep")) {
                Thread.sleep(5);
                return;
            }
        } catch (InterruptedException error) {
            throw new RuntimeException(error);
        }
        var threads = ManagementFactory.getThreadMXBean();
        long until = threads.getCurrentThreadCpuTime() + 1_000_000;
        while (threads.getCurrentThreadCpuTime() < until) {}
    }

    static void join(String servers, String topic, String kind, int concurrency) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("group.id", topic);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("partition.assignment.strategy", CooperativeStickyAssignor.class.getName());
        var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        var options = ParallelConsumerOptions.<String, String>builder()
            .ordering(ProcessingOrder.KEY)
            .maxConcurrency(concurrency)
            .commitMode(CommitMode.PERIODIC_CONSUMER_ASYNCHRONOUS)
            .commitInterval(Duration.ofSeconds(1))
            .consumer(consumer)
            .build();
        processor = ParallelStreamProcessor.createEosStreamProcessor(options);
        processor.subscribe(List.of(topic));
        processor.poll(context -> {
            ConsumerRecord<String, String> record = context.getSingleConsumerRecord();
            work(kind);
            String line = "[" + record.partition() + ", " + record.offset() + ", " + System.currentTimeMillis() / 1e3 + "]";
            synchronized (FINISHED) {
                FINISHED.add(line);
            }
        });
    }

    static double peakMegabytes() throws Exception {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmHWM:")) return Double.parseDouble(line.replaceAll("\\D", "")) / 1024;
        }
        return 0;
    }

    public static void main(String[] told) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String verb = lines.readLine(); verb != null; verb = lines.readLine()) {
            if (verb.equals("join")) {
                join(told[0], told[1], told[2], Integer.parseInt(told[3]));
            } else if (verb.equals("leave")) {
                processor.closeDontDrainFirst(Duration.ofSeconds(60));
            } else if (verb.equals("count")) {
                synchronized (FINISHED) {
                    verb = Integer.toString(FINISHED.size());
                }
            } else {
                var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
                synchronized (FINISHED) {
                    verb = "{\"finished\": [" + String.join(", ", FINISHED) + "], \"cpu\": " + system.getProcessCpuTime() / 1e9
                        + ", \"peak_mb\": " + peakMegabytes() + "}";
                }
            }
            System.out.println(verb);
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
