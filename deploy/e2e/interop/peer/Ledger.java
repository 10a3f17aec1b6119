import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.DLedgerServer;
import io.openmessaging.storage.dledger.MemberState;
import io.openmessaging.storage.dledger.entry.DLedgerEntry;
import io.openmessaging.storage.dledger.protocol.AppendEntryRequest;
import io.openmessaging.storage.dledger.protocol.AppendEntryResponse;
import io.openmessaging.storage.dledger.store.file.DLedgerMmapFileStore;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * DLedger itself, on the folders dledger-n0, dledger-n1 and dledger-n2 below one folder.
 *
 *   write FOLDER PEERS COUNT SEED   starts the three as a group, appends COUNT entries and stops it; a third of the way in the
 *                                   leader goes, and at two thirds it comes back
 *   read FOLDER PEERS ID            opens the store of one and reads it from its first entry to its last
 *
 * PEERS is DLedger's (n0-127.0.0.1:1;n1-...). Each entry that was acknowledged, or read, is one line: "> ", then index, term,
 * channel, length and SHA-1 of the body, between tabs. -Ddata and -Dindex are the sizes of the files, bytes.
 */
public class Ledger {
    private static final int SUCCESS = 200;
    private static final int MAX_TRIES = 600;
    private static final long PAUSE_MILLIS = 50;
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    private final String folder;
    private final String peers;
    private final List<DLedgerServer> nodes = new ArrayList<>();

    private Ledger(String folder, String peers) {
        this.folder = folder;
        this.peers = peers;
    }

    public static void main(String[] args) {
        try {
            Ledger ledger = new Ledger(args[1], args[2]);
            if (args[0].equals("write")) {
                ledger.write(Integer.parseInt(args[3]), new Random(Long.parseLong(args[4])));
            } else {
                ledger.read(args[3]);
            }
            System.exit(0);
        } catch (Throwable e) {
            e.printStackTrace();
            System.exit(1);
        }
    }

    private DLedgerConfig config(String id) {
        DLedgerConfig c = new DLedgerConfig();
        c.setGroup("interop");
        c.setSelfId(id);
        c.setPeers(peers);
        c.setStoreBaseDir(folder);
        c.setStoreType(DLedgerConfig.FILE);
        c.setMappedFileSizeForEntryData(Integer.getInteger("data"));
        c.setMappedFileSizeForEntryIndex(Integer.getInteger("index"));
        return c;
    }

    private void start(String id) {
        DLedgerServer s = new DLedgerServer(config(id));
        s.startup();
        nodes.add(s);
    }

    private void write(int count, Random random) throws Exception {
        for (int i = 0; i < 3; i++) {
            start("n" + i);
        }
        String away = null;
        for (int i = 0; i < count; i++) {
            if (i == count / 3) {
                DLedgerServer leader = leader();
                away = leader.getMemberState().getSelfId();
                nodes.remove(leader);
                leader.shutdown();
            }
            if (i == 2 * count / 3) {
                start(away);
            }
            byte[] body = new byte[1 + random.nextInt(1500)];
            random.nextBytes(body);
            append(body);
        }
        awaitEqual();
        for (DLedgerServer s : nodes) {
            s.shutdown();
        }
    }

    private DLedgerServer leader() throws InterruptedException {
        for (int tries = 0; tries < MAX_TRIES; tries++) {
            for (DLedgerServer s : nodes) {
                if (s.getMemberState().isLeader()) {
                    return s;
                }
            }
            Thread.sleep(PAUSE_MILLIS);
        }
        throw new IllegalStateException("no leader");
    }

    private void append(byte[] body) throws Exception {
        for (int tries = 0; tries < MAX_TRIES; tries++) {
            DLedgerServer leader = leader();
            AppendEntryRequest r = new AppendEntryRequest();
            r.setGroup("interop");
            r.setRemoteId(leader.getMemberState().getSelfId());
            r.setBody(body);
            try {
                AppendEntryResponse a = leader.handleAppend(r).get(10, TimeUnit.SECONDS);
                if (a.getCode() == SUCCESS) {
                    print(a.getIndex(), a.getTerm(), 0, body);
                    return;
                }
            } catch (TimeoutException e) {
                // A leader that loses its office on a busy machine never answers some of its appends; as with other refusals, again.
            }
            Thread.sleep(PAUSE_MILLIS);
        }
        throw new IllegalStateException("no append was acknowledged");
    }

    /** Waits until all have the leader's last entry and know it to be committed. */
    private void awaitEqual() throws Exception {
        for (int tries = 0; tries < MAX_TRIES; tries++) {
            long end = leader().getdLedgerStore().getLedgerEndIndex();
            boolean equal = true;
            for (DLedgerServer s : nodes) {
                equal &= s.getdLedgerStore().getLedgerEndIndex() == end && s.getdLedgerStore().getCommittedIndex() == end;
            }
            if (equal) {
                return;
            }
            Thread.sleep(PAUSE_MILLIS);
        }
        throw new IllegalStateException("the followers do not catch up");
    }

    private void read(String id) throws Exception {
        DLedgerConfig c = config(id);
        DLedgerMmapFileStore store = new DLedgerMmapFileStore(c, new MemberState(c));
        store.startup();
        for (long i = Math.max(0, store.getLedgerBeginIndex()); i <= store.getLedgerEndIndex(); i++) {
            DLedgerEntry e = store.get(i);
            if (e.getIndex() != i) {
                throw new IllegalStateException("entry " + e.getIndex() + " at index " + i);
            }
            print(i, e.getTerm(), e.getChannel(), e.getBody());
        }
        store.shutdown();
    }

    private static void print(long index, long term, int channel, byte[] body) throws Exception {
        String sha1 = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-1").digest(body));
        OUT.println("> " + index + "\t" + term + "\t" + channel + "\t" + body.length + "\t" + sha1);
    }
}
