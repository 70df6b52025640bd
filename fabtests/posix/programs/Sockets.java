// SPDX-License-Identifier: BSD-2-Clause
// Sockets as Java's programs use them: IPv6 sockets for every address, selectors (epoll with an eventfd), direct buffers, blocking
// sockets that poll() before each read, the JDK's HTTP server and client. Written for this. Speaks TAP.
import com.sun.net.httpserver.HttpServer;
import java.io.*;
import java.net.*;
import java.net.http.*;
import java.nio.ByteBuffer;
import java.nio.channels.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;

public class Sockets {
    static final int MANY = 150; // exchanges: more than those after which a connection is moved
    static int number;

    interface Body { void run() throws Exception; }

    static void test(String name, Body body) {
        String verdict = "ok";
        try {
            body.run();
        } catch (Throwable wrong) {
            verdict = "not ok";
            wrong.printStackTrace();
        }
        System.out.println(verdict + " " + ++number + " - " + name);
    }

    static void same(Object wanted, Object got) {
        if (!Objects.equals(wanted, got)) throw new AssertionError("wanted " + wanted + ", got " + got);
    }

    static byte[] pattern(int size) {
        byte[] data = new byte[size];
        for (int at = 0; at < size; ++at) data[at] = (byte) (at * 7 + (at >> 8));
        return data;
    }

    static ByteBuffer buffer(int size, boolean direct) { return direct ? ByteBuffer.allocateDirect(size) : ByteBuffer.allocate(size); }

    // An echo server on one selector, until its thread is interrupted.
    static class Echo implements Closeable, Runnable {
        final Selector selector = Selector.open();
        final ServerSocketChannel listener = ServerSocketChannel.open();
        final Thread thread = new Thread(this);
        final boolean direct;

        Echo(String host, boolean direct) throws IOException {
            this.direct = direct;
            listener.bind(new InetSocketAddress(host, 0));
            listener.configureBlocking(false);
            listener.register(selector, SelectionKey.OP_ACCEPT);
            thread.start();
        }

        InetSocketAddress address() throws IOException { return (InetSocketAddress) listener.getLocalAddress(); }

        @Override public void run() {
            try {
                while (!Thread.currentThread().isInterrupted()) {
                    selector.select();
                    for (var keys = selector.selectedKeys().iterator(); keys.hasNext(); keys.remove()) serve(keys.next());
                }
            } catch (IOException wrong) {
                wrong.printStackTrace();
            }
        }

        void serve(SelectionKey key) throws IOException {
            if (key.isAcceptable()) {
                SocketChannel accepted = listener.accept();
                accepted.configureBlocking(false);
                accepted.register(selector, SelectionKey.OP_READ, buffer(65536, direct));
                return;
            }
            SocketChannel channel = (SocketChannel) key.channel();
            ByteBuffer held = (ByteBuffer) key.attachment();
            if (key.isReadable() && channel.read(held) < 0) {
                channel.close();
                return;
            }
            held.flip();
            channel.write(held);
            held.compact();
            key.interestOps((held.position() > 0 ? SelectionKey.OP_WRITE : 0) | (held.hasRemaining() ? SelectionKey.OP_READ : 0));
        }

        @Override public void close() throws IOException {
            thread.interrupt();
            try {
                thread.join();
            } catch (InterruptedException wrong) {
                throw new IOException(wrong);
            }
            for (SelectionKey key : selector.keys()) key.channel().close();
            selector.close();
        }
    }

    static void exchange(SocketChannel channel, int count, boolean direct) throws IOException {
        ByteBuffer there = buffer(2000, direct), back = buffer(2000, direct);
        for (int i = 0; i < count; ++i) {
            there.clear().put(pattern(i % 2000 + 1)).flip();
            back.clear().limit(there.limit());
            while (there.hasRemaining()) channel.write(there);
            while (back.hasRemaining()) if (channel.read(back) < 0) throw new EOFException();
            same(there.rewind(), back.flip());
        }
    }

