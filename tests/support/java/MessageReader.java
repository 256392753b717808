import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

/** Reads lines of `name version hex`, decodes the message with Kafka's class, and prints its bytes and its text. */
public class MessageReader {
    public static void main(String[] args) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            short version = Short.parseShort(words[1]);
            var bytes = ByteBuffer.wrap(HexFormat.of().parseHex(words.length > 2 ? words[2] : ""));
            var type = Class.forName("org.apache.kafka.common.message." + words[0] + "Data");
            var message = (Message) type.getDeclaredConstructor().newInstance();
            message.read(new ByteBufferAccessor(bytes), version);
            ByteBuffer written = MessageUtil.toByteBuffer(message, version);
            var copy = new byte[written.remaining()];
            written.get(copy);
            System.out.println(bytes.remaining() + " " + HexFormat.of().formatHex(copy) + " " + message);
        }
    }
}
