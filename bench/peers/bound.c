// The upper bound for a reliable transport over UDP on this machine: what a transport cannot avoid
// and nothing else. Payload is copied from memory behind 16-byte headers into one large send with
// segmentation offload, received with receive offload and copied out to memory; one
// acknowledgement a quarter megabyte keeps the window. There is no pacing, no retransmission, no
// congestion control. A lost datagram is counted, not repaired.
//
//   --mtu N        datagrams of N - 28 bytes (default 1500)
//   --window N     most bytes of payload unacknowledged (default 1 MiB)
//   --ack N        bytes of payload for each acknowledgement (default 256 KiB)
//   --no-gso       send: one sendto for each datagram
//   --no-gro       recv: receive offload off

#include "common.h"

#include <arpa/inet.h>
#include <getopt.h>
#include <netinet/udp.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

#define HEADER 16
#define LARGEST_UDP 65507
#define MOST_SEGMENTS 64
#define SOCKET_BUFFER (8 << 20)

// Kinds of packet, in the second word of the header. The first word is the sequence number, or in
// an acknowledgement the next one expected; third and fourth are filled like a real header.
enum { DATA = 0, PROBE = 1, ACK = 2, FIN = 3, FIN_ACK = 4 };

struct options {
    long window, ack;
    int gso, gro;
};

static void put_header(unsigned char* at, uint32_t sequence, uint32_t kind) {
    const uint32_t words[4] = {htonl(sequence), htonl(kind), htonl(sequence * 7), htonl(0x2f6cbeb4)};
    memcpy(at, words, HEADER);
}

static uint32_t get_word(const unsigned char* at, int index) {
    uint32_t word;
    memcpy(&word, at + 4 * index, 4);
    return ntohl(word);
}

// ---- sender ----------------------------------------------------------------------------------

struct sender {
    int fd;
    uint32_t next, acknowledged;  // sequence numbers
    uint64_t calls;
};

static void send_control(struct sender* s, uint32_t kind) {
    unsigned char packet[HEADER];
    put_header(packet, s->next, kind);
    if (send(s->fd, packet, sizeof packet, 0) < 0) die("send");
}

// Waits for one packet of the receiver and returns its kind; asks again when it stays silent.
static uint32_t wait_for_receiver(struct sender* s, uint32_t ask_with) {
    unsigned char packet[HEADER];
    for (int silences = 0; silences < 50;) {
        const ssize_t n = recv(s->fd, packet, sizeof packet, 0);
        if (n == HEADER) {
            s->acknowledged = get_word(packet, 0);
            return get_word(packet, 1);
        }
        if (n < 0 && errno != EAGAIN && errno != EINTR) die("recv");
        silences++;
        send_control(s, ask_with);
    }
    fprintf(stderr, "the receiver is silent\n");
    exit(1);
}

static void send_batch(struct sender* s, const unsigned char* batch, size_t bytes,
                       uint16_t segment) {
    struct iovec iov = {(void*)batch, bytes};
    char control[CMSG_SPACE(sizeof segment)];
    struct msghdr message = {0};
    message.msg_iov = &iov;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    struct cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_UDP;
    header->cmsg_type = UDP_SEGMENT;
    header->cmsg_len = CMSG_LEN(sizeof segment);
    memcpy(CMSG_DATA(header), &segment, sizeof segment);
    if (sendmsg(s->fd, &message, 0) != (ssize_t)bytes) die("sendmsg");
    s->calls++;
}