    static void selectorEcho(String host, boolean direct) throws Exception {
        try (Echo echo = new Echo(host, direct); ExecutorServiceCloser pool = new ExecutorServiceCloser()) {
            List<Future<?>> all = new ArrayList<>();
            for (int i = 0; i < 8; ++i)
                all.add(pool.service.submit(() -> {
                    try (SocketChannel channel = SocketChannel.open(new InetSocketAddress(host, echo.address().getPort()))) {
                        exchange(channel, MANY, direct);
                    }
                    return null;
                }));
            for (Future<?> one : all) one.get(60, TimeUnit.SECONDS);
        }
    }

    static class ExecutorServiceCloser implements AutoCloseable {
        final ExecutorService service = Executors.newCachedThreadPool();
        @Override public void close() { service.shutdownNow(); }
    }

    static void selectorClient() throws Exception { // megabytes each way, by readiness, gathered and scattered
        try (Echo echo = new Echo("127.0.0.1", true); SocketChannel channel = SocketChannel.open(); Selector selector = Selector.open()) {
            channel.configureBlocking(false);
            channel.connect(echo.address());
            SelectionKey key = channel.register(selector, SelectionKey.OP_CONNECT);
            byte[] data = pattern(6_000_000);
            ByteBuffer head = ByteBuffer.wrap(data, 0, 1_000_000), tail = ByteBuffer.wrap(data, 1_000_000, 5_000_000);
            ByteBuffer one = ByteBuffer.allocateDirect(2_500_000), two = ByteBuffer.allocateDirect(3_500_000);
            while (two.hasRemaining()) {
                selector.select(ready -> {
                    try {
                        if (ready.isConnectable() && channel.finishConnect()) key.interestOps(SelectionKey.OP_READ | SelectionKey.OP_WRITE);
                        if (ready.isWritable() && channel.write(new ByteBuffer[] {head, tail}) >= 0 && !tail.hasRemaining()) key.interestOps(SelectionKey.OP_READ);
                        if (ready.isReadable()) channel.read(new ByteBuffer[] {one, two});
                    } catch (IOException wrong) {
                        throw new UncheckedIOException(wrong);
                    }
                });
            }
            same(ByteBuffer.wrap(data, 0, 2_500_000), one.flip());
            same(ByteBuffer.wrap(data, 2_500_000, 3_500_000), two.flip());
        }
    }

    static void blockingSockets(String host) throws Exception {
        try (ServerSocket listener = new ServerSocket(0, 50, InetAddress.getByName(host))) {
            Thread server = new Thread(() -> {
                try (Socket socket = listener.accept()) {
                    socket.setTcpNoDelay(true);
                    socket.getInputStream().transferTo(socket.getOutputStream());
                } catch (IOException wrong) {
                    wrong.printStackTrace();
                }
            });
            server.start();
            try (Socket socket = new Socket(host, listener.getLocalPort())) {
                socket.setSoTimeout(50_000);
                var in = new DataInputStream(socket.getInputStream());
                for (int i = 1; i <= MANY; ++i) {
                    byte[] data = pattern(i * 37);
                    socket.getOutputStream().write(data);
                    same(ByteBuffer.wrap(data), ByteBuffer.wrap(in.readNBytes(data.length)));
                }
                same(InetAddress.getByName(host), socket.getInetAddress());
                socket.shutdownOutput();
                same(-1, in.read());
            }
            server.join();
        }
    }

