// Sockets of stock libudt: opened by the options of the command line, watched and closed.

#ifndef FARHAUL_INTEROP_SOCKETS_HPP
#define FARHAUL_INTEROP_SOCKETS_HPP

#include "options.hpp"

#include <chrono>
#include <cstring>
#include <netdb.h>
#include <thread>
#include <udt/udt.h>

inline std::string reason(const std::string& call) {
    return call + ": " + UDT::getlasterror_desc() + " (" +
           std::to_string(UDT::getlasterror_code()) + ")";
}

[[noreturn]] inline void fail_udt(const std::string& call) { fail(reason(call)); }

inline void sleep_ms(int64_t ms) {
    if (ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

// The connection is over for the reader: shut down or broken (2001), its socket in the process of
// removal (2002) or removed (5004).
inline bool peer_is_gone() {
    const int code = UDT::getlasterror_code();
    return code == 2001 || code == 2002 || code == 5004;
}

struct Address {
    sockaddr_storage storage;
    socklen_t length;
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

inline Address resolve(const std::string& host, const std::string& port) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    hints.ai_socktype = SOCK_DGRAM;
    const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
    if (error != 0) fail(host + " port " + port + ": " + gai_strerror(error));
    Address address{};
    memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
    address.length = found->ai_addrlen;
    freeaddrinfo(found);
    return address;
}

inline std::string local_host(const Options& options) {
    return options.text("--bind", options.has("--v6") ? "::1" : "127.0.0.1");
}

inline void set_int(UDTSOCKET u, const Options& options, const char* name, UDT::SOCKOPT option) {
    if (!options.has(name)) return;
    const int value = static_cast<int>(options.number(name, 0));
    if (UDT::setsockopt(u, 0, option, &value, sizeof value) == UDT::ERROR) fail_udt(name);
}

inline UDTSOCKET open_socket(const Options& options, int family, int type) {
    const UDTSOCKET u = UDT::socket(family, type, 0);
    if (u == UDT::INVALID_SOCK) fail_udt("socket");
    // MSS before the buffers, which are kept in packets; FC before RCVBUF, which it limits.
    set_int(u, options, "--mss", UDT_MSS);
    set_int(u, options, "--fc", UDT_FC);
    set_int(u, options, "--sndbuf", UDT_SNDBUF);
    set_int(u, options, "--rcvbuf", UDT_RCVBUF);
    set_int(u, options, "--udp-sndbuf", UDP_SNDBUF);
    set_int(u, options, "--udp-rcvbuf", UDP_RCVBUF);
    if (options.has("--maxbw")) {
        const int64_t rate = options.number("--maxbw", 0);
        if (UDT::setsockopt(u, 0, UDT_MAXBW, &rate, sizeof rate) == UDT::ERROR) fail_udt("--maxbw");
    }
    return u;
}

inline void bind_socket(UDTSOCKET u, const Options& options, const Address& local) {
    if (UDT::bind(u, local.get(), local.length) == UDT::ERROR) fail_udt("bind");
    if (!options.has("--print-port")) return;
    sockaddr_storage name{};
    int length = sizeof name;
    if (UDT::getsockname(u, reinterpret_cast<sockaddr*>(&name), &length) == UDT::ERROR)
        fail_udt("getsockname");
    const in_port_t port = name.ss_family == AF_INET6
                               ? reinterpret_cast<sockaddr_in6*>(&name)->sin6_port
                               : reinterpret_cast<sockaddr_in*>(&name)->sin_port;
    printf("port %d\n", ntohs(port));
}

inline UDTSOCKET accept_one(const Options& options, const std::string& port, int type) {
    const Address local = resolve(local_host(options), port);
    const UDTSOCKET listener = open_socket(options, local.storage.ss_family, type);
    bind_socket(listener, options, local);
    if (UDT::listen(listener, 8) == UDT::ERROR) fail_udt("listen");
    const UDTSOCKET u = UDT::accept(listener, nullptr, nullptr);
    if (u == UDT::INVALID_SOCK) fail_udt("accept");
    puts("connected");
    return u;
}

inline UDTSOCKET connect_to(const Options& options, const std::string& host,
                            const std::string& port, int type, const std::string* local_port) {
    const Address remote = resolve(host, port);
    const UDTSOCKET u = open_socket(options, remote.storage.ss_family, type);
    if (local_port != nullptr) {
        const bool on = true;
        if (UDT::setsockopt(u, 0, UDT_RENDEZVOUS, &on, sizeof on) == UDT::ERROR)
            fail_udt("rendezvous");
        bind_socket(u, options, resolve(local_host(options), *local_port));
    } else if (options.has("--bind") || options.has("--print-port")) {
        bind_socket(u, options, resolve(local_host(options), "0"));
    }
    if (UDT::connect(u, remote.get(), remote.length) == UDT::ERROR) fail_udt("connect");
    puts("connected");
    return u;
}

// Waits until the peer has acknowledged everything. False if the connection ended before.
inline bool wait_acknowledged(UDTSOCKET u) {
    for (;;) {
        int32_t packets = 0;
        int length = sizeof packets;
        if (UDT::getsockopt(u, 0, UDT_SNDDATA, &packets, &length) == UDT::ERROR) return false;
        // Less than none: after it has given up a message the library skips sequence numbers, and
        // counts them too when they are acknowledged.
        if (packets <= 0) return true;
        sleep_ms(1);
    }
}

inline void print_stats(UDTSOCKET u, const Options& options) {
    UDT::TRACEINFO t;
    if (!options.has("--stats")) return;
    if (UDT::perfmon(u, &t) == UDT::ERROR) {
        // A connection that the peer has closed has no counters any more.
        puts("stats none");
        return;
    }
    printf("stats pkt_sent %lld pkt_recv %lld snd_loss %d rcv_loss %d retrans %d ack_sent %d "
           "ack_recv %d nak_sent %d nak_recv %d rtt_us %.0f\n",
           static_cast<long long>(t.pktSentTotal), static_cast<long long>(t.pktRecvTotal),
           t.pktSndLossTotal, t.pktRcvLossTotal, t.pktRetransTotal, t.pktSentACKTotal,
           t.pktRecvACKTotal, t.pktSentNAKTotal, t.pktRecvNAKTotal, t.msRTT * 1000);
}

inline void close_socket(UDTSOCKET u, bool by_peer) {
    UDT::close(u);
    printf("closed %s\n", by_peer ? "peer" : "local");
}

#endif
