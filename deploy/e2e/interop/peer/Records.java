import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.List;
import java.util.stream.Stream;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Prints every record of a commitlog folder as RocketMQ's own decoder reads it, one line of tab-separated fields each:
 * offset, topic, queue, queue offset, tag, keys, SHA-1 of the body as it is stored. "> " stands before each line: RocketMQ's
 * own set-up of its logging prints to the same place.
 */
public class Records {
    private static final int FILLER = 0xcbd43194;

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        List<Path> files;
        try (Stream<Path> all = Files.list(Path.of(args[0]))) {
            files = all.filter(p -> p.getFileName().toString().matches("\\d{20}")).sorted().toList();
        }
        for (Path file : files) {
            if (!print(file, out)) {
                break;
            }
        }
        out.flush();
    }

    /** Prints one file; false where the log ends in it. */
    private static boolean print(Path file, PrintStream out) throws Exception {
        long base = Long.parseLong(file.getFileName().toString());
        ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(file));
        for (int at = 0; bytes.capacity() - at >= 8; ) {
            int size = bytes.getInt(at);
            if (size == 0) {
                return false;
            }
            if (bytes.getInt(at + 4) == FILLER) {
                return true;
            }
            MessageExt m = MessageDecoder.decode(bytes.slice(at, size), true, false);
            if (m == null || m.getCommitLogOffset() != base + at) {
                throw new IllegalStateException("no record at offset " + (base + at));
            }
            byte[] body = m.getBody() == null ? new byte[0] : m.getBody();
            out.println("> " + String.join("\t", Long.toString(base + at), m.getTopic(), Integer.toString(m.getQueueId()),
                Long.toString(m.getQueueOffset()), orEmpty(m.getTags()), orEmpty(m.getKeys()), sha1(body)));
            at += size;
        }
        return true;
    }

    private static String orEmpty(String s) {
        return s == null ? "" : s;
    }

    private static String sha1(byte[] b) throws GeneralSecurityException {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-1").digest(b));
    }
}
