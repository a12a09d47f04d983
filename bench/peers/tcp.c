// Kernel TCP from memory to memory, one flow, for comparison.
//
//   --mtu N     segments of at most N - 40 bytes, also where the path would carry more
//   --cc NAME   congestion control; the system's default unless given
//   --block N   bytes for each call (default 128 KiB)

#include "common.h"

#include <getopt.h>
#include <netinet/tcp.h>

#define IP_TCP_HEADERS 40

static void set_segments(int fd, int mtu, const char* cc) {
    const int mss = mtu - IP_TCP_HEADERS;
    if (setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &mss, sizeof mss) != 0) die("TCP_MAXSEG");
    if (cc == NULL) return;
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cc, (socklen_t)strlen(cc)) != 0)
        die("TCP_CONGESTION");
}

static void run_sender(const struct arguments* a, int fd, size_t block) {
    if (connect(fd, (const struct sockaddr*)&a->address, a->address_length) != 0) die("connect");
    const unsigned char* memory = make_memory(MEMORY_BYTES);
    size_t position = 0;
    uint64_t bytes = 0;
    const double start = now_s(), end = start + a->seconds;
    while (now_s() < end) {
        if (position + block > MEMORY_BYTES) position = 0;
        const ssize_t n = send(fd, memory + position, block, MSG_NOSIGNAL);
        if (n < 0) die("send");
        position += (size_t)n;
        bytes += (uint64_t)n;
    }
    shutdown(fd, SHUT_WR);
    // The receiver closes when it has read everything.
    char rest;
    while (recv(fd, &rest, 1, 0) > 0) continue;
    print_result(a, bytes, now_s() - start, "");
}

static void run_receiver(const struct arguments* a, int listener, size_t block) {
    const int on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (const struct sockaddr*)&a->address, a->address_length) != 0) die("bind");
    if (listen(listener, 1) != 0) die("listen");
    const int fd = accept(listener, NULL, NULL);
    if (fd < 0) die("accept");
    unsigned char* memory = make_memory(MEMORY_BYTES);
    size_t position = 0;
    uint64_t bytes = 0;
    double first = 0;
    for (;;) {
        if (position + block > MEMORY_BYTES) position = 0;
        const ssize_t n = recv(fd, memory + position, block, 0);
        if (n < 0) die("recv");
        if (n == 0) break;
        if (first == 0) first = now_s();
        position += (size_t)n;
        bytes += (uint64_t)n;
    }
    print_result(a, bytes, now_s() - first, "");
}

int main(int argc, char** argv) {
    struct arguments a = take_address(argc, argv);
    const char* cc = NULL;
    size_t block = 128 << 10;
    static const struct option names[] = {
        {"mtu", 1, 0, 'm'}, {"cc", 1, 0, 'c'}, {"block", 1, 0, 'b'}, {0, 0, 0, 0}};
    optind = 4;
    for (int c; (c = getopt_long(argc, argv, "t:", names, NULL)) != -1;) {
        if (c == 't') a.seconds = take_seconds(optarg);
        else if (c == 'm') a.mtu = (int)take_long(optarg, 128);
        else if (c == 'c') cc = optarg;
        else if (c == 'b') block = (size_t)take_long(optarg, 1);
        else usage_error("unknown option");
    }
    if (block > MEMORY_BYTES) usage_error("--block is at most 4 MiB");
    const int fd = socket(a.address.ss_family, SOCK_STREAM, 0);
    if (fd < 0) die("socket");
    set_segments(fd, a.mtu, cc);
    if (a.sending) run_sender(&a, fd, block);
    else run_receiver(&a, fd, block);
    return 0;
}
