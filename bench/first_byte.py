#!/usr/bin/env python3
"""How many round trips a copy over ssh takes until its first data arrive.

Over an emulated path (`farhaul wan run`; needs root) of so long a round trip that nothing else counts. The first
data have arrived when the far side has received 15 kB: the handshakes of ssh and farhaul take less than half of that.
Beside it: scp, and a login over ssh that runs `true`.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # keeps the source directory clean
import netns
import sshd
import wanpath

HERE = os.path.dirname(os.path.abspath(__file__))
FARHAUL = os.path.abspath(os.path.join(HERE, "..", "target", "release", "farhaul"))
FIRST_BYTES = 15_000
SIZE = 2_000_000
LIMIT_S = 60.0


def received(holder):
    """Bytes that the far end's device has received."""
    with open(f"/proc/{holder}/net/dev") as f:
        rows = (line.split(":") for line in f if ":" in line)
        return sum(int(row[1].split()[0]) for row in rows if row[0].strip() != "lo")


def run(path, command, home):
    """Seconds until the first data have arrived (none if they never do), and until the end."""
    holder = path._holders["far"]
    before = received(holder)
    began = time.monotonic()
    process = subprocess.Popen(
        command,
        preexec_fn=lambda: netns.enter(path.near),
        env={**os.environ, "HOME": home},
        stdout=subprocess.DEVNULL,
    )
    first = None
    while process.poll() is None:
        if first is None and received(holder) - before >= FIRST_BYTES:
            first = time.monotonic() - began
        if time.monotonic() - began > LIMIT_S:
            process.kill()
        time.sleep(0.001)
    if process.returncode != 0:
        raise SystemExit(f"{command[0]} has failed: {process.returncode}")
    return first, time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3, help="runs of each system (default 3)")
    parser.add_argument("--delay", type=int, default=100, metavar="MS", help="each way (default 100)")
    parser.add_argument(
        "farhaul", nargs="*", default=[FARHAUL], metavar="BINARY", help="several are compared"
    )
    arguments = parser.parse_args()
    binaries = [os.path.abspath(binary) for binary in arguments.farhaul]
    round_trip = 2e-3 * arguments.delay
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        source, into = f"{folder}/source", f"{folder}/into"
        with open(source, "wb") as f:
            f.write(os.urandom(SIZE))
        with wanpath.Path(binaries[0], f"--rate 1G --delay {arguments.delay}ms") as path:
            there = sshd.Sshd(f"{folder}/sshd", wanpath.FAR)
            command, port = there.command()
            server = subprocess.Popen(
                command, preexec_fn=lambda: netns.enter(path.far), stderr=subprocess.DEVNULL
            )
            target = f"{wanpath.FAR}:{into}"
            systems = {"ssh true": there.ssh().split() + [wanpath.FAR, "true"]}
            systems["scp"] = ["scp", "-q", "-P", str(port), *there.options(), source, target]
            for binary in binaries:
                options = ["--no-progress", "--ssh", there.ssh(), "--remote-farhaul", binary]
                systems[binary] = [binary, "cp", *options, source, target]
            seen = {name: [] for name in systems}
            try:
                for _ in range(arguments.runs):
                    for name, words in systems.items():
                        shutil.rmtree(into, ignore_errors=True)
                        os.makedirs(into)
                        seen[name].append(run(path, words, folder))
            finally:
                server.terminate()
                server.wait()
    print(f"| system | first data, round trips of {1e3 * round_trip:.0f} ms | end |\n|---|---|---|")
    for name, runs in seen.items():
        firsts = [first for first, _ in runs if first is not None]
        first = f"{statistics.median(firsts) / round_trip:.1f}" if firsts else ""
        end = statistics.median(end for _, end in runs) / round_trip
        print(f"| `{name}` | {first} | {end:.1f} |")


if __name__ == "__main__":
    main()
