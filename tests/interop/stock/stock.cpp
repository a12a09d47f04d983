// A stock libudt 4.11 peer for the interoperability tests, driven by arguments.
//
//   stock server PORT MODE              listens, accepts one connection
//   stock client HOST PORT MODE
//   stock rendezvous LOCALPORT HOST PORT MODE
//   stock file-server PORT              one request, as the library's sendfile sample serves it
//   stock file-client HOST PORT REMOTE LOCAL     ... as the recvfile sample asks for it
//   stock hash BYTES SEED               no connection: prints what the bytes of a source hash to
//
// MODE, stream sockets (bytes as in pattern.hpp):
//   sink                 reads until the peer closes
//   source BYTES SEED    sends; closes once everything is acknowledged
//   both BYTES SEED      source and sink at once; waits for the peer to close
// MODE, datagram sockets:
//   msg-send COUNT SIZE[,SIZE...]       message i has the (i mod sizes)-th size
//   msg-recv [COUNT]                    reads until the peer closes, then wants COUNT messages
//
// Options
//   --close-first     sink, both, msg-recv: close at the expected number of bytes or messages
//   --wait-close      source, msg-send: when all is acknowledged, wait for the peer to close
//   --expect BYTES    what sink and both want to receive (both: BYTES unless given)
//   --ttl MS          message lifetime; none unless given
//   --order 0|1       deliver messages in order (default 0)
//   --pause MS        sleep after each receive call or sent message
//   --bind ADDR       local address, default 127.0.0.1, with --v6 ::1 (a client: not bound)
//   --v6, --mss N, --fc PACKETS, --sndbuf, --rcvbuf, --udp-sndbuf, --udp-rcvbuf BYTES,
//   --maxbw BYTES/S   socket options; the library's defaults unless given
//   --print-port      print the local port (PORT 0 lets the system choose)
//   --stats           print the counters of the connection before it is closed
//   --timeout SECS    watchdog, default 120
//
// Standard output, one fact a line:
//   port N | connected | received BYTES SHA256 | sent BYTES SHA256 | acknowledged yes|no
//   message ARRIVAL INDEX LENGTH SHA256 intact|damaged | messages RECEIVED | sent-messages COUNT
//   request NAME | size N | closed local|peer | stats name value ... | hash SHA256
// Exit code: 0 done, 1 failed (reason on standard error), 3 watchdog.

#include "options.hpp"
#include "pattern.hpp"
#include "sha256.hpp"
#include "sockets.hpp"

#include <csignal>
#include <cstring>
#include <thread>
#include <udt/udt.h>

static const size_t CHUNK = 65536;
static const size_t LARGEST_MESSAGE = 16 << 20;
// The name buffer of the sample server.
static const int LONGEST_NAME = 1023;

// ---- streams ---------------------------------------------------------------------------------

struct Received {
    int64_t bytes = 0;
    std::string sha256;
    bool peer_closed = false;
};

// Reads until the peer closes or, if stop_at is not negative, until stop_at bytes are there.
static Received receive_stream(UDTSOCKET u, const Options& options, int64_t stop_at) {
    std::vector<char> buffer(CHUNK);
    const int64_t pause = options.number("--pause", 0);
    Received result;
    Sha256 hash;
    while (stop_at < 0 || result.bytes < stop_at) {
        int64_t want = CHUNK;
        if (stop_at >= 0 && stop_at - result.bytes < want) want = stop_at - result.bytes;
        const int n = UDT::recv(u, buffer.data(), static_cast<int>(want), 0);
        if (n == UDT::ERROR) {
            if (!peer_is_gone()) fail_udt("recv");
            result.peer_closed = true;
            break;
        }
        hash.update(buffer.data(), n);
        result.bytes += n;
        sleep_ms(pause);
    }
    result.sha256 = hash.hex();
    return result;
}

static std::string hash_stream(int64_t bytes, uint64_t seed) {
    std::vector<unsigned char> buffer(CHUNK);
    PatternStream pattern(seed);
    Sha256 hash;
    for (int64_t left = bytes; left > 0;) {
        const size_t n = static_cast<size_t>(left < int64_t(CHUNK) ? left : int64_t(CHUNK));
        pattern.fill(buffer.data(), n);
        hash.update(buffer.data(), n);
        left -= static_cast<int64_t>(n);
    }
    return hash.hex();
}

