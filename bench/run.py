#!/usr/bin/env python3
"""Measures farhaul beside other transports, memory to memory, one flow.

Sender and receiver are processes of their own, on loopback and across a veth pair between two
network namespaces (needs root), with datagrams for an MTU of 1500 and of 9000, with and without
segmentation offload. The systems take turns within each case; medians are compared. Prints
Markdown tables; every single run goes to a JSON file.

Systems
  farhaul    farhaul perf, left out if the binary is missing
  libudt     stock libudt 4.11 with tuned buffers (peers/udt_perf.cpp)
  bound      what a reliable transport over UDP cannot avoid (peers/bound.c)
  tcp        kernel TCP (peers/tcp.c)
  plain-udp  bound, one datagram a system call (not run unless named)
  libudt-default  libudt with its own buffer sizes (not run unless named)

Cases: PATH-MTU[-noseg[-gro]], PATH loopback or veth, MTU 1500 or 9000; noseg: segmentation
offload of the devices off, so that the kernel cuts large sends in software; gro: receive offload
of the veth devices on.
"""

import argparse
import contextlib
import dataclasses
import fnmatch
import json
import os
import signal
import subprocess
import sys

sys.dont_write_bytecode = True  # keeps the source directory clean
import machine
import netns
import process
import report

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "out")
FARHAUL = os.path.join(HERE, "..", "target", "release", "farhaul")
FIRST_PORT = 21000
# A run that other programs disturb is done again, so many times at most.
REPEATS = 4


@dataclasses.dataclass(frozen=True)
class Case:
    path: str
    mtu: int
    segmentation: bool
    gro: bool

    @property
    def name(self):
        suffix = "" if self.segmentation else "-noseg"
        return f"{self.path}-{self.mtu}{suffix}{'-gro' if self.gro else ''}"


def all_cases():
    for path in ("loopback", "veth"):
        for mtu in (1500, 9000):
            yield Case(path, mtu, True, False)
            yield Case(path, mtu, False, False)
            if path == "veth":
                yield Case(path, mtu, False, True)


def peer(program, *options):
    """Commands of our own peers, which share one command line."""

    def commands(case, address, port, seconds):
        common = ["--mtu", str(case.mtu), *options]
        path = os.path.join(OUT, program)
        receiver = [path, "recv", address, str(port), *common]
        # Only the sender cuts, only the receiver joins.
        sender = [path, "send", address, str(port), "-t", str(seconds), *common]
        return receiver, sender

    return commands


def farhaul(binary):
    def commands(case, address, port, seconds):
        # 1500 is its default, too.
        mss = ["--mss", str(case.mtu)] if case.mtu != 1500 else []
        endpoint = f"{address}:{port}"
        receiver = [binary, "perf", "--listen", endpoint, "--once", "--json", *mss]
        sender = [binary, "perf", endpoint, "-t", str(seconds), "--json", *mss]
        return receiver, sender

    return commands


def systems(binary):
    return {
        "farhaul": farhaul(binary),
        "libudt": peer("udt_perf"),
        "bound": peer("bound"),
        "tcp": peer("tcp"),
        "plain-udp": peer("bound", "--no-gso", "--no-gro"),
        "libudt-default": peer("udt_perf", "--stock-defaults"),
    }


DEFAULT_SYSTEMS = "farhaul,libudt,bound,tcp"


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5, help="runs of each system (default 5)")
    parser.add_argument("--seconds", type=int, default=5, help="length of a run (default 5)")
    parser.add_argument("--systems", default=DEFAULT_SYSTEMS, help=f"default {DEFAULT_SYSTEMS}")
    parser.add_argument("--cases", default="*", help="names or patterns, comma-separated")
    parser.add_argument("--farhaul", default=FARHAUL, metavar="BINARY")
    parser.add_argument("--output", default=os.path.join(OUT, "results.json"), metavar="FILE")
    parser.add_argument(
        "--patience",
        type=int,
        default=30,
        metavar="SECONDS",
        help="longest wait for a quiet machine before a run (default 30)",
    )
    parser.add_argument(
        "--check", action="store_true", help="exit 1 if a target for farhaul is missed"
    )
    arguments = parser.parse_args()
    if arguments.runs < 1 or arguments.seconds < 1:
        parser.error("--runs and --seconds are at least 1")
    return arguments


def choose_cases(patterns):
    chosen = [
        case
        for case in all_cases()
        if any(fnmatch.fnmatch(case.name, pattern) for pattern in patterns.split(","))
    ]
    if not chosen:
        sys.exit("no case of that name; there are " + " ".join(c.name for c in all_cases()))
    if os.geteuid() != 0:
        chosen = [case for case in chosen if case.path == "loopback" and case.segmentation]
        print("not root: only loopback as it is, without namespaces", file=sys.stderr)
    return chosen


