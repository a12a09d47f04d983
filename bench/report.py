"""Medians, ratios, tables and verdicts from the raw runs."""

import statistics

# What farhaul has to reach at MTU 1500 with segmentation offload.
TIMES_LIBUDT = 8.0
SHARE_OF_BOUND = 0.4
CPU_OF_LIBUDT = 1 / 6
TARGET_CASES = ("loopback-1500", "veth-1500")


def summarise(runs):
    """{case: {system: medians}}, None for a system whose runs have all failed."""
    groups = {}
    for run in runs:
        groups.setdefault(run["case"], {}).setdefault(run["system"], []).append(run)
    return {
        case: {name: medians(all_runs) for name, all_runs in systems.items()}
        for case, systems in groups.items()
    }


def medians(all_runs):
    runs = [run for run in all_runs if "error" not in run]
    if not runs:
        return None
    speeds = [run["bits_per_second"] for run in runs]

    def per_gb(key):
        return statistics.median(run[key] / (run["bytes"] / 1e9) for run in runs)

    return {
        "runs": len(runs),
        "failed": len(all_runs) - len(runs),
        "bits_per_second": statistics.median(speeds),
        "slowest": min(speeds),
        "fastest": max(speeds),
        "cpu_s_per_gb": per_gb("cpu_s"),
        "cpu_s_per_gb_sender": per_gb("cpu_s_sender"),
        "cpu_s_per_gb_receiver": per_gb("cpu_s_receiver"),
        "machine_cpu_s_per_gb": per_gb("cpu_s_machine"),
    }


def ratio(systems, key, above, below):
    """One system's median over another's, None unless both have one."""
    if systems.get(above) is None or systems.get(below) is None:
        return None
    return systems[above][key] / systems[below][key]


def verdicts(summary):
    """The targets, for the cases and systems that were run."""
    found = []
    for case in TARGET_CASES:
        systems = summary.get(case, {})
        targets = (
            ("throughput / libudt", "bits_per_second", "libudt", TIMES_LIBUDT, False),
            ("throughput / bound", "bits_per_second", "bound", SHARE_OF_BOUND, False),
            ("CPU a byte / libudt", "cpu_s_per_gb", "libudt", CPU_OF_LIBUDT, True),
        )
        for what, key, other, target, at_most in targets:
            value = ratio(systems, key, "farhaul", other)
            if value is not None:
                met = value <= target if at_most else value >= target
                verdict = {"case": case, "what": what, "value": value, "target": target}
                found.append(verdict | {"at_most": at_most, "met": met})
    return found


def markdown(summary, found, about):
    names = []
    for systems in summary.values():
        names += [name for name in systems if name not in names]
    parts = [
        f"{about['cpu']}, {about['cores']} cores, Linux {about['kernel']}, {about['time']}; "
        f"{about['runs']} runs of {about['seconds']} s",
        "Throughput, Gb/s: median (slowest to fastest)",
        throughput_table(summary, names),
        "CPU seconds for each GB, sender and receiver: median (whole machine, interrupts included)",
        cpu_table(summary, names),
    ]
    if found:
        parts += ["Targets", verdict_table(found)]
    return "\n\n".join(parts) + "\n"


def known_pairs(names, pairs):
    return [pair for pair in pairs if set(pair) <= set(names)]


def throughput_table(summary, names):
    wanted = [("farhaul", "libudt"), ("farhaul", "bound"), ("bound", "libudt"), ("tcp", "bound")]
    pairs = known_pairs(names, wanted)
    rows = []
    for case, systems in summary.items():
        cells = [speed_cell(systems.get(name)) for name in names]
        for pair in pairs:
            value = ratio(systems, "bits_per_second", *pair)
            cells.append("-" if value is None else f"{value:.2f}")
        rows.append([case, *cells])
    return table(["case", *names, *(" / ".join(pair) for pair in pairs)], rows)


def speed_cell(medians_of):
    if medians_of is None:
        return "failed"
    middle, low, high = (medians_of[k] / 1e9 for k in ("bits_per_second", "slowest", "fastest"))
    note = f", {medians_of['failed']} failed" if medians_of["failed"] else ""
    return f"{middle:.2f} ({low:.2f} to {high:.2f}{note})"


def cpu_table(summary, names):
    pairs = known_pairs(names, [("farhaul", "libudt"), ("bound", "libudt")])
    rows = []
    for case, systems in summary.items():
        cells = []
        for name in names:
            m = systems.get(name)
            cells.append(
                f"{m['cpu_s_per_gb']:.3f} ({m['machine_cpu_s_per_gb']:.3f})" if m else "failed"
            )
        for pair in pairs:
            value = ratio(systems, "cpu_s_per_gb", *pair)
            cells.append("-" if value is None else f"{value:.3f}")
        rows.append([case, *cells])
    return table(["case", *names, *(" / ".join(pair) for pair in pairs)], rows)


def verdict_table(found):
    rows = [
        [
            verdict["case"],
            verdict["what"],
            f"{verdict['value']:.3f}",
            f"at {'most' if verdict['at_most'] else 'least'} {verdict['target']:.3f}",
            "yes" if verdict["met"] else "NO",
        ]
        for verdict in found
    ]
    return table(["case", "ratio", "measured", "target", "met"], rows)


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