    static void timeLimits() throws Exception {
        try (ServerSocket listener = new ServerSocket(0, 5, InetAddress.getLoopbackAddress())) {
            listener.setSoTimeout(50);
            try {
                listener.accept();
                throw new AssertionError("accepted");
            } catch (SocketTimeoutException expected) {
            }
            Socket socket = new Socket(listener.getInetAddress(), listener.getLocalPort());
            Socket accepted = listener.accept();
            for (int i = 0; i < MANY; ++i) {
                socket.getOutputStream().write(i);
                same(i & 255, accepted.getInputStream().read());
                accepted.getOutputStream().write(i);
                same(i & 255, socket.getInputStream().read());
            }
            socket.setSoTimeout(50);
            try {
                socket.getInputStream().read();
                throw new AssertionError("read");
            } catch (SocketTimeoutException expected) {
            }
            Thread closer = new Thread(() -> { // closes it while another thread reads: Java dup2()s a socket over it, and signals
                try {
                    Thread.sleep(50);
                    socket.close();
                } catch (Exception wrong) {
                    wrong.printStackTrace();
                }
            });
            socket.setSoTimeout(0);
            closer.start();
            try {
                socket.getInputStream().read();
                throw new AssertionError("read");
            } catch (SocketException expected) {
                same("Socket closed", expected.getMessage());
            }
            closer.join();
            same(-1, accepted.getInputStream().read());
            accepted.close();
        }
    }

    static void closedWhileReading() throws Exception { // the same of channels: by another thread's close, and by an interrupt
        for (boolean interrupt : new boolean[] {false, true}) {
            try (Echo echo = new Echo("127.0.0.1", true)) {
                SocketChannel channel = SocketChannel.open(echo.address());
                exchange(channel, MANY, true);
                var result = new CompletableFuture<String>();
                Thread reader = new Thread(() -> {
                    try {
                        channel.read(ByteBuffer.allocateDirect(10));
                        result.complete("read");
                    } catch (IOException end) {
                        result.complete(end.getClass().getSimpleName());
                    }
                });
                reader.start();
                Thread.sleep(50);
                if (interrupt) reader.interrupt(); else channel.close();
                same(interrupt ? "ClosedByInterruptException" : "AsynchronousCloseException", result.get(20, TimeUnit.SECONDS));
            }
        }
    }

    static void refused() throws Exception {
        ServerSocket gone = new ServerSocket(0);
        int port = gone.getLocalPort();
        gone.close();
        try {
            new Socket("127.0.0.1", port).close();
            throw new AssertionError("connected");
        } catch (ConnectException expected) {
            same("Connection refused", expected.getMessage());
        }
    }

    static void wakeUp() throws Exception {
        try (Selector selector = Selector.open()) {
            same(0, selector.select(20));
            selector.wakeup();
            same(0, selector.select());
            new Thread(selector::wakeup).start();
            same(0, selector.select());
        }
    }

    static void asynchronousChannels() throws Exception {
        var listener = AsynchronousServerSocketChannel.open().bind(new InetSocketAddress("127.0.0.1", 0));
        var accepting = listener.accept();
        var client = AsynchronousSocketChannel.open();
        client.connect(listener.getLocalAddress()).get(20, TimeUnit.SECONDS);
        var server = accepting.get(20, TimeUnit.SECONDS);
        for (int i = 1; i <= MANY; ++i) {
            ByteBuffer got = ByteBuffer.allocateDirect(i * 10);
            Future<Integer> reading = server.read(got);
            same(i * 10, client.write(ByteBuffer.wrap(pattern(i * 10))).get(20, TimeUnit.SECONDS));
            for (reading.get(20, TimeUnit.SECONDS); got.hasRemaining();) server.read(got).get(20, TimeUnit.SECONDS);
            same(ByteBuffer.wrap(pattern(i * 10)), got.flip());
        }
        client.close();
        same(-1, server.read(ByteBuffer.allocate(1)).get(20, TimeUnit.SECONDS));
        server.close();
        listener.close();
    }

