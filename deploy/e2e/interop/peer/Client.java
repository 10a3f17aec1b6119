import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * RocketMQ's own client, driven by lines on standard input. What belongs to an answer begins with "> "; its last line is
 * "> ok", with results behind it, or "> error" with the reason.
 *
 *   load THREADS                 puts messages of ten kinds until halt
 *   halt                         answers how many sends got which status
 *   send COUNT                   the same for COUNT plain messages
 *   late COUNT LEVEL             the same for COUNT messages of a delay level
 *   config ADDRESS KEY VALUE     changes a broker's setting
 *   topic ADDRESS NAME QUEUES    creates a topic on a broker and waits until the name server knows it
 *   route TOPIC                  waits until the name server knows the topic and answers its master's address
 *   tables ADDRESS FOLDER        writes a broker's answers to the codes 21, 43, 45 and 201 as files of their names
 *   receive COUNT TOPIC...       consumes these topics by a new group for a minute at most and prints each message
 *                                as Records does
 *
 * Its argument is the name server's address. It ends with its input.
 */
public class Client {
    private static final int KINDS = 10;
    private static final long PAUSE_MILLIS = 5;
    private static final int MAX_TRIES = 200;
    private static final Map<String, Integer> TABLES =
        Map.of("topics.json", 21, "consumerOffset.json", 43, "delayOffset.json", 45, "subscriptionGroup.json", 201);

    private final String nameServer;
    private final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private final DefaultMQProducer producer = new DefaultMQProducer("interop-producer");
    private final TransactionMQProducer transactions = new TransactionMQProducer("interop-transactions");
    private final DefaultMQAdminExt admin = new DefaultMQAdminExt();
    private final Map<String, Integer> statuses = new TreeMap<>();
    private final List<Thread> workers = new ArrayList<>();
    private final AtomicLong number = new AtomicLong();
    private volatile boolean loading;

