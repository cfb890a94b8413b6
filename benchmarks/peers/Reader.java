// Java's consumer in the benchmark: prints what benchmarks/clients.py prints.
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class Reader {
    static double cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9;
    }

    // Of the process, as the system counts it.
    static double peakMegabytes() throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmHWM:")) {
                return Long.parseLong(line.replaceAll("\\D", "")) / 1024.0;
            }
        }
        return 0;
    }

    public static void main(String[] told) throws IOException {
        long warmRows = Long.parseLong(told[2]), mostRows = Long.parseLong(told[4]);
        double warmSeconds = Double.parseDouble(told[3]), mostSeconds = Double.parseDouble(told[5]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", told[0]);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", "10000");
        settings.put("max.partition.fetch.bytes", told[7]);
        settings.put("fetch.max.bytes", told[8]);
        settings.put("check.crcs", told[9].toLowerCase());
        if (told.length > 10 && !told[10].isEmpty()) {
            settings.put("security.protocol", "SSL");
            settings.put("ssl.truststore.type", "PEM");
            settings.put("ssl.truststore.location", told[10]);
        }
        List<TopicPartition> partitions = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(told[6]); number++) {
            partitions.add(new TopicPartition(told[1], number));
        }
        long rows = 0, checked = 0, warm = -1;
        double first = 0, begun = 0, cpuBefore = 0, firstAt = 0, startUpCpu = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(partitions);
            while (true) {
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofSeconds(1))) {
                    checked += each.value() == null ? 0 : each.value().length + (each.key() == null ? 0 : each.key().length);
                    rows++;
                }
                double now = System.nanoTime() / 1e9;
                if (rows > 0 && first == 0) {
                    first = now;
                    firstAt = System.currentTimeMillis() / 1e3;
                    startUpCpu = cpu();
                }
                if (warm < 0 && first > 0 && (rows >= warmRows || now - first >= warmSeconds)) {
                    warm = rows;
                    begun = now;
                    cpuBefore = cpu();
                } else if (warm >= 0 && (rows >= mostRows || now - begun >= mostSeconds)) {
                    System.out.printf(Locale.ROOT, "{\"rows\": %d, \"seconds\": %f, \"cpu\": %f, \"bytes\": %d, \"first at\": %f, \"start-up cpu\": %f, \"peak_mb\": %f}%n",
                            rows - warm, now - begun, cpu() - cpuBefore, checked, firstAt, startUpCpu, peakMegabytes());
                    System.out.flush();
                    Runtime.getRuntime().halt(0);
                }
            }
        }
    }
}
