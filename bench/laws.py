#!/usr/bin/env python3
"""What congestion control laws cost: throughput and processor time over loopback, one flow.

`udt` and every other law in turn; and `reno` with an ACK every 2, 4, … 128 packets (the case of
gu05 tables 5-3 and 5-4). Sender and receiver are `farhaul perf` processes; runs of all take turns,
medians are compared. Prints Markdown tables.
"""

import argparse
import json
import pathlib
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
INTERVALS = (2, 4, 8, 16, 32, 64, 128)


def run(farhaul: pathlib.Path, law: str, seconds: float) -> tuple[float, float]:
    """Gigabits a second, and CPU seconds a gigabyte of both sides."""
    listener = subprocess.Popen(
        [farhaul, "perf", "--listen", "127.0.0.1:0", "--once"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        address = next(word for word in listener.stderr.readline().split() if ":" in word and word[-1].isdigit())
        command = [farhaul, "perf", address, "--cc", law, "-t", str(seconds), "--json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
        report = json.loads(done.stdout)
        cpu = sum(side["cpu"]["user_s"] + side["cpu"]["system_s"] for side in (report, report["peer"]))
        return report["bits_per_second"] / 1e9, cpu / (report["bytes"] / 1e9)
    finally:
        listener.kill()
        listener.wait()


def measure(farhaul: pathlib.Path, laws: list[str], runs: int, seconds: float) -> dict[str, tuple[float, float]]:
    """The medians of each law."""
    found: dict[str, list[tuple[float, float]]] = {law: [] for law in laws}
    for _ in range(runs):
        for law in laws:
            found[law].append(run(farhaul, law, seconds))
    return {law: tuple(map(statistics.median, zip(*results))) for law, results in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--farhaul", type=pathlib.Path, default=ROOT / "target/release/farhaul")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("laws", nargs="*", help="laws to measure; all of `farhaul cc list` if none")
    args = parser.parse_args()
    listed = json.loads(subprocess.check_output([args.farhaul, "cc", "list", "--json"]))
    # What sends at a rate of its own, or waits for one, has no throughput to compare.
    names = [law["name"] for law in listed["laws"] if law["name"] not in ("blast", "gtp")]
    intervals = [f"reno:acks={count}" for count in INTERVALS]
    medians = measure(args.farhaul, (args.laws or names + intervals), args.runs, args.seconds)
    base = medians.get("udt")
    print("| law | Gb/s | CPU s/GB | throughput beside `udt` |\n|---|---|---|---|")
    for law, (rate, cpu) in medians.items():
        share = f"{rate / base[0]:.2f}" if base else ""
        print(f"| `{law}` | {rate:.1f} | {cpu:.3f} | {share} |")


if __name__ == "__main__":
    main()
