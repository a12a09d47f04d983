// What the benchmark peers share: the command line, clocks, socket buffers and the result line.
//
//   PEER recv ADDR PORT [options]
//   PEER send ADDR PORT [-t SECONDS] [options]
//
// Each side prints one JSON object on standard output when it is done. ADDR is numeric.

#ifndef FARHAUL_BENCH_COMMON_H
#define FARHAUL_BENCH_COMMON_H

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define IP_UDP_HEADERS 28
// Memory that payload comes from and goes to. A few megabytes, as an application's own buffer is:
// more than the second-level cache holds.
#define MEMORY_BYTES (4 << 20)

static inline void die(const char* what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static inline void usage_error(const char* what) {
    fprintf(stderr, "%s\n", what);
    exit(2);
}

struct arguments {
    int sending;
    double seconds;
    int mtu;
    struct sockaddr_storage address;
    socklen_t address_length;
};

// Takes the positional words at argv[1..3]; options follow them.
static inline struct arguments take_address(int argc, char** argv) {
    struct arguments a;
    memset(&a, 0, sizeof a);
    a.seconds = 5;
    a.mtu = 1500;
    if (argc < 4) usage_error("usage: PEER send|recv ADDR PORT [options]");
    a.sending = strcmp(argv[1], "send") == 0;
    if (!a.sending && strcmp(argv[1], "recv") != 0) usage_error("the first word is send or recv");
    struct addrinfo hints, *found = NULL;
    memset(&hints, 0, sizeof hints);
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    hints.ai_socktype = SOCK_DGRAM;
    if (getaddrinfo(argv[2], argv[3], &hints, &found) != 0) usage_error("ADDR or PORT is wrong");
    memcpy(&a.address, found->ai_addr, found->ai_addrlen);
    a.address_length = found->ai_addrlen;
    freeaddrinfo(found);
    return a;
}

// A number of at least `least`; the program ends if it is anything else.
static inline long take_long(const char* text, long least) {
    char* end = NULL;
    const long value = strtol(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value < least) usage_error("an option's value is wrong");
    return value;
}

static inline double take_seconds(const char* text) {
    char* end = NULL;
    const double value = strtod(text, &end);
    if (*text == '\0' || *end != '\0' || !(value > 0)) usage_error("-t takes seconds");
    return value;
}

static inline double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// Asks for a kernel buffer, past the system's limit if the process may.
static inline void set_buffer(int fd, int forced, int plain, int bytes) {
    if (setsockopt(fd, SOL_SOCKET, forced, &bytes, sizeof bytes) == 0) return;
    if (setsockopt(fd, SOL_SOCKET, plain, &bytes, sizeof bytes) != 0) die("socket buffer");
}

// Memory with content, so that no page is the shared zero page.
static inline unsigned char* make_memory(size_t bytes) {
    unsigned char* memory = (unsigned char*)malloc(bytes);
    if (memory == NULL) die("malloc");
    for (size_t i = 0; i < bytes; i++) memory[i] = (unsigned char)(i * 31 + (i >> 8));
    return memory;
}

#define INTERVAL_S 0.1

// What has arrived in each tenth of a second since the connection stood.
struct series {
    double opened, last;
    uint64_t bytes, in_interval;
    double* rates;
    size_t count, room;
};

static inline struct series series_begin(void) {
    struct series s;
    memset(&s, 0, sizeof s);
    s.opened = s.last = now_s();
    return s;
}

static inline void series_add(struct series* s, uint64_t bytes) {
    s->last = now_s();
    while (s->last - s->opened >= (double)(s->count + 1) * INTERVAL_S) {
        if (s->count == s->room) {
            s->room = s->room == 0 ? 256 : 2 * s->room;
            s->rates = (double*)realloc(s->rates, s->room * sizeof *s->rates);
            if (s->rates == NULL) die("realloc");
        }
        s->rates[s->count++] = (double)s->in_interval * 8 / INTERVAL_S;
        s->in_interval = 0;
    }
    s->bytes += bytes;
    s->in_interval += bytes;
}

// As JSON members with a leading comma, for `print_result`. The last, unfinished interval is left out.
static inline char* series_json(const struct series* s) {
    const size_t each = 64;
    char* text = (char*)malloc(32 + s->count * each);
    if (text == NULL) die("malloc");
    char* end = text + sprintf(text, ",\"intervals\":[");
    for (size_t i = 0; i < s->count; i++)
        end += snprintf(end, each, "%s{\"end\":%.1f,\"bits_per_second\":%.0f}", i ? "," : "",
                        (double)(i + 1) * INTERVAL_S, s->rates[i]);
    sprintf(end, "]");
    return text;
}

// The result line. `extra` is JSON members with a leading comma, or "".
static inline void print_result(const struct arguments* a, uint64_t bytes, double seconds,
                                const char* extra) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    printf("{\"role\":\"%s\",\"bytes\":%llu,\"seconds\":%.6f,\"bits_per_second\":%.0f,"
           "\"cpu\":{\"user_s\":%.6f,\"system_s\":%.6f}%s}\n",
           a->sending ? "send" : "recv", (unsigned long long)bytes, seconds,
           seconds > 0 ? (double)bytes * 8 / seconds : 0,
           (double)r.ru_utime.tv_sec + (double)r.ru_utime.tv_usec * 1e-6,
           (double)r.ru_stime.tv_sec + (double)r.ru_stime.tv_usec * 1e-6, extra);
    fflush(stdout);
}

#endif
