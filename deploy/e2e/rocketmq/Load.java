import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * RocketMQ's own client as a load, driven by lines on standard input; the harness reads the lines that begin with "> ".
 *
 *   ready                        sends one message and answers its status, or "none" while there is no route to a broker
 *   load THREADS MILLIS BYTES    threads that each wait for SEND_OK before they send the next message of that size; answers
 *                                COUNT P50 P99, durations in microseconds. What it does in the first tenth of the time, which
 *                                is on top, does not count.
 *
 * Its argument is the name server's address. It ends with its input.
 */
public class Load {
    private static final String TOPIC = "benchmark";

    private final DefaultMQProducer producer = new DefaultMQProducer("load-producer");

    private Load(String nameServer) throws Exception {
        producer.setNamesrvAddr(nameServer);
        producer.setSendMsgTimeout(15_000);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setCompressMsgBodyOverHowmuch(1 << 22);
        producer.start();
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        Load load = new Load(args[0]);
        out.println("> ok");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                out.println("> ok " + load.run(line.split(" ")));
            } catch (Exception e) {
                out.println("> error " + e.toString().replace('\n', ' '));
            }
        }
        System.exit(0);
    }

    private String run(String[] word) throws Exception {
        switch (word[0]) {
            case "ready":
                try {
                    return producer.send(new Message(TOPIC, new byte[1])).getSendStatus().name();
                } catch (MQClientException e) {
                    return "none: " + e.getErrorMessage() + " " + e.getResponseCode();
                }
            case "load":
                return load(Integer.parseInt(word[1]), Long.parseLong(word[2]), Integer.parseInt(word[3]));
            default:
                throw new IllegalArgumentException(word[0]);
        }
    }

    private String load(int threads, long millis, int bytes) throws Exception {
        long warm = System.nanoTime() + millis * 100_000;
        long end = warm + millis * 1_000_000;
        List<Sender> senders = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            senders.add(new Sender(bytes, warm, end));
        }
        for (Sender s : senders) {
            s.start();
        }
        int count = 0;
        for (Sender s : senders) {
            s.join();
            if (s.failed != null) {
                throw s.failed;
            }
            count += s.count;
        }
        if (count == 0) {
            throw new IllegalStateException("nothing was sent in that time");
        }
        long[] all = new long[count];
        int at = 0;
        for (Sender s : senders) {
            System.arraycopy(s.took, 0, all, at, s.count);
            at += s.count;
        }
        Arrays.sort(all);
        return count + " " + all[(count - 1) / 2] / 1e3 + " " + all[(int) ((count - 1) * 0.99)] / 1e3;
    }

    private final class Sender extends Thread {
        private final int bytes;
        private final long warm;
        private final long end;
        private long[] took = new long[1 << 12];
        private int count;
        private Exception failed;

        private Sender(int bytes, long warm, long end) {
            this.bytes = bytes;
            this.warm = warm;
            this.end = end;
        }

        @Override
        public void run() {
            try {
                for (long began = System.nanoTime(); began < end;) {
                    SendResult r = producer.send(new Message(TOPIC, new byte[bytes]));
                    if (r.getSendStatus() != SendStatus.SEND_OK) {
                        throw new IllegalStateException("a message is answered " + r.getSendStatus());
                    }
                    long now = System.nanoTime();
                    if (began >= warm) {
                        note(now - began);
                    }
                    began = now;
                }
            } catch (Exception e) {
                failed = e;
            }
        }

        private void note(long nanos) {
            if (count == took.length) {
                took = Arrays.copyOf(took, 2 * count);
            }
            took[count++] = nanos;
        }
    }
}