static std::string send_stream(UDTSOCKET u, int64_t bytes, uint64_t seed) {
    std::vector<unsigned char> buffer(CHUNK);
    PatternStream pattern(seed);
    Sha256 hash;
    for (int64_t left = bytes; left > 0;) {
        const int n = static_cast<int>(left < int64_t(CHUNK) ? left : int64_t(CHUNK));
        pattern.fill(buffer.data(), n);
        hash.update(buffer.data(), n);
        for (int done = 0; done < n;) {
            const char* at = reinterpret_cast<const char*>(buffer.data()) + done;
            const int sent = UDT::send(u, at, n - done, 0);
            if (sent == UDT::ERROR) fail_udt("send");
            done += sent;
        }
        left -= n;
    }
    return hash.hex();
}

static void print_received(const Received& r) {
    printf("received %lld %s\n", static_cast<long long>(r.bytes), r.sha256.c_str());
}

static void check_expected(const Received& r, int64_t expected) {
    if (expected >= 0 && r.bytes != expected)
        fail("received " + std::to_string(r.bytes) + " bytes instead of " +
             std::to_string(expected));
}

static void run_sink(UDTSOCKET u, const Options& options) {
    const int64_t expected = options.has("--expect") ? options.number("--expect", 0) : -1;
    const bool close_first = options.has("--close-first");
    if (close_first && expected < 0) fail("sink --close-first needs --expect");
    const Received got = receive_stream(u, options, close_first ? expected : -1);
    print_received(got);
    check_expected(got, expected);
    print_stats(u, options);
    close_socket(u, got.peer_closed);
}

// What source and msg-send do when everything is handed to the library.
static void finish_sender(UDTSOCKET u, const Options& options) {
    const bool acknowledged = wait_acknowledged(u);
    printf("acknowledged %s\n", acknowledged ? "yes" : "no");
    if (!acknowledged) fail("the connection ended before everything was acknowledged");
    print_stats(u, options);
    const bool wait = options.has("--wait-close");
    if (wait) {
        // Polled, because a datagram socket has no recv and a stream may not carry data here.
        while (UDT::getsockstate(u) == CONNECTED) sleep_ms(1);
    }
    close_socket(u, wait);
}

static void run_source(UDTSOCKET u, const Options& options, int64_t bytes, uint64_t seed) {
    const std::string sha256 = send_stream(u, bytes, seed);
    printf("sent %lld %s\n", static_cast<long long>(bytes), sha256.c_str());
    finish_sender(u, options);
}

static void run_both(UDTSOCKET u, const Options& options, int64_t bytes, uint64_t seed) {
    const int64_t expected = options.number("--expect", bytes);
    const bool close_first = options.has("--close-first");
    std::string sent_sha256;
    bool acknowledged = false;
    std::thread sender([&] {
        sent_sha256 = send_stream(u, bytes, seed);
        acknowledged = wait_acknowledged(u);
    });
    const Received got = receive_stream(u, options, close_first ? expected : -1);
    sender.join();

    printf("sent %lld %s\n", static_cast<long long>(bytes), sent_sha256.c_str());
    // A peer that closes as soon as it has everything may overtake its own last acknowledgement.
    printf("acknowledged %s\n", acknowledged ? "yes" : "no");
    print_received(got);
    check_expected(got, expected);
    if (close_first && !acknowledged)
        fail("the connection ended before everything was acknowledged");
    print_stats(u, options);
    close_socket(u, got.peer_closed);
}

// ---- messages --------------------------------------------------------------------------------

static std::vector<size_t> parse_sizes(const std::string& list) {
    std::vector<size_t> sizes;
    for (size_t start = 0; start <= list.size();) {
        const size_t comma = list.find(',', start);
        const size_t end = comma == std::string::npos ? list.size() : comma;
        const int64_t size = Options::number(list.substr(start, end - start), "SIZE");
        if (size < 1 || size > int64_t(LARGEST_MESSAGE)) fail("SIZE is 1 to 16 MiB");
        sizes.push_back(static_cast<size_t>(size));
        start = end + 1;
    }
    return sizes;
}

static void run_message_send(UDTSOCKET u, const Options& options, int64_t count,
                             const std::vector<size_t>& sizes) {
    const int ttl = options.has("--ttl") ? static_cast<int>(options.number("--ttl", 0)) : -1;
    const bool in_order = options.number("--order", 0) != 0;
    const int64_t pause = options.number("--pause", 0);
    for (int64_t i = 0; i < count; i++) {
        const std::vector<unsigned char> message = pattern_message(i, sizes[i % sizes.size()]);
        const char* data = reinterpret_cast<const char*>(message.data());
        const int length = static_cast<int>(message.size());
        if (UDT::sendmsg(u, data, length, ttl, in_order) == UDT::ERROR) fail_udt("sendmsg");
        sleep_ms(pause);
    }
    printf("sent-messages %lld\n", static_cast<long long>(count));
    finish_sender(u, options);
}

