#!/usr/bin/env python3
"""Runs the stock peer against itself over loopback, in every mode.

usage: check.py PATH_TO_STOCK

The bytes expected are computed here a second time from their description in pattern.hpp, so the
check covers the generator and the hash as well as the transfers.
"""

import hashlib
import os
import socket
import struct
import subprocess
import sys
import tempfile

WORD = (1 << 64) - 1


def stream(seed, length):
    out, state = [], seed
    for _ in range((length + 7) // 8):
        state = (state + 0x9E3779B97F4A7C15) & WORD
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
        out.append(struct.pack("<Q", z ^ (z >> 31)))
    return b"".join(out)[:length]


def message(index, length):
    return (struct.pack("<Q", index) + stream(index, max(0, length - 8)))[:length]


def sha(data):
    return hashlib.sha256(data).hexdigest()


def free_udp_port(family=socket.AF_INET, host="127.0.0.1"):
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.bind((host, 0))
        return str(s.getsockname()[1])


class Peer:
    """One running stock process; `lines` are its output without the `port` line."""

    def __init__(self, stock, *args, cwd=None):
        command = [stock, *map(str, args), "--timeout", "60"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd
        )

    def port(self):
        word, number = self.process.stdout.readline().split()
        assert word == "port"
        return number

    def finish(self):
        out, err = self.process.communicate()
        self.lines = out.splitlines()
        self.code = self.process.returncode
        self.error = err.strip()
        return self


class Check:
    def __init__(self, stock):
        self.stock = stock
        self.failures = 0

    def expect(self, name, condition, *peers):
        print("ok  " if condition else "FAIL", name, flush=True)
        if not condition:
            self.failures += 1
            for peer in peers:
                print("     exit", peer.code, peer.error, peer.lines[-6:])

    def pair(self, server_mode, client_mode, *options, host="127.0.0.1"):
        server = Peer(self.stock, "server", 0, *server_mode, *options, "--print-port")
        client = Peer(self.stock, "client", host, server.port(), *client_mode, *options)
        return client.finish(), server.finish()

    def rendezvous(self, first_mode, second_mode):
        a, b = free_udp_port(), free_udp_port()
        first = Peer(self.stock, "rendezvous", a, "127.0.0.1", b, *first_mode)
        second = Peer(self.stock, "rendezvous", b, "127.0.0.1", a, *second_mode)
        return first.finish(), second.finish()

    # ---- streams

    def moved(self, name, source, sink, seed, length):
        digest = sha(stream(seed, length))
        good = (
            source.code == 0
            and sink.code == 0
            and f"sent {length} {digest}" in source.lines
            and "acknowledged yes" in source.lines
            and f"received {length} {digest}" in sink.lines
        )
        self.expect(name, good, source, sink)

    def streams(self):
        for length in (0, 1, 1456, 1457, 5_000_003):
            client, server = self.pair(["sink"], ["source", length, 7])
            self.moved(f"client source {length}", client, server, 7, length)
        client, server = self.pair(["source", 3_000_000, 9], ["sink"])
        self.moved("server source", server, client, 9, 3_000_000)
        self.expect("server closed first", "closed peer" in client.lines, client, server)
        client, server = self.pair(
            ["source", 300_000, 9, "--wait-close"], ["sink", "--close-first", "--expect", 300_000]
        )
        self.moved("sink closes first", server, client, 9, 300_000)
        self.expect("closed peer", "closed peer" in server.lines, client, server)
        client, server = self.pair(["sink", "--expect", 5], ["source", 4, 1])
        self.expect("short stream is an error", server.code == 1, client, server)

        small = ["--mss", 600, "--fc", 64, "--rcvbuf", 40_000, "--sndbuf", 30_000]
        client, server = self.pair(["sink"], ["source", 500_000, 3], *small)
        self.moved("small segments and buffers", client, server, 3, 500_000)
        client, server = self.pair(["sink", "--pause", 2], ["source", 2_000_000, 4])
        self.moved("slow reader", client, server, 4, 2_000_000)
        client, server = self.pair(["sink"], ["source", 400_000, 5], "--v6", host="::1")
        self.moved("IPv6", client, server, 5, 400_000)
        client, server = self.pair(["sink", "--stats"], ["source", 400_000, 5, "--stats"])
        stats = [line for line in client.lines if line.startswith("stats pkt_sent ")]
        self.expect("stats", len(stats) == 1 and client.code == 0, client, server)

    def both_ways(self):
        for closer in ("client", "server"):
            first = ["both", 1_500_000, 11] + (["--close-first"] if closer == "client" else [])
            second = ["both", 1_500_000, 12] + (["--close-first"] if closer == "server" else [])
            client, server = self.pair(second, first)
            good = (
                client.code == 0
                and server.code == 0
                and f"received 1500000 {sha(stream(12, 1_500_000))}" in client.lines
                and f"received 1500000 {sha(stream(11, 1_500_000))}" in server.lines
                and f"closed {'local' if closer == 'client' else 'peer'}" in client.lines
            )
            self.expect(f"both ways, {closer} closes", good, client, server)

    def meeting(self):
        a, b = self.rendezvous(["source", 700_000, 21], ["sink"])
        self.moved("rendezvous", a, b, 21, 700_000)
        a, b = self.rendezvous(["both", 200_000, 1, "--close-first"], ["both", 200_000, 2])
        self.expect("rendezvous both ways", a.code == 0 and b.code == 0, a, b)
        a, b = self.rendezvous(["msg-send", 40, 1000], ["msg-recv", 40])
        self.expect("rendezvous messages", a.code == 0 and b.code == 0, a, b)

    # ---- messages

    def messages(self):
        sizes, count = (1, 7, 8, 1456, 1457, 20_000), 60
        wanted = {
            f"{i} {size} {sha(message(i, size))} intact"
            for i in range(count)
            for size in [sizes[i % len(sizes)]]
            if size >= 8  # shorter ones cannot carry their index beyond 2^(8 n)
        }
        listed = ",".join(map(str, sizes))
        for order in (0, 1):
            for sender in ("client", "server"):
                send = ["msg-send", count, listed, "--order", order]
                receive = ["msg-recv", count]
                modes = (receive, send) if sender == "client" else (send, receive)
                client, server = self.pair(*modes)
                receiver = server if sender == "client" else client
                got = {l.split(" ", 2)[2] for l in receiver.lines if l.startswith("message ")}
                good = client.code == 0 and server.code == 0 and wanted <= got
                self.expect(f"messages from {sender}, order {order}", good, client, server)
        send = ["msg-send", 30, "100", "--ttl", 1000, "--wait-close"]
        client, server = self.pair(["msg-recv", 30, "--close-first"], send)
        good = client.code == 0 and server.code == 0 and "closed peer" in client.lines
        self.expect("messages, receiver closes first", good, client, server)

    # ---- files

    def files(self):
        with tempfile.TemporaryDirectory() as there:
            for length in (0, 1, 1_000_001):
                content = stream(length, length)
                with open(os.path.join(there, "remote.bin"), "wb") as f:
                    f.write(content)
                local = os.path.join(there, "local.bin")
                server = Peer(self.stock, "file-server", 0, "--print-port", cwd=there)
                client = Peer(
                    self.stock, "file-client", "127.0.0.1", server.port(), "remote.bin", local
                ).finish()
                server.finish()
                with open(local, "rb") as f:
                    same = f.read() == content
                good = client.code == 0 and server.code == 0 and same
                self.expect(f"file of {length} bytes", good, client, server)
            server = Peer(self.stock, "file-server", 0, "--print-port", cwd=there)
            client = Peer(self.stock, "file-client", "127.0.0.1", server.port(), "none", local)
            client.finish(), server.finish()
            good = client.code == 1 and server.code == 0 and "size -1" in client.lines
            self.expect("missing file", good, client, server)

    # ---- failures

    def refusals(self):
        client, server = None, Peer(self.stock, "server", 0, "sink", "--print-port")
        client = Peer(self.stock, "client", "127.0.0.1", server.port(), "msg-send", 1, 10).finish()
        self.expect("wrong socket type is refused", client.code == 1 and "(1002)" in client.error)
        server.process.kill()
        server.finish()
        client = Peer(self.stock, "client", "127.0.0.1", free_udp_port(), "sink").finish()
        self.expect("no server", client.code == 1 and "(1001)" in client.error, client)
        command = [self.stock, "server", "0", "sink", "--timeout", "1"]
        code = subprocess.run(command, capture_output=True).returncode
        self.expect("watchdog", code == 3)
        code = subprocess.run([self.stock, "server", "0", "nonsense"], capture_output=True).returncode
        self.expect("unknown mode", code == 1)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    check = Check(os.path.abspath(sys.argv[1]))
    check.streams()
    check.both_ways()
    check.meeting()
    check.messages()
    check.files()
    check.refusals()
    sys.exit(1 if check.failures else 0)


if __name__ == "__main__":
    main()