    private Client(String nameServer) throws Exception {
        this.nameServer = nameServer;
        for (DefaultMQProducer p : List.of(producer, transactions)) {
            p.setNamesrvAddr(nameServer);
            p.setSendMsgTimeout(15_000);
            p.setCompressMsgBodyOverHowmuch(10_000);
        }
        transactions.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message m, Object decision) {
                return (LocalTransactionState) decision;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt m) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        admin.setNamesrvAddr(nameServer);
        producer.start();
        transactions.start();
        admin.start();
    }

    public static void main(String[] args) throws Exception {
        Client client = new Client(args[0]);
        client.out.println("> ok");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                client.out.println("> ok " + client.run(line.split(" ")));
            } catch (Exception e) {
                client.out.println("> error " + e.toString().replace('\n', ' '));
            }
        }
        System.exit(0);
    }

    private String run(String[] word) throws Exception {
        switch (word[0]) {
            case "load":
                load(Integer.parseInt(word[1]));
                return "";
            case "halt":
                loading = false;
                for (Thread t : workers) {
                    t.join();
                }
                workers.clear();
                return takeStatuses();
            case "send":
                for (int i = Integer.parseInt(word[1]); i > 0; i--) {
                    put(0, number.incrementAndGet());
                }
                return takeStatuses();
            case "late":
                for (int i = Integer.parseInt(word[1]); i > 0; i--) {
                    Message late = new Message("Plain", random(30, 50));
                    late.setDelayTimeLevel(Integer.parseInt(word[2]));
                    count(producer.send(late).getSendStatus().name());
                }
                return takeStatuses();
            case "config":
                Properties change = new Properties();
                change.setProperty(word[2], word[3]);
                admin.updateBrokerConfig(word[1], change);
                return "";
            case "topic":
                int queues = Integer.parseInt(word[3]);
                admin.createAndUpdateTopicConfig(word[1], new TopicConfig(word[2], queues, queues, 6));
                awaitRoute(word[2]);
                return "";
            case "route":
                awaitRoute(word[1]);
                return admin.examineTopicRouteInfo(word[1]).getBrokerDatas().get(0).getBrokerAddrs().get(0L);
            case "tables":
                tables(word[1], Path.of(word[2]));
                return "";
            case "receive":
                return receive(Integer.parseInt(word[1]), List.of(word).subList(2, word.length)) + " messages";
            default:
                throw new IllegalArgumentException(word[0]);
        }
    }

    private void load(int threads) throws Exception {
        for (int kind = 0; kind < KINDS; kind++) {
            sendFirst(kind);
        }
        loading = true;
        for (int i = 0; i < threads; i++) {
            Thread t = new Thread(() -> {
                while (loading) {
                    long n = number.incrementAndGet();
                    put((int) (n % KINDS), n);
                    pause();
                }
            });
            workers.add(t);
            t.start();
        }
    }

    /** Sends a kind's first message, again while the name server knows no broker for its topic. */
    private void sendFirst(int kind) throws Exception {
        for (int tries = 1; ; tries++) {
            try {
                send(kind, number.incrementAndGet());
                return;
            } catch (MQClientException e) {
                if (tries == MAX_TRIES) {
                    throw e;
                }
                Thread.sleep(100);
            }
        }
    }

    private static void pause() {
        try {
            Thread.sleep(PAUSE_MILLIS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void put(int kind, long n) {
        String status;
        try {
            status = send(kind, n).getSendStatus().name();
        } catch (Exception e) {
            System.err.println("send " + n + ": " + e);
            status = "FAILED";
        }
        count(status);
    }

    private void count(String status) {
        synchronized (statuses) {
            statuses.merge(status, 1, Integer::sum);
        }
    }

    private SendResult send(int kind, long n) throws Exception {
        String key = "n" + n;
        switch (kind) {
            case 0:
                return producer.send(new Message("Plain", random(1, 400)));
            case 1:
                return producer.send(new Message("Plain", "tag" + n % 4, random(50, 60)));
            case 2:
                return producer.send(new Message("Keyed", "k", key + " half" + n / 2, random(100, 200)));
            case 3:
                return producer.send(new Message("Ordered", random(20, 40)), (queues, m, by) -> queues.get((int) (n / 10 % queues.size())), null);
            case 4:
                List<Message> batch = new ArrayList<>();
                for (int i = 0; i <= n / 10 % 5; i++) {
                    batch.add(new Message("Batched", "b" + i, key + "." + i, random(1, 300)));
                }
                return producer.send(batch);
            case 5:
                Message late = new Message("Late", "l", key, random(30, 50));
                late.setDelayTimeLevel(1);
                return producer.send(late);
            case 6:
                return producer.send(new Message("Plain", "big", random(6_000, 9_000)));
            case 7:
                Message foreign = new Message("Foreign", "метка", "clé-" + n, "本文 \u0000 текст".getBytes(StandardCharsets.UTF_8));
                foreign.putUserProperty("имя значения", "a=\"b\";\\ ½");
                return producer.send(foreign);
            case 8:
                return producer.send(new Message("Squeezed", "s", "the same words again. ".repeat(1_000).getBytes(StandardCharsets.UTF_8)));
            default:
                LocalTransactionState decision = n / 10 % 2 == 0 ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
                return transactions.sendMessageInTransaction(new Message("Decided", "d", key, random(40, 50)), decision);
        }
    }

    private static byte[] random(int from, int to) {
        byte[] b = new byte[ThreadLocalRandom.current().nextInt(from, to)];
        ThreadLocalRandom.current().nextBytes(b);
        return b;
    }

    private String takeStatuses() {
        synchronized (statuses) {
            StringBuilder s = new StringBuilder();
            statuses.forEach((status, count) -> s.append(s.length() == 0 ? "" : " ").append(status).append('=').append(count));
            statuses.clear();
            return s.toString();
        }
    }

    private void awaitRoute(String topic) throws Exception {
        for (int tries = 1; ; tries++) {
            try {
                admin.examineTopicRouteInfo(topic);
                return;
            } catch (MQClientException e) {
                if (tries == MAX_TRIES) {
                    throw e;
                }
                Thread.sleep(100);
            }
        }
    }

    private static void tables(String address, Path folder) throws Exception {
        NettyRemotingClient remoting = new NettyRemotingClient(new NettyClientConfig());
        remoting.start();
        try {
            for (Map.Entry<String, Integer> table : TABLES.entrySet()) {
                RemotingCommand answer = remoting.invokeSync(address, RemotingCommand.createRequestCommand(table.getValue(), null), 10_000);
                if (answer.getCode() != 0) {
                    throw new IllegalStateException("code " + table.getValue() + " is answered " + answer.getCode() + ": " + answer.getRemark());
                }
                Files.write(folder.resolve(table.getKey()), answer.getBody());
            }
        } finally {
            remoting.shutdown();
        }
    }

    private int receive(int count, List<String> topics) throws Exception {
        CountDownLatch missing = new CountDownLatch(count);
        AtomicLong got = new AtomicLong();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("interop-consumer");
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        for (String topic : topics) {
            consumer.subscribe(topic, "*");
        }
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt m : messages) {
                out.println("> " + String.join("\t", Long.toString(m.getCommitLogOffset()), m.getTopic(),
                    Integer.toString(m.getQueueId()), Long.toString(m.getQueueOffset()), orEmpty(m.getTags()), orEmpty(m.getKeys()), sha1(m.getBody())));
                got.incrementAndGet();
                missing.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean all = missing.await(1, TimeUnit.MINUTES);
        consumer.shutdown();
        if (!all) {
            throw new IllegalStateException(got.get() + " of " + count + " messages came within a minute");
        }
        return (int) got.get();
    }

    private static String orEmpty(String s) {
        return s == null ? "" : s;
    }

    private static String sha1(byte[] b) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-1").digest(b));
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }
}