// expected < 0: any number.
static void run_message_receive(UDTSOCKET u, const Options& options, int64_t expected) {
    const bool close_first = options.has("--close-first");
    if (close_first && expected < 0) fail("msg-recv --close-first needs COUNT");
    const int64_t pause = options.number("--pause", 0);
    std::vector<unsigned char> buffer(LARGEST_MESSAGE);
    int64_t count = 0;
    bool peer_closed = false, damaged = false;
    while (!close_first || count < expected) {
        const int n = UDT::recvmsg(u, reinterpret_cast<char*>(buffer.data()),
                                   static_cast<int>(buffer.size()));
        if (n == UDT::ERROR) {
            if (!peer_is_gone()) fail_udt("recvmsg");
            // A recvmsg that sleeps until the shutdown fails even if messages came just before;
            // they are there for the next call.
            if (peer_closed) break;
            peer_closed = true;
            continue;
        }
        const uint64_t index = pattern_index(buffer.data(), n);
        const std::vector<unsigned char> wanted = pattern_message(index, n);
        const bool intact = memcmp(wanted.data(), buffer.data(), n) == 0;
        damaged = damaged || !intact;
        Sha256 hash;
        hash.update(buffer.data(), n);
        printf("message %lld %llu %d %s %s\n", static_cast<long long>(count),
               static_cast<unsigned long long>(index), n, hash.hex().c_str(),
               intact ? "intact" : "damaged");
        count++;
        sleep_ms(pause);
    }
    printf("messages %lld\n", static_cast<long long>(count));
    if (damaged) fail("a message is not what its index says");
    if (expected >= 0 && count != expected)
        fail("received " + std::to_string(count) + " messages instead of " +
             std::to_string(expected));
    print_stats(u, options);
    // A message without order can be read before it is acknowledged; the library acknowledges
    // within 100 ms, and a close before that would fail the sender.
    if (!peer_closed) sleep_ms(250);
    close_socket(u, peer_closed);
}

// ---- the sample file programs ------------------------------------------------------------------
//
// Request: int32 length of the name, then the name, in two sends. Answer: int64 size, -1 if there
// is no such file, then the bytes. Integers in native byte order, as the samples send them.

static std::string hash_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) fail("cannot read " + path);
    Sha256 hash;
    std::vector<char> buffer(CHUNK);
    while (file.read(buffer.data(), buffer.size()) || file.gcount() > 0)
        hash.update(buffer.data(), file.gcount());
    return hash.hex();
}

// Exactly n bytes from one recv.
static void recv_whole(UDTSOCKET u, char* to, int n, const char* what) {
    const int got = UDT::recv(u, to, n, 0);
    if (got == UDT::ERROR) fail_udt(std::string("recv of ") + what);
    if (got != n)
        fail(std::string(what) + " comes in pieces: " + std::to_string(got) + " bytes of " +
             std::to_string(n));
}

static void run_file_server(UDTSOCKET u, const Options& options) {
    // One recv each, like the sample: a client that cuts its request differently fails here too.
    int32_t length = 0;
    recv_whole(u, reinterpret_cast<char*>(&length), sizeof length, "the name's length");
    if (length < 1 || length > LONGEST_NAME) fail("length of the name: " + std::to_string(length));
    std::string name(length, '\0');
    recv_whole(u, &name[0], length, "the name");
    printf("request %s\n", name.c_str());

    std::fstream file(name, std::ios::in | std::ios::binary);
    int64_t size = -1;
    if (file) {
        file.seekg(0, std::ios::end);
        size = file.tellg();
        file.seekg(0);
    }
    printf("size %lld\n", static_cast<long long>(size));
    if (UDT::send(u, reinterpret_cast<const char*>(&size), sizeof size, 0) != int(sizeof size))
        fail_udt("send of the size");
    if (size > 0) {
        int64_t offset = 0;
        if (UDT::sendfile(u, file, offset, size) == UDT::ERROR) fail_udt("sendfile");
        printf("sent %lld %s\n", static_cast<long long>(offset), hash_file(name).c_str());
    }
    print_stats(u, options);
    close_socket(u, false);
}

