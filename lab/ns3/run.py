#!/usr/bin/env python3
"""Runs the scenarios in ns-3 and writes results.json: mean and standard deviation over the seeds.

    run.py [NAME...]      those whose names begin so; without names all, and results.json is written
    run.py --speed        packets a second of wall time, 1 to 1000 flows over 1 Gb/s, 20 ms

One process at a time. Standard library only.
"""

import json
import math
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
NOT_OPTIONS = {"name", "seeds", "artefact"}


def dumbbell(options):
    """One run: what the program prints."""
    arguments = [f"--{name}={argument(value)}" for name, value in options.items()]
    done = subprocess.run([HERE / "dumbbell", *arguments], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def argument(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


def padhye(s):
    """Throughput in bits/s by Padhye's formula, where random loss alone limits; else none.

    b, the segments that count as one for the window's growth: those of one ACK in ns-3's NewReno,
    which counts ACKs; one in its LinuxReno, which counts segments.
    """
    if s["loss"] == 0 or s["tcp"] not in ("TcpNewReno", "TcpLinuxReno"):
        return None
    p, b = s["loss"], s["delack"] if s["tcp"] == "TcpNewReno" else 1
    rtt = s["rtt"] / 1e3 + s["mtu"] * 8 / s["rate"]
    rto = max(s["minRto"] / 1e3, rtt)
    timeouts = rto * min(1, 3 * math.sqrt(3 * b * p / 8)) * p * (1 + 32 * p * p)
    segments = s["flows"] / (rtt * math.sqrt(2 * b * p / 3) + timeouts)
    return segments * (s["mtu"] - 40) * 8


def spread(values):
    return {"mean": statistics.fmean(values), "sd": statistics.stdev(values) if len(values) > 1 else 0}


def scenario(s):
    options = {name: value for name, value in s.items() if name not in NOT_OPTIONS}
    runs = [dumbbell({**options, "seed": seed + 1}) for seed in range(s["seeds"])]
    result = {"name": s["name"]}
    if "artefact" in s:
        result["artefact"] = s["artefact"]
    result["parameters"] = {**options, "seeds": s["seeds"]}
    for key in ("throughput_bps", "utilisation", "jain"):
        result[key] = spread([run[key] for run in runs])
    for key in ("data_packets", "queue_drops", "random_drops", "recoveries", "timeouts"):
        result[key] = statistics.fmean(run[key] for run in runs)
    if padhye(s):
        result["padhye_bps"] = padhye(s)
    return result


def show(r):
    mean, sd = r["throughput_bps"]["mean"] / 1e6, r["throughput_bps"]["sd"] / 1e6
    theory = f"{mean * 1e6 / r['padhye_bps']:.2f}" if "padhye_bps" in r else ""
    print(
        f"| {r['name']} | {mean:.3f} | {sd:.3f} | {r['utilisation']['mean']:.3f} "
        f"| {r['jain']['mean']:.2f} | {r['queue_drops']:.0f} | {r['random_drops']:.0f} "
        f"| {r['timeouts']:.1f} | {theory} |",
        flush=True,
    )


def scenarios(names):
    table = json.loads((HERE / "scenarios.json").read_text())
    chosen = [{**table["defaults"], **s} for s in table["scenarios"]]
    if names:
        chosen = [s for s in chosen if s["name"].startswith(tuple(names))]
    print("| scenario | Mb/s | sd | utilisation | Jain | queue drops | random drops | timeouts | of Padhye |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    results = []
    for s in chosen:
        results.append(scenario(s))
        show(results[-1])
    if not names:
        text = json.dumps({"ns3": "3.37", "results": results}, indent=1)
        (HERE / "results.json").write_text(text + "\n")


def speed():
    """Best of 3, because other programs may share the machine."""
    print("| flows | data packets/s | all packets/s | utilisation |")
    print("|---:|---:|---:|---:|")
    for flows in (1, 10, 100, 1000):
        # Of many flows none fills 1 MB; what the program takes by itself, for one flow that has the
        # link alone, would only cost memory.
        options = {"rate": 1e9, "rtt": 20, "queue": 1667, "flows": flows, "warmup": 5, "seconds": 10}
        if flows >= 100:
            options["buffer"] = 1 << 20
        runs = [dumbbell(options) for _ in range(3)]
        best = max(runs, key=lambda run: run["packets_per_s"])
        print(
            f"| {flows} | {best['data_packets_per_s']:,.0f} | {best['packets_per_s']:,.0f} "
            f"| {best['utilisation']:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1:] == ["--speed"]:
        speed()
    else:
        scenarios(sys.argv[1:])
