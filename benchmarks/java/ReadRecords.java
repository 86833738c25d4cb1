import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;

/**
 * Validates segments as often as it is asked to, in one process, so that the code is compiled and warm: each line of
 * standard input names a segment, an empty one has all those named before it read. The answer is a line with the
 * nanoseconds that this took, the CPU's, and how many records there were.
 */
public final class ReadRecords {
    private static long bytes;

    public static void main(String[] arguments) throws IOException {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        List<File> files = new ArrayList<>();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            if (!line.isEmpty()) {
                files.add(new File(line));
                continue;
            }
            long cpu = system.getProcessCpuTime();
            long started = System.nanoTime();
            long records = 0;
            for (File file : files) {
                records += validate(file);
            }
            long nanoseconds = System.nanoTime() - started;
            System.out.println(nanoseconds + " " + (system.getProcessCpuTime() - cpu) + " " + records);
            files.clear();
        }
        System.err.println(bytes); // so that nothing that was read can be optimized away
    }

    private static long validate(File file) throws IOException {
        long records = 0;
        BufferSupplier buffers = BufferSupplier.create();
        try (FileRecords log = FileRecords.open(file, false)) {
            for (FileChannelRecordBatch batch : log.batches()) {
                batch.ensureValid();
                try (CloseableIterator<Record> iterator = batch.streamingIterator(buffers)) {
                    while (iterator.hasNext()) {
                        Record record = iterator.next();
                        bytes += record.valueSize() + record.timestamp();
                        records++;
                    }
                }
            }
        } finally {
            buffers.close();
        }
        return records;
    }
}
