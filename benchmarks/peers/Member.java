// Java's member in the benchmark of groups: it hears and prints what benchmarks/members.py hears and prints.
//
// Its best idiom: cooperative-sticky; this thread polls, a worker handles, and a partition is paused while many of its
// records wait. The revoke callback waits for HOLD seconds: what has come is handled meanwhile, but nobody polls.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class Member implements ConsumerRebalanceListener {
    static final int MOST_WAITING = 100;

    final KafkaConsumer<byte[], byte[]> consumer;
    final String topic;
    final double hold, busy;
    final LinkedBlockingQueue<List<ConsumerRecord<byte[], byte[]>>> handed = new LinkedBlockingQueue<>();
    final ConcurrentLinkedQueue<String> told = new ConcurrentLinkedQueue<>();
    final Map<TopicPartition, AtomicInteger> waiting = new ConcurrentHashMap<>();
    final Set<Integer> owned = ConcurrentHashMap.newKeySet();
    final Set<TopicPartition> paused = new HashSet<>();
    Window window = new Window();
    boolean isMember = false;

    Member(Properties settings, String topic, double hold, double busy) {
        consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        this.topic = topic;
        this.hold = hold;
        this.busy = busy;
    }

    // What was handled since the last report; see `Seen` and `Window` in members.py. The worker writes, this thread reads.
    class Window {
        final List<Double> latencies = new ArrayList<>();
        final Map<Integer, List<Double>> gaps = new HashMap<>();
        final Map<Integer, Integer> records = new HashMap<>();
        final Map<Integer, Long> last = new HashMap<>();
        final Set<Integer> stayed = new HashSet<>(owned);
        final long began = System.nanoTime();
        final double cpu = cpu();

        Window() {
            stayed.forEach(each -> last.put(each, began));
        }

        void see(List<ConsumerRecord<byte[], byte[]>> found) {
            long now = System.nanoTime();
            Instant at = Instant.now();
            long wall = at.getEpochSecond() * 1_000_000_000L + at.getNano();
            stayed.retainAll(owned);
            Set<Integer> partitions = new HashSet<>();
            for (ConsumerRecord<byte[], byte[]> each : found) {
                partitions.add(each.partition());
                records.merge(each.partition(), 1, Integer::sum);
                long made = ByteBuffer.wrap(each.value()).order(ByteOrder.LITTLE_ENDIAN).getLong();
                latencies.add((wall - made) / 1e9);
            }
            partitions.forEach(each -> gap(each, now));
        }

        void gap(int partition, long now) {
            Long before = last.put(partition, now);
            if (before != null) {
                gaps.computeIfAbsent(partition, each -> new ArrayList<>()).add((now - before) / 1e9);
            }
        }

        String report() {
            long now = System.nanoTime();
            stayed.retainAll(owned);
            Map<Integer, Object> kept = new HashMap<>(), counts = new HashMap<>();
            for (int each : stayed) {
                gap(each, now);
                kept.put(each, gaps.get(each));
                counts.put(each, records.getOrDefault(each, 0));
            }
            return String.format(Locale.ROOT, "{\"latencies\": %s, \"gaps\": %s, \"records\": %s, \"cpu\": %f, \"seconds\": %f}",
                    latencies, object(kept), object(counts), cpu() - cpu, (now - began) / 1e9);
        }
    }

    static String object(Map<Integer, Object> fields) {
        List<String> parts = new ArrayList<>();
        fields.forEach((key, value) -> parts.add("\"" + key + "\": " + value));
        return "{" + String.join(", ", parts) + "}";
    }

    static double cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9;
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        partitions.forEach(each -> owned.add(each.partition()));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        partitions.forEach(each -> owned.remove(each.partition()));
        paused.removeAll(partitions);
        if (!partitions.isEmpty()) {
            sleep(hold);
        }
    }

    static void sleep(double seconds) {
        try {
            Thread.sleep((long) (seconds * 1000));
        } catch (InterruptedException stopped) {
            throw new RuntimeException(stopped);
        }
    }

    void handle() {
        try {
            while (true) {
                List<ConsumerRecord<byte[], byte[]>> records = handed.poll(100, TimeUnit.MILLISECONDS);
                if (records == null) {
                    continue;
                }
                synchronized (this) {
                    window.see(records);
                }
                for (ConsumerRecord<byte[], byte[]> each : records) {
                    long end = System.nanoTime() + (long) (busy * 1e9);
                    while (System.nanoTime() < end) {
                        Thread.onSpinWait();
                    }
                    waiting.get(new TopicPartition(topic, each.partition())).decrementAndGet();
                }
            }
        } catch (Throwable error) { // else a gap without an end would be measured
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    void poll() {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>(records.count());
        records.forEach(found::add);
        for (TopicPartition each : records.partitions()) {
            AtomicInteger count = waiting.computeIfAbsent(each, name -> new AtomicInteger());
            if (count.addAndGet(records.records(each).size()) > MOST_WAITING && paused.add(each)) {
                consumer.pause(List.of(each));
            }
        }
        if (!found.isEmpty()) {
            handed.add(found);
        }
        List<TopicPartition> ready = paused.stream().filter(each -> waiting.get(each).get() < MOST_WAITING / 2).toList();
        consumer.resume(ready);
        paused.removeAll(ready);
    }

    // A report is made at once, also while the revoke callback waits; the verbs wait for their turn.
    void hear() {
        try (BufferedReader lines = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                if (line.equals("report")) {
                    synchronized (this) {
                        System.out.println(window.report());
                        window = new Window();
                    }
                    System.out.flush();
                } else {
                    told.add(line);
                }
            }
        } catch (Exception error) {
            error.printStackTrace();
        }
        Runtime.getRuntime().halt(0);
    }

    void run() {
        while (true) {
            if (isMember) {
                poll();
            } else {
                sleep(0.01);
            }
            String verb = told.poll();
            if (verb == null) {
                continue;
            }
            isMember = verb.equals("join");
            if (isMember) {
                consumer.subscribe(List.of(topic), this);
            } else {
                consumer.unsubscribe();
            }
            System.out.println(verb);
            System.out.flush();
        }
    }

    public static void main(String[] told) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", told[0]);
        settings.put("group.id", told[1]);
        settings.put("auto.offset.reset", "latest");
        settings.put("partition.assignment.strategy", CooperativeStickyAssignor.class.getName());
        Member member = new Member(settings, told[1], Double.parseDouble(told[2]), Double.parseDouble(told[3]));
        Thread worker = new Thread(member::handle), listener = new Thread(member::hear);
        worker.setDaemon(true);
        listener.setDaemon(true);
        worker.start();
        listener.start();
        member.run();
    }
}
