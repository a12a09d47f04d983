#!/usr/bin/env python3
"""Measures farhaul cp beside scp and rsync, with a private sshd.

Files lie in memory (a tmpfs). Sender and receiver are on this machine: over loopback, or at the ends
of an emulated path (`farhaul wan run`; needs root). The systems take turns within each case; medians
are compared. Prints Markdown tables and the targets; every single run goes to a JSON file.

Cases
  loopback   a large file; scp and rsync with the fastest of three ciphers
  lossy      a large file, 200 Mb/s, 80 ms RTT, 0.1% loss
  small      50,000 files of 4 KiB, 1 Gb/s, 50 ms RTT; rsync -a
  far-small  2,000 files of 4 KiB, 260 ms RTT
  resume     a large file whose copy is killed at 90%, and the same command again
  cost       what verification and encryption cost over loopback
  cost-1g    the same at 1 Gb/s, 10 ms RTT
  memory     200,000 empty files: memory of both sides
"""

import argparse
import contextlib
import fnmatch
import functools
import json
import os
import shutil
import signal
import sys

sys.dont_write_bytecode = True  # keeps the source directory clean
import copies
import cp_report
import machine
import process
import sshd
import wanpath

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "out")
FARHAUL = os.path.abspath(os.path.join(HERE, "..", "target", "release", "farhaul"))
# A run that other programs disturb is done again, so many times at most.
REPEATS = 2
# So often each cipher is tried; its best run counts.
TRIALS = 2

# What is copied: bytes, or files of so many bytes; in earnest and to try the script.
SIZES = {
    "loopback": (2_000_000_000, 100_000_000),
    "trial": (300_000_000, 30_000_000),
    "lossy": (500_000_000, 20_000_000),
    "small": ((50_000, 4096), (1_000, 4096)),
    "far-small": ((2_000, 4096), (200, 4096)),
    "resume": (10_000_000_000, 500_000_000),
    "cost": (2_000_000_000, 100_000_000),
    "cost-1g": (1_000_000_000, 50_000_000),
    "memory": ((200_000, 0), (5_000, 0)),
}
# Where memory is short.
SMALL_RESUME = 4_000_000_000
KILLED_AT = 0.9

PATHS = {
    "lossy": "--rate 200M --delay 40ms --loss 0.1%",
    "small": "--rate 1G --delay 25ms",
    "far-small": "--rate 1G --delay 130ms",
    "cost-1g": "--rate 1G --delay 5ms",
}


class Bench:
    def __init__(self, arguments, folder):
        self.arguments = arguments
        self.folder = folder
        self.runs = []
        self.notes = []
        self.paths = {}

    def run(self, names):
        for name in names:
            with contextlib.ExitStack() as stack:
                path, address = None, "127.0.0.1"
                if name in PATHS:
                    path = stack.enter_context(wanpath.Path(self.arguments.farhaul, PATHS[name]))
                    address = wanpath.FAR
                place = copies.Place(sshd.Sshd(f"{self.folder.path}/sshd-{address}", address), path)
                CASES[name](self, name, place)
            if path is not None:
                self.paths[name] = {"options": path.options, "counters": path.counters}

    def size(self, name):
        return SIZES[name][1 if self.arguments.quick else 0]

    def turns(self, case, systems, runs=None):
        """Runs `systems`, functions by name, in turn."""
        for turn in range(runs or self.arguments.runs):
            # A different one goes first each time.
            order = list(systems)
            shift = turn % len(order)
            for name in order[shift:] + order[:shift]:
                self.run_one(case, turn, name, systems[name])

    def run_one(self, case, turn, name, work):
        best = None
        for _ in range(REPEATS):
            machine.wait_until_quiet(self.arguments.patience)
            record = {"case": case, "turn": turn, "system": name}
            try:
                record |= work()
            except process.Failed as failure:
                record |= {"error": str(failure), "disturbance_cores": 0.0}
            note(record)
            if best is None or record["disturbance_cores"] < best["disturbance_cores"]:
                best = record
            if best["disturbance_cores"] <= machine.DISTURBED_CORES or self.arguments.once:
                break
        self.runs.append(best)

    def farhaul(self, place, source, *options):
        """A function that copies `source` with farhaul."""
        command = functools.partial(self._farhaul, place, source, options)
        return lambda: copies.run(place, self.folder, source, command)

    def _farhaul(self, place, source, options, into):
        return copies.farhaul(self.arguments.farhaul, place, source, into, *options)

    def ssh_system(self, make, place, source, cipher, *options, limit_s=copies.LIMIT_S):
        """A function that copies `source` with scp or rsync."""
        command = lambda into: make(place, source, into, cipher, *options)
        return lambda: copies.run(place, self.folder, source, command, limit_s)

    def fastest(self, place, make, kinds):
        """A short trial of all `kinds`, each a cipher and more options: the fastest."""
        source = self.folder.file(self.size("trial"))
        name = make.__name__
        labels = {" ".join([name, *kind[1:], kind[0]]): kind for kind in kinds}
        systems = {
            label: self.ssh_system(make, place, source, *kind) for label, kind in labels.items()
        }
        self.turns("trial", systems, TRIALS)
        trials = [r for r in self.runs if r["system"] in labels and "error" not in r]
        if not trials:
            sys.exit(f"{name} does not work here")
        best = min(trials, key=lambda run: run["seconds"])["system"]
        self.notes.append(f"fastest of {name}: {best}")
        return labels[best]


