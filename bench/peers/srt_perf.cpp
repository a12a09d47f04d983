// Stock libsrt from memory to memory, one flow in file mode, in which its congestion control is UDT's.
//
//   --mtu N              SRTO_MSS (default 1500)
//   --buffer BYTES       SRTO_SNDBUF and SRTO_RCVBUF; SRTO_FC is raised to what the buffer holds
//   --udp-buffer BYTES   SRTO_UDP_SNDBUF and SRTO_UDP_RCVBUF; the kernel's limit applies silently
// Defaults: those of udt_perf, see bench/README.md.

#include "common.h"

#include <getopt.h>
#include <srt/srt.h>

struct Tuning {
    int buffer = 64 << 20;
    int udp_buffer = 32 << 20;
};

static const int BLOCK = 1 << 20;

[[noreturn]] static void die_srt(const char* what) {
    fprintf(stderr, "%s: %s\n", what, srt_getlasterror_str());
    _exit(1);
}

static void set_int(SRTSOCKET u, SRT_SOCKOPT option, int value, const char* what) {
    if (srt_setsockflag(u, option, &value, sizeof value) == SRT_ERROR) die_srt(what);
}

static SRTSOCKET open_socket(const arguments& a, const Tuning& t) {
    const SRTSOCKET u = srt_create_socket();
    if (u == SRT_INVALID_SOCK) die_srt("socket");
    set_int(u, SRTO_TRANSTYPE, SRTT_FILE, "SRTO_TRANSTYPE");
    // In this order: buffers are kept in packets of the MSS, and FC limits the receive buffer.
    set_int(u, SRTO_MSS, a.mtu, "SRTO_MSS");
    const int packets = t.buffer / (a.mtu - IP_UDP_HEADERS);
    set_int(u, SRTO_FC, packets > 25600 ? packets : 25600, "SRTO_FC");
    set_int(u, SRTO_SNDBUF, t.buffer, "SRTO_SNDBUF");
    set_int(u, SRTO_RCVBUF, t.buffer, "SRTO_RCVBUF");
    set_int(u, SRTO_UDP_SNDBUF, t.udp_buffer, "SRTO_UDP_SNDBUF");
    set_int(u, SRTO_UDP_RCVBUF, t.udp_buffer, "SRTO_UDP_RCVBUF");
    const linger none = {0, 0};
    if (srt_setsockflag(u, SRTO_LINGER, &none, sizeof none) == SRT_ERROR) die_srt("SRTO_LINGER");
    return u;
}

static void run_sender(const arguments& a, SRTSOCKET u) {
    if (srt_connect(u, reinterpret_cast<const sockaddr*>(&a.address), a.address_length) == SRT_ERROR)
        die_srt("connect");
    const char* memory = reinterpret_cast<const char*>(make_memory(MEMORY_BYTES));
    size_t position = 0;
    uint64_t bytes = 0;
    const double start = now_s(), end = start + a.seconds;
    while (now_s() < end) {
        if (position + BLOCK > MEMORY_BYTES) position = 0;
        const int n = srt_send(u, memory + position, BLOCK);
        if (n == SRT_ERROR) die_srt("send");
        position += n;
        bytes += n;
    }
    // What a slow path has not taken after as long again is left.
    for (int32_t left = 1; left > 0 && now_s() < end + a.seconds; usleep(1000)) {
        int length = sizeof left;
        if (srt_getsockflag(u, SRTO_SNDDATA, &left, &length) == SRT_ERROR)
            die_srt("the connection broke");
    }
    const double seconds = now_s() - start;
    SRT_TRACEBSTATS trace;
    char extra[128] = "";
    if (srt_bstats(u, &trace, 0) != SRT_ERROR)
        snprintf(extra, sizeof extra, ",\"packets_sent\":%lld,\"retransmitted\":%d",
                 static_cast<long long>(trace.pktSentTotal), trace.pktRetransTotal);
    srt_close(u);
    print_result(&a, bytes, seconds, extra);
}

static void run_receiver(const arguments& a, SRTSOCKET listener) {
    if (srt_bind(listener, reinterpret_cast<const sockaddr*>(&a.address), a.address_length) ==
            SRT_ERROR ||
        srt_listen(listener, 1) == SRT_ERROR)
        die_srt("listen");
    const SRTSOCKET u = srt_accept(listener, nullptr, nullptr);
    if (u == SRT_INVALID_SOCK) die_srt("accept");
    char* memory = reinterpret_cast<char*>(make_memory(MEMORY_BYTES));
    size_t position = 0;
    series arrived = series_begin();
    for (;;) {
        if (position + BLOCK > MEMORY_BYTES) position = 0;
        const int n = srt_recv(u, memory + position, BLOCK);
        // A stream ends with its connection.
        if (n == SRT_ERROR || n == 0) break;
        series_add(&arrived, n);
        position += n;
    }
    print_result(&a, arrived.bytes, arrived.last - arrived.opened, series_json(&arrived));
}

int main(int argc, char** argv) {
    arguments a = take_address(argc, argv);
    Tuning t;
    static const struct option names[] = {{"mtu", 1, nullptr, 'm'},
                                          {"buffer", 1, nullptr, 'b'},
                                          {"udp-buffer", 1, nullptr, 'u'},
                                          {nullptr, 0, nullptr, 0}};
    optind = 4;
    for (int c; (c = getopt_long(argc, argv, "t:", names, nullptr)) != -1;) {
        if (c == 't') a.seconds = take_seconds(optarg);
        else if (c == 'm') a.mtu = static_cast<int>(take_long(optarg, 100));
        else if (c == 'b') t.buffer = static_cast<int>(take_long(optarg, 65536));
        else if (c == 'u') t.udp_buffer = static_cast<int>(take_long(optarg, 65536));
        else usage_error("unknown option");
    }
    srt_startup();
    const SRTSOCKET u = open_socket(a, t);
    if (a.sending) run_sender(a, u);
    else run_receiver(a, u);
    // Not srt_cleanup, which waits for closed sockets to age.
    _exit(0);
}