    static HttpServer httpServer(ExecutorServiceCloser pool) throws IOException {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        server.setExecutor(pool.service);
        server.createContext("/", exchange -> {
            byte[] body = exchange.getRequestBody().readAllBytes();
            exchange.sendResponseHeaders(200, body.length == 0 ? -1 : body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
        return server;
    }

    static void httpOne() throws Exception {
        try (ExecutorServiceCloser pool = new ExecutorServiceCloser()) {
            HttpServer server = httpServer(pool);
            var client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
            URI there = URI.create("http://127.0.0.1:" + server.getAddress().getPort() + "/x");
            for (int i = 0; i < MANY; ++i) {
                byte[] body = pattern(i * 200);
                var answer = client.send(HttpRequest.newBuilder(there).POST(HttpRequest.BodyPublishers.ofByteArray(body)).build(),
                    HttpResponse.BodyHandlers.ofByteArray());
                same(200, answer.statusCode());
                same(ByteBuffer.wrap(body), ByteBuffer.wrap(answer.body()));
            }
            server.stop(0);
        }
    }

    static void httpMany() throws Exception {
        try (ExecutorServiceCloser pool = new ExecutorServiceCloser()) {
            HttpServer server = httpServer(pool);
            var client = HttpClient.newHttpClient();
            URI there = URI.create("http://127.0.0.1:" + server.getAddress().getPort() + "/x");
            byte[] body = pattern(1_000_000);
            List<CompletableFuture<HttpResponse<byte[]>>> all = new ArrayList<>();
            for (int i = 0; i < 30; ++i)
                all.add(client.sendAsync(HttpRequest.newBuilder(there).POST(HttpRequest.BodyPublishers.ofByteArray(body)).build(),
                    HttpResponse.BodyHandlers.ofByteArray()));
            for (var one : all) same(ByteBuffer.wrap(body), ByteBuffer.wrap(one.get(60, TimeUnit.SECONDS).body()));
            server.stop(0);
        }
    }

    static void datagrams(String host) throws Exception {
        try (DatagramChannel one = DatagramChannel.open().bind(new InetSocketAddress(host, 0));
             DatagramSocket two = new DatagramSocket(new InetSocketAddress(host, 0))) {
            two.setSoTimeout(20_000);
            ByteBuffer got = ByteBuffer.allocateDirect(3000);
            byte[] space = new byte[3000];
            for (int i = 1; i <= MANY; ++i) {
                one.send(ByteBuffer.wrap(pattern(i * 10)), two.getLocalSocketAddress());
                DatagramPacket packet = new DatagramPacket(space, space.length);
                two.receive(packet);
                same(ByteBuffer.wrap(pattern(i * 10)), ByteBuffer.wrap(packet.getData(), 0, packet.getLength()));
                same(one.getLocalAddress(), packet.getSocketAddress());
                two.send(packet);
                same(two.getLocalSocketAddress(), one.receive(got.clear()));
                same(ByteBuffer.wrap(pattern(i * 10)), got.flip());
            }
        }
    }

    static void child() throws Exception { // a process while connections live
        try (Echo echo = new Echo("127.0.0.1", true); SocketChannel channel = SocketChannel.open(echo.address())) {
            exchange(channel, MANY, true);
            for (int i = 0; i < 3; ++i) {
                Process process = new ProcessBuilder("cat").start();
                process.getOutputStream().write("said".getBytes(StandardCharsets.US_ASCII));
                process.getOutputStream().close();
                same("said", new String(process.getInputStream().readAllBytes(), StandardCharsets.US_ASCII));
                same(0, process.waitFor());
                exchange(channel, MANY, true);
            }
        }
    }

    public static void main(String[] arguments) {
        for (String host : new String[] {"127.0.0.1", "::1"}) {
            test("selector, direct buffers, " + host, () -> selectorEcho(host, true));
            test("selector, buffers on the heap, " + host, () -> selectorEcho(host, false));
            test("blocking sockets, " + host, () -> blockingSockets(host));
            test("datagrams, " + host, () -> datagrams(host));
        }
        test("client on a selector", Sockets::selectorClient);
        test("limits of time, close while it is read", Sockets::timeLimits);
        test("channel that is closed while it is read", Sockets::closedWhileReading);
        test("nobody listens", Sockets::refused);
        test("wakeup", Sockets::wakeUp);
        test("asynchronous channels", Sockets::asynchronousChannels);
        test("http, one connection", Sockets::httpOne);
        test("http, many at once", Sockets::httpMany);
        test("a child process", Sockets::child);
        System.out.println("1.." + number);
        System.exit(0);
    }
}