def loopback(bench, name, place):
    ciphers = [[cipher] for cipher in copies.CIPHERS]
    # Its old protocol too, which is often the faster one.
    both = ciphers + [[cipher, "-O"] for cipher in copies.CIPHERS]
    scp, rsync = bench.fastest(place, copies.scp, both), bench.fastest(place, copies.rsync, ciphers)
    bench.folder.remove(bench.folder.file(bench.size("trial")))
    source = bench.folder.file(bench.size(name))
    systems = {
        "farhaul": bench.farhaul(place, source),
        "scp": bench.ssh_system(copies.scp, place, source, *scp),
        "rsync": bench.ssh_system(copies.rsync, place, source, *rsync),
    }
    bench.turns(name, systems)
    bench.folder.remove(source)


def lossy(bench, name, place):
    source = bench.folder.file(bench.size(name))
    limit_s = bench.arguments.scp_limit
    scp = bench.ssh_system(copies.scp, place, source, None, limit_s=limit_s)
    bench.turns(name, {"farhaul": bench.farhaul(place, source), "scp": scp})
    bench.folder.remove(source)


def small(bench, name, place):
    source = bench.folder.tree(*bench.size(name))
    rsync = bench.ssh_system(copies.rsync, place, source, None)
    bench.turns(name, {"farhaul": bench.farhaul(place, source), "rsync": rsync})
    bench.folder.remove(source)


def farhaul_alone(bench, name, place):
    source = bench.folder.tree(*bench.size(name))
    bench.turns(name, {"farhaul": bench.farhaul(place, source)})
    bench.folder.remove(source)


def resume(bench, name, place):
    size = bench.size(name)
    free = shutil.disk_usage(bench.folder.path).free
    if min(free, memory_available()) < 2 * size + 1_500_000_000:
        size = min(size, SMALL_RESUME)
        bench.notes.append(f"resume: memory is short, {size / 1e9:.1f} GB instead of 10 GB")
    source = bench.folder.file(size)
    command = functools.partial(bench._farhaul, place, source, ())
    work = lambda: copies.resume(place, bench.folder, source, command, KILLED_AT)
    bench.turns(name, {"farhaul": work})
    bench.folder.remove(source)


def cost(bench, name, place):
    source = bench.folder.file(bench.size(name))
    systems = {
        "farhaul": bench.farhaul(place, source),
        "not verified": bench.farhaul(place, source, "--verify", "none"),
        "not encrypted": bench.farhaul(place, source, "--plain"),
    }
    bench.turns(name, systems)
    bench.folder.remove(source)


CASES = {
    "loopback": loopback,
    "lossy": lossy,
    "small": small,
    "far-small": farhaul_alone,
    "resume": resume,
    "cost": cost,
    "cost-1g": cost,
    "memory": farhaul_alone,
}


def memory_available():
    with open("/proc/meminfo") as f:
        line = next(line for line in f if line.startswith("MemAvailable"))
    return int(line.split()[1]) << 10


def tcp_control():
    """What TCP, and so scp and rsync, go by."""
    with open("/proc/sys/net/ipv4/tcp_congestion_control") as f:
        return f.read().strip()