def choose_systems(names, binary):
    known = systems(binary)
    chosen = {}
    for name in names.split(","):
        if name not in known:
            sys.exit(f"unknown system {name}; there are {' '.join(known)}")
        if name == "farhaul" and not os.access(binary, os.X_OK):
            print(f"farhaul is left out: no {os.path.relpath(binary)}", file=sys.stderr)
            continue
        chosen[name] = known[name]
    return chosen


def build_peers(chosen):
    targets = [f"{OUT}/bound", f"{OUT}/tcp"]
    if any(name.startswith("libudt") for name in chosen):
        targets.append(f"{OUT}/udt_perf")
    subprocess.run(
        ["make", "-s", "-C", os.path.join(HERE, "peers"), f"OUT={OUT}", *targets], check=True
    )


class Bench:
    def __init__(self, arguments, cases, chosen):
        self.arguments = arguments
        self.cases = cases
        self.chosen = chosen
        self.port = FIRST_PORT
        self.runs = []

    def run(self, lab):
        for case in self.cases:
            if lab is not None:
                lab.configure(case.mtu, case.segmentation, case.gro)
            for turn in range(self.arguments.runs):
                # A different one goes first each time.
                order = list(self.chosen)
                shift = turn % len(order)
                for name in order[shift:] + order[:shift]:
                    self.run_one(case, turn, name)

    def run_one(self, case, turn, name):
        best = None
        for _ in range(REPEATS):
            machine.wait_until_quiet(self.arguments.patience)
            record = {"case": case.name, "turn": turn, "system": name}
            try:
                record |= self.measure(case, name)
            except process.Failed as failure:
                record |= {"error": str(failure), "disturbance_cores": 0.0}
            self.note(record)
            if best is None or record["disturbance_cores"] < best["disturbance_cores"]:
                best = record
            if best["disturbance_cores"] <= machine.DISTURBED_CORES:
                break
        self.runs.append(best)

    def measure(self, case, name):
        # A port is used once, so that nothing late of one run can reach the next.
        self.port += 1
        if case.path == "veth":
            address, where = netns.ADDRESSES[0], netns.NAMES
        else:
            address = "127.0.0.1"
            where = (netns.NAMES[0],) * 2 if os.geteuid() == 0 else (None, None)
        seconds = self.arguments.seconds
        commands = self.chosen[name](case, address, self.port, seconds)
        return process.measure(*commands, self.port, where, seconds)

    @staticmethod
    def note(record):
        if "error" in record:
            text = f"failed: {record['error']}"
        else:
            text = f"{record['bits_per_second'] / 1e9:7.2f} Gb/s"
            if record["receiver"].get("lost"):
                text += f"  {record['receiver']['lost']} lost"
            if record["disturbance_cores"] > machine.DISTURBED_CORES:
                text += f"  disturbed, {record['disturbance_cores']:.2f} cores"
        where = f"{record['case']:20} {record['turn'] + 1:2} {record['system']:15}"
        print(where, text, file=sys.stderr, flush=True)


def main():
    arguments = parse_arguments()
    cases = choose_cases(arguments.cases)
    chosen = choose_systems(arguments.systems, arguments.farhaul)
    # SIGTERM and a closed terminal must clean up as Ctrl-C does.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    build_peers(chosen)
    bench = Bench(arguments, cases, chosen)
    about = machine.description()
    settings = {"runs": arguments.runs, "seconds": arguments.seconds}
    interrupted = False
    try:
        with machine.raised_limits():
            with netns.Namespaces() if os.geteuid() == 0 else contextlib.nullcontext() as lab:
                bench.run(lab)
    except KeyboardInterrupt:
        # What has been measured is still worth a report.
        interrupted = True
        if not bench.runs:
            sys.exit(130)

    summary = report.summarise(bench.runs)
    verdicts = report.verdicts(summary)
    os.makedirs(os.path.dirname(os.path.abspath(arguments.output)), exist_ok=True)
    with open(arguments.output, "w") as f:
        document = {
            "environment": about,
            "settings": settings,
            "summary": summary,
            "verdicts": verdicts,
            "runs": bench.runs,
        }
        json.dump(document, f, indent=1)
    print(report.markdown(summary, verdicts, about | settings))
    print(f"runs: {os.path.relpath(arguments.output)}", file=sys.stderr)
    if interrupted:
        sys.exit(130)
    if any(medians is None for case in summary.values() for medians in case.values()):
        sys.exit("a system has failed in a case")
    if arguments.check and not (verdicts and all(verdict["met"] for verdict in verdicts)):
        sys.exit("a target is missed or was not measured")


if __name__ == "__main__":
    main()