static void run_sender(const struct arguments* a, const struct options* o, int fd) {
    const struct timeval timeout = {0, 200000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    if (connect(fd, (const struct sockaddr*)&a->address, a->address_length) != 0) die("connect");

    const size_t segment = (size_t)a->mtu - IP_UDP_HEADERS, payload = segment - HEADER;
    size_t segments = o->gso ? LARGEST_UDP / segment : 1;
    if (segments > MOST_SEGMENTS) segments = MOST_SEGMENTS;
    const uint32_t window = (uint32_t)((size_t)o->window / payload);
    if (window < segments) usage_error("--window holds less than one batch");
    const unsigned char* memory = make_memory(MEMORY_BYTES);
    unsigned char* batch = make_memory(segment * segments);
    size_t position = 0;
    struct sender s = {fd, 0, 0, 0};

    const double start = now_s(), end = start + a->seconds;
    while (now_s() < end) {
        while (s.next + segments - s.acknowledged > window) wait_for_receiver(&s, PROBE);
        for (size_t i = 0; i < segments; i++) {
            unsigned char* at = batch + i * segment;
            put_header(at, s.next++, DATA);
            if (position + payload > MEMORY_BYTES) position = 0;
            memcpy(at + HEADER, memory + position, payload);
            position += payload;
        }
        if (o->gso) {
            send_batch(&s, batch, segment * segments, (uint16_t)segment);
        } else {
            if (send(fd, batch, segment, 0) != (ssize_t)segment) die("send");
            s.calls++;
        }
    }
    send_control(&s, FIN);
    while (wait_for_receiver(&s, FIN) != FIN_ACK) continue;

    char extra[80];
    snprintf(extra, sizeof extra, ",\"segments_per_call\":%zu,\"calls\":%llu", segments,
             (unsigned long long)s.calls);
    print_result(a, (uint64_t)s.next * payload, now_s() - start, extra);
}

// ---- receiver --------------------------------------------------------------------------------

struct receiver {
    int fd;
    unsigned char* memory;
    size_t position;
    uint32_t next;  // sequence number
    uint64_t bytes, unacknowledged, lost;
    int finished;
};

// One datagram: copies its payload out.
static void take_packet(struct receiver* r, const unsigned char* packet, size_t length) {
    if (length < HEADER) return;
    const uint32_t sequence = get_word(packet, 0), kind = get_word(packet, 1);
    if (kind == FIN) r->finished = 1;
    if (kind == PROBE) r->unacknowledged = UINT64_MAX / 2;
    if (sequence != r->next) {
        // Probes and FIN carry the number that follows the last datagram, so they count too.
        const int32_t gap = (int32_t)(sequence - r->next);
        if (gap < 0) return;
        r->lost += (uint64_t)gap;
        r->next = sequence;
    }
    if (kind != DATA) return;
    r->next++;
    const size_t payload = length - HEADER;
    if (r->position + payload > MEMORY_BYTES) r->position = 0;
    memcpy(r->memory + r->position, packet + HEADER, payload);
    r->position += payload;
    r->bytes += payload;
    r->unacknowledged += payload;
}

// The size of the datagrams that the kernel has put together, or the whole length.
static size_t segment_size(struct msghdr* message, size_t length) {
    for (struct cmsghdr* c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        int size = 0;
        if (c->cmsg_level != SOL_UDP || c->cmsg_type != UDP_GRO) continue;
        memcpy(&size, CMSG_DATA(c), sizeof size);
        if (size > 0) return (size_t)size;
    }
    return length;
}

static void run_receiver(const struct arguments* a, const struct options* o, int fd) {
    const struct timeval patience = {30, 0};
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (o->gro && setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof on) != 0) die("UDP_GRO");
    if (bind(fd, (const struct sockaddr*)&a->address, a->address_length) != 0) die("bind");

    unsigned char* buffer = make_memory(65536);
    struct receiver r = {fd, make_memory(MEMORY_BYTES), 0, 0, 0, 0, 0, 0};
    struct sockaddr_storage peer;
    double first = 0, last = 0;
    uint64_t calls = 0;
    while (!r.finished) {
        struct iovec iov = {buffer, 65536};
        char control[CMSG_SPACE(sizeof(int))];
        struct msghdr message = {0};
        message.msg_name = &peer;
        message.msg_namelen = sizeof peer;
        message.msg_iov = &iov;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        const ssize_t n = recvmsg(fd, &message, 0);
        if (n < 0) die("recvmsg");
        calls++;
        const size_t length = (size_t)n, step = segment_size(&message, length);
        if (first == 0) first = now_s();
        for (size_t at = 0; at < length; at += step)
            take_packet(&r, buffer + at, length - at < step ? length - at : step);
        if (r.unacknowledged >= (uint64_t)o->ack || r.finished) {
            unsigned char packet[HEADER];
            put_header(packet, r.next, r.finished ? FIN_ACK : ACK);
            r.unacknowledged = 0;
            last = now_s();
            if (sendto(fd, packet, HEADER, 0, (struct sockaddr*)&peer, message.msg_namelen) < 0)
                die("sendto");
        }
    }
    char extra[96];
    snprintf(extra, sizeof extra, ",\"lost\":%llu,\"calls\":%llu", (unsigned long long)r.lost,
             (unsigned long long)calls);
    print_result(a, r.bytes, last - first, extra);
}

int main(int argc, char** argv) {
    struct arguments a = take_address(argc, argv);
    struct options o = {1 << 20, 256 << 10, 1, 1};
    static const struct option names[] = {{"mtu", 1, 0, 'm'},    {"window", 1, 0, 'w'},
                                          {"ack", 1, 0, 'a'},    {"no-gso", 0, 0, 'S'},
                                          {"no-gro", 0, 0, 'R'}, {0, 0, 0, 0}};
    optind = 4;
    for (int c; (c = getopt_long(argc, argv, "t:", names, NULL)) != -1;) {
        if (c == 't') a.seconds = take_seconds(optarg);
        else if (c == 'm') a.mtu = (int)take_long(optarg, 100);
        else if (c == 'w') o.window = take_long(optarg, 1);
        else if (c == 'a') o.ack = take_long(optarg, 1);
        else if (c == 'S') o.gso = 0;
        else if (c == 'R') o.gro = 0;
        else usage_error("unknown option");
    }
    if (a.mtu > LARGEST_UDP + IP_UDP_HEADERS) usage_error("--mtu is at most 65535");
    const int fd = socket(a.address.ss_family, SOCK_DGRAM, 0);
    if (fd < 0) die("socket");
    set_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF, SOCKET_BUFFER);
    set_buffer(fd, SO_SNDBUFFORCE, SO_SNDBUF, SOCKET_BUFFER);
    if (a.sending) run_sender(&a, &o, fd);
    else run_receiver(&a, &o, fd);
    return 0;
}