def note(record):
    if "error" in record:
        text = f"failed: {record['error']}"
    else:
        rate = record.get("bits_per_second", 0.0) / 1e9
        text = f"{record['seconds']:8.2f} s  {rate:6.2f} Gb/s  {record['cpu_s']:6.2f} CPU s"
        if not record["complete"]:
            text += f"  stopped at {record['bytes'] / 1e6:.0f} MB"
        if record["disturbance_cores"] > machine.DISTURBED_CORES:
            text += f"  disturbed, {record['disturbance_cores']:.2f} cores"
    where = f"{record['case']:10} {record['turn'] + 1:2} {record['system']:15}"
    print(where, text, file=sys.stderr, flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default="*", help="names or patterns, comma-separated")
    parser.add_argument("--runs", type=int, default=5, help="runs of each system (default 5)")
    parser.add_argument("--quick", action="store_true", help="little data, to try the script")
    parser.add_argument("--farhaul", default=FARHAUL, metavar="BINARY")
    parser.add_argument("--folder", default="/dev/shm", help="a tmpfs (default /dev/shm)")
    parser.add_argument("--output", default=os.path.join(OUT, "cp.json"), metavar="FILE")
    parser.add_argument("--json", action="store_true", help="print the JSON document, no tables")
    parser.add_argument(
        "--scp-limit",
        type=float,
        default=180.0,
        metavar="SECONDS",
        help="end scp after this on the lossy path (default 180)",
    )
    parser.add_argument(
        "--patience",
        type=int,
        default=30,
        metavar="SECONDS",
        help="longest wait for a quiet machine before a run (default 30)",
    )
    parser.add_argument("--once", action="store_true", help="never repeat a disturbed run")
    parser.add_argument(
        "--check", action="store_true", help="exit 1 if a target for farhaul is missed"
    )
    arguments = parser.parse_args()
    if arguments.runs < 1:
        parser.error("--runs is at least 1")
    arguments.farhaul = os.path.abspath(arguments.farhaul)
    if not os.access(arguments.farhaul, os.X_OK):
        parser.error(f"no {arguments.farhaul}: cargo build --release -p farhaul-cli")
    for program in ("ssh", "scp", "rsync", "ssh-keygen"):
        if shutil.which(program) is None:
            parser.error(f"no {program}; Debian has it in openssh-client or rsync")
    return arguments


def choose_cases(patterns):
    patterns = patterns.split(",")
    chosen = [c for c in CASES if any(fnmatch.fnmatch(c, pattern) for pattern in patterns)]
    if not chosen:
        sys.exit("no case of that name; there are " + " ".join(CASES))
    if os.geteuid() != 0:
        chosen = [case for case in chosen if case not in PATHS]
        print("not root: only loopback, no emulated paths", file=sys.stderr)
    return chosen


def main():
    arguments = parse_arguments()
    cases = choose_cases(arguments.cases)
    # SIGTERM and a closed terminal must clean up as Ctrl-C does.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    about = machine.description() | {"load": os.getloadavg()[0], "tcp": tcp_control()}
    settings = {"runs": arguments.runs, "quick": arguments.quick}
    interrupted = False
    with copies.Folder(arguments.folder) as folder:
        bench = Bench(arguments, folder)
        try:
            with machine.raised_limits():
                bench.run(cases)
        except KeyboardInterrupt:
            # What has been measured is still worth a report.
            interrupted = True
            if not bench.runs:
                sys.exit(130)

    summary = cp_report.summarise(bench.runs)
    verdicts = cp_report.verdicts(summary)
    document = {
        "environment": about,
        "settings": settings,
        "notes": bench.notes,
        "paths": bench.paths,
        "summary": summary,
        "verdicts": verdicts,
        "runs": bench.runs,
    }
    os.makedirs(os.path.dirname(os.path.abspath(arguments.output)), exist_ok=True)
    with open(arguments.output, "w") as f:
        json.dump(document, f, indent=1)
    if arguments.json:
        json.dump(document, sys.stdout, indent=1)
        print()
    else:
        print(cp_report.markdown(summary, verdicts, about | settings, bench.notes))
    print(f"runs: {os.path.relpath(arguments.output)}", file=sys.stderr)
    if interrupted:
        sys.exit(130)
    if any(medians is None for case in summary.values() for medians in case.values()):
        sys.exit("a system has failed in a case")
    if arguments.check and not (verdicts and all(verdict["met"] for verdict in verdicts)):
        sys.exit("a target is missed or was not measured")


if __name__ == "__main__":
    main()
