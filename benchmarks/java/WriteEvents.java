import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends what it reads from standard input to partition 0 of a topic, which is named first; settings of the producer
 * follow. Each record is its timestamp, its key and its value, and the number of its headers, each with name and
 * value. A size of four bytes comes before each field, -1 for null.
 */
public final class WriteEvents {
    public static void main(String[] arguments) throws IOException {
        Properties settings = new Properties();
        for (int at = 1; at < arguments.length; at++) {
            String[] parts = arguments[at].split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        DataInputStream input = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        ByteArraySerializer asItIs = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, asItIs, asItIs)) {
            for (ProducerRecord<byte[], byte[]> record = next(input, arguments[0]); record != null;
                    record = next(input, arguments[0])) {
                producer.send(record, (sent, error) -> {
                    if (error != null) {
                        error.printStackTrace();
                        Runtime.getRuntime().halt(1);
                    }
                });
            }
        }
    }

    private static ProducerRecord<byte[], byte[]> next(DataInputStream input, String topic) throws IOException {
        long timestamp;
        try {
            timestamp = input.readLong();
        } catch (EOFException end) {
            return null;
        }
        byte[] key = field(input);
        byte[] value = field(input);
        List<Header> headers = new ArrayList<>();
        for (int left = input.readInt(); left > 0; left--) {
            String name = new String(field(input), StandardCharsets.UTF_8);
            headers.add(new RecordHeader(name, field(input)));
        }
        return new ProducerRecord<>(topic, 0, timestamp, key, value, headers);
    }

    private static byte[] field(DataInputStream input) throws IOException {
        int size = input.readInt();
        return size < 0 ? null : input.readNBytes(size);
    }
}