static void run_file_client(UDTSOCKET u, const Options& options, const std::string& remote,
                            const std::string& local) {
    const int32_t length = static_cast<int32_t>(remote.size());
    if (length < 1 || length > LONGEST_NAME) fail("REMOTE is 1 to 1023 bytes");
    if (UDT::send(u, reinterpret_cast<const char*>(&length), sizeof length, 0) == UDT::ERROR)
        fail_udt("send of the name's length");
    if (UDT::send(u, remote.data(), length, 0) == UDT::ERROR) fail_udt("send of the name");

    int64_t size = 0;
    recv_whole(u, reinterpret_cast<char*>(&size), sizeof size, "the size");
    printf("size %lld\n", static_cast<long long>(size));
    if (size < 0) {
        close_socket(u, false);
        fail("the server has no " + remote);
    }
    std::fstream file(local, std::ios::out | std::ios::binary | std::ios::trunc);
    if (!file) fail("cannot write " + local);
    int64_t offset = 0;
    const int64_t got = UDT::recvfile(u, file, offset, size);
    if (got == UDT::ERROR) fail_udt("recvfile");
    file.close();
    printf("received %lld %s\n", static_cast<long long>(got), hash_file(local).c_str());
    if (got != size) fail("the file is cut short");
    print_stats(u, options);
    close_socket(u, false);
}

// ---- command line ------------------------------------------------------------------------------

static void on_watchdog(int) {
    static const char text[] = "stock: watchdog\n";
    const ssize_t ignored = write(2, text, sizeof text - 1);
    (void)ignored;
    _exit(3);
}

struct Mode {
    std::string name;
    int64_t count = -1;
    uint64_t seed = 0;
    std::vector<size_t> sizes;
    int type = SOCK_STREAM;
};

static Mode take_mode(Options& options) {
    Mode mode;
    mode.name = options.take("MODE");
    if (mode.name == "source" || mode.name == "both") {
        mode.count = options.take_number("BYTES");
        mode.seed = static_cast<uint64_t>(options.take_number("SEED"));
    } else if (mode.name == "msg-send") {
        mode.type = SOCK_DGRAM;
        mode.count = options.take_number("COUNT");
        mode.sizes = parse_sizes(options.take("SIZES"));
    } else if (mode.name == "msg-recv") {
        mode.type = SOCK_DGRAM;
        if (!options.exhausted()) mode.count = options.take_number("COUNT");
    } else if (mode.name != "sink") {
        fail("unknown mode " + mode.name);
    }
    if (!options.exhausted()) fail("too many arguments");
    return mode;
}

static void run_mode(UDTSOCKET u, const Options& options, const Mode& mode) {
    if (mode.name == "sink") run_sink(u, options);
    if (mode.name == "source") run_source(u, options, mode.count, mode.seed);
    if (mode.name == "both") run_both(u, options, mode.count, mode.seed);
    if (mode.name == "msg-send") run_message_send(u, options, mode.count, mode.sizes);
    if (mode.name == "msg-recv") run_message_receive(u, options, mode.count);
}

int main(int argc, char** argv) {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    Options options(argc, argv);
    signal(SIGALRM, on_watchdog);
    alarm(static_cast<unsigned>(options.number("--timeout", 120)));
    UDT::startup();

    const std::string role = options.take("ROLE");
    if (role == "server") {
        const std::string port = options.take("PORT");
        const Mode mode = take_mode(options);
        run_mode(accept_one(options, port, mode.type), options, mode);
    } else if (role == "client") {
        const std::string host = options.take("HOST"), port = options.take("PORT");
        const Mode mode = take_mode(options);
        run_mode(connect_to(options, host, port, mode.type, nullptr), options, mode);
    } else if (role == "rendezvous") {
        const std::string local = options.take("LOCALPORT");
        const std::string host = options.take("HOST"), port = options.take("PORT");
        const Mode mode = take_mode(options);
        run_mode(connect_to(options, host, port, mode.type, &local), options, mode);
    } else if (role == "file-server") {
        const std::string port = options.take("PORT");
        run_file_server(accept_one(options, port, SOCK_STREAM), options);
    } else if (role == "file-client") {
        const std::string host = options.take("HOST"), port = options.take("PORT");
        const std::string remote = options.take("REMOTE"), local = options.take("LOCAL");
        run_file_client(connect_to(options, host, port, SOCK_STREAM, nullptr), options, remote,
                        local);
    } else if (role == "hash") {
        const int64_t bytes = options.take_number("BYTES");
        const uint64_t seed = static_cast<uint64_t>(options.take_number("SEED"));
        printf("hash %s\n", hash_stream(bytes, seed).c_str());
    } else {
        fail("unknown role " + role);
    }
    fflush(stdout);
    // Not UDT::cleanup: it waits seconds for closed sockets to age, and nothing is left to send.
    _exit(0);
}
