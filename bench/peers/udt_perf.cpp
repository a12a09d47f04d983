// Stock libudt 4.11 from memory to memory, one flow.
//
//   --mtu N              UDT_MSS (default 1500)
//   --buffer BYTES       UDT_SNDBUF and UDT_RCVBUF
//   --fc PACKETS         UDT_FC, the flight flag size; raised to what the buffer holds
//   --udp-buffer BYTES   UDP_SNDBUF and UDP_RCVBUF; the kernel's limit applies silently
//   --block BYTES        bytes for each call
//   --stock-defaults     leave every buffer as the library sets it
// Defaults: the best of the settings tried, see bench/README.md.

#include "common.h"

#include <getopt.h>
#include <udt/udt.h>

struct Tuning {
    int buffer = 64 << 20;
    int fc = 25600;
    int udp_buffer = 32 << 20;
    int block = 1 << 20;
    bool stock_defaults = false;
};

[[noreturn]] static void die_udt(const char* what) {
    fprintf(stderr, "%s: %s\n", what, UDT::getlasterror_desc());
    _exit(1);
}

static void set_int(UDTSOCKET u, UDT::SOCKOPT option, int value, const char* what) {
    if (UDT::setsockopt(u, 0, option, &value, sizeof value) == UDT::ERROR) die_udt(what);
}

static UDTSOCKET open_socket(const arguments& a, const Tuning& t) {
    const UDTSOCKET u = UDT::socket(a.address.ss_family, SOCK_STREAM, 0);
    if (u == UDT::INVALID_SOCK) die_udt("socket");
    // In this order: buffers are kept in packets of the MSS, and FC limits the receive buffer.
    set_int(u, UDT_MSS, a.mtu, "UDT_MSS");
    if (t.stock_defaults) return u;
    const int packets = t.buffer / (a.mtu - IP_UDP_HEADERS);
    set_int(u, UDT_FC, t.fc > packets ? t.fc : packets, "UDT_FC");
    set_int(u, UDT_SNDBUF, t.buffer, "UDT_SNDBUF");
    set_int(u, UDT_RCVBUF, t.buffer, "UDT_RCVBUF");
    set_int(u, UDP_SNDBUF, t.udp_buffer, "UDP_SNDBUF");
    set_int(u, UDP_RCVBUF, t.udp_buffer, "UDP_RCVBUF");
    return u;
}

static void run_sender(const arguments& a, const Tuning& t, UDTSOCKET u) {
    if (UDT::connect(u, reinterpret_cast<const sockaddr*>(&a.address), a.address_length) ==
        UDT::ERROR)
        die_udt("connect");
    const char* memory = reinterpret_cast<const char*>(make_memory(MEMORY_BYTES));
    size_t position = 0;
    uint64_t bytes = 0;
    const double start = now_s(), end = start + a.seconds;
    while (now_s() < end) {
        if (position + t.block > MEMORY_BYTES) position = 0;
        const int n = UDT::send(u, memory + position, t.block, 0);
        if (n == UDT::ERROR) die_udt("send");
        position += n;
        bytes += n;
    }
    // What a slow path has not taken after as long again is left.
    for (int32_t packets = 1; packets > 0 && now_s() < end + a.seconds; usleep(1000)) {
        int length = sizeof packets;
        if (UDT::getsockopt(u, 0, UDT_SNDDATA, &packets, &length) == UDT::ERROR)
            die_udt("the connection broke");
    }
    const double seconds = now_s() - start;
    UDT::TRACEINFO trace;
    char extra[128] = "";
    if (UDT::perfmon(u, &trace) != UDT::ERROR)
        snprintf(extra, sizeof extra, ",\"packets_sent\":%lld,\"retransmitted\":%d",
                 static_cast<long long>(trace.pktSentTotal), trace.pktRetransTotal);
    const linger none = {0, 0};
    UDT::setsockopt(u, 0, UDT_LINGER, &none, sizeof none);
    UDT::close(u);
    print_result(&a, bytes, seconds, extra);
}

static void run_receiver(const arguments& a, const Tuning& t, UDTSOCKET listener) {
    if (UDT::bind(listener, reinterpret_cast<const sockaddr*>(&a.address), a.address_length) ==
            UDT::ERROR ||
        UDT::listen(listener, 1) == UDT::ERROR)
        die_udt("listen");
    const UDTSOCKET u = UDT::accept(listener, nullptr, nullptr);
    if (u == UDT::INVALID_SOCK) die_udt("accept");
    char* memory = reinterpret_cast<char*>(make_memory(MEMORY_BYTES));
    size_t position = 0;
    series arrived = series_begin();
    for (;;) {
        if (position + t.block > MEMORY_BYTES) position = 0;
        const int n = UDT::recv(u, memory + position, t.block, 0);
        // The only end a stream of this library has.
        if (n == UDT::ERROR) break;
        series_add(&arrived, n);
        position += n;
    }
    print_result(&a, arrived.bytes, arrived.last - arrived.opened, series_json(&arrived));
}

int main(int argc, char** argv) {
    arguments a = take_address(argc, argv);
    Tuning t;
    static const struct option names[] = {
        {"mtu", 1, nullptr, 'm'},        {"buffer", 1, nullptr, 'b'},
        {"fc", 1, nullptr, 'f'},         {"udp-buffer", 1, nullptr, 'u'},
        {"block", 1, nullptr, 'k'},      {"stock-defaults", 0, nullptr, 'd'},
        {nullptr, 0, nullptr, 0}};
    optind = 4;
    for (int c; (c = getopt_long(argc, argv, "t:", names, nullptr)) != -1;) {
        if (c == 't') a.seconds = take_seconds(optarg);
        else if (c == 'm') a.mtu = static_cast<int>(take_long(optarg, 100));
        else if (c == 'b') t.buffer = static_cast<int>(take_long(optarg, 65536));
        else if (c == 'f') t.fc = static_cast<int>(take_long(optarg, 1));
        else if (c == 'u') t.udp_buffer = static_cast<int>(take_long(optarg, 65536));
        else if (c == 'k') t.block = static_cast<int>(take_long(optarg, 1));
        else if (c == 'd') t.stock_defaults = true;
        else usage_error("unknown option");
    }
    if (t.block > MEMORY_BYTES) usage_error("--block is at most 4 MiB");
    UDT::startup();
    const UDTSOCKET u = open_socket(a, t);
    if (a.sending) run_sender(a, t, u);
    else run_receiver(a, t, u);
    // Not UDT::cleanup, which waits seconds for closed sockets to age.
    _exit(0);
}
