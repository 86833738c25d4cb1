import java.io.File;
import java.nio.file.*;
import java.util.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.image.*;
import org.apache.kafka.image.loader.MetadataBatchLoader;
import org.apache.kafka.image.writer.*;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.raft.*;
import org.apache.kafka.server.common.*;

/** Replays the .log files given into a MetadataImage, and prints the records that this would be written as, in base64. */
public class Image {
    static MetadataImage image = MetadataImage.EMPTY;

    public static void main(String[] args) throws Exception {
        MetadataRecordSerde serde = MetadataRecordSerde.INSTANCE;
        MetadataBatchLoader[] loader = new MetadataBatchLoader[1];
        loader[0] = new MetadataBatchLoader(new LogContext(), Time.SYSTEM,
            (what, error) -> { System.err.println(what + ": " + error); return null; },
            (delta, changed, manifest) -> image = changed, (type, name) -> true);
        loader[0].resetToImage(image);
        for (String path : args)
            for (var batch : FileRecords.open(new File(path), false).batches()) {
                if (batch.isControlBatch()) continue;
                List<ApiMessageAndVersion> records = new ArrayList<>();
                long size = 0;
                for (var record : batch)
                    records.add(serde.read(new ByteBufferAccessor(record.value()), record.valueSize()));
                loader[0].loadBatch(Batch.data(batch.baseOffset(), 1, 0, 100, records), LeaderAndEpoch.UNKNOWN);
                loader[0].maybeFlushBatches(LeaderAndEpoch.UNKNOWN, true);
            }
        List<ApiMessageAndVersion> written = new ArrayList<>();
        RecordListWriter writer = new RecordListWriter();
        image.write(writer, new ImageWriterOptions.Builder(image)
            .setMetadataVersion(MetadataVersion.latestProduction()).setEligibleLeaderReplicasEnabled(true)
            .setLossHandler(loss -> { throw new RuntimeException("" + loss); }).build());
        for (ApiMessageAndVersion record : writer.records()) {
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBufferAccessor to = new ByteBufferAccessor(
                java.nio.ByteBuffer.allocate(serde.recordSize(record, cache)));
            serde.write(record, cache, to);
            System.out.println(Base64.getEncoder().encodeToString(to.buffer().array()));
        }
    }
}
