"""Medians, tables and verdicts of copies."""

import statistics

import report

# What farhaul cp has to reach.
TIMES_SSH = 2.0
SHARE_OF_LINE = 0.85
LINE = 200e6
TIMES_RSYNC = 5.0
FAR_SMALL_S = 2.0
MOVED_TWICE = 0.01
UNTIL_NEW_BYTES_S = 2.0
VERIFICATION = 0.05
ENCRYPTION = 0.30
# What medians of the same differ by anyway, where the path is the limit.
NOT_MEASURABLE = 0.02
MEMORY_BYTES = 256 << 20
MEMORY_CASES = ("loopback", "small", "memory")

_MEDIANS = (
    "bytes",
    "seconds",
    "data_seconds",
    "transfer_seconds",
    "bits_per_second",
    "cpu_s",
    "cpu_s_machine",
    "until_new_bytes_s",
    "written_before",
    "resumed_bytes",
    "moved_twice",
    "linger_s",
)
_LARGEST = ("rss_near", "rss_far")


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
    found = {"runs": len(runs), "failed": len(all_runs) - len(runs)}
    for key in _MEDIANS:
        if all(key in run for run in runs):
            found[key] = statistics.median(run[key] for run in runs)
    for key in _LARGEST:
        found[key] = max(run[key] for run in runs)
    found["fastest_s"] = min(run["seconds"] for run in runs)
    found["slowest_s"] = max(run["seconds"] for run in runs)
    found["stopped"] = sum(not run["complete"] for run in runs)
    found["disturbed"] = max(run["disturbance_cores"] for run in runs)
    if found["bytes"]:
        found["cpu_s_per_gb"] = statistics.median(r["cpu_s"] / (r["bytes"] / 1e9) for r in runs)
    return found


def verdicts(summary):
    """The targets, for the cases and systems that were run."""
    found = []

    def judge(case, what, value, target, at_most):
        met = value <= target if at_most else value >= target
        verdict = {"case": case, "what": what, "value": value, "target": target}
        found.append(verdict | {"at_most": at_most, "met": met})

    def of(case, system="farhaul"):
        return summary.get(case, {}).get(system)

    ours = of("loopback")
    others = [m for m in (of("loopback", "scp"), of("loopback", "rsync")) if m]
    if ours and others:
        speed = max(m["bits_per_second"] for m in others)
        cpu = min(m["cpu_s_per_gb"] for m in others)
        judge("loopback", "speed / faster of scp, rsync", ours["bits_per_second"] / speed, TIMES_SSH, False)
        judge("loopback", "CPU a byte / lower of scp, rsync", ours["cpu_s_per_gb"] / cpu, 1.0, True)
    if ours := of("lossy"):
        judge("lossy", "payload / line, whole command", ours["bits_per_second"] / LINE, SHARE_OF_LINE, False)
    ours, rsync = of("small"), of("small", "rsync")
    if ours and rsync:
        judge("small", "speed / rsync", rsync["seconds"] / ours["seconds"], TIMES_RSYNC, False)
    if ours := of("far-small"):
        judge("far-small", "seconds after connection", ours["transfer_seconds"], FAR_SMALL_S, True)
    if ours := of("resume"):
        judge("resume", "seconds until new bytes", ours["until_new_bytes_s"], UNTIL_NEW_BYTES_S, True)
        twice = ours["moved_twice"] / ours["written_before"]
        judge("resume", "moved twice / written before", twice, MOVED_TWICE, True)
    for case, verification, encryption in (
        ("cost", VERIFICATION, ENCRYPTION),
        ("cost-1g", NOT_MEASURABLE, NOT_MEASURABLE),
    ):
        for system, what, target in (
            ("not verified", "verification, share of time", verification),
            ("not encrypted", "encryption, share of time", encryption),
        ):
            ours, without = of(case), of(case, system)
            if ours and without:
                share = ours["data_seconds"] / without["data_seconds"] - 1
                judge(case, what, share, target, True)
    for case in MEMORY_CASES:
        if ours := of(case):
            for side in ("near", "far"):
                value = ours[f"rss_{side}"] / MEMORY_BYTES
                judge(case, f"largest memory {side} / 256 MiB", value, 1.0, True)
    return found


def markdown(summary, found, about, notes):
    quick = "; little data, to try the script" if about["quick"] else ""
    parts = [
        f"{about['cpu']}, {about['cores']} cores, Linux {about['kernel']}, {about['time']}, "
        f"load {about['load']:.1f}, TCP with {about['tcp']}; {about['runs']} runs{quick}",
        *notes,
        "Medians; seconds from start to end of the command (fastest to slowest); memory: the largest "
        "of one process",
        runs_table({case: systems for case, systems in summary.items() if case != "trial"}),
    ]
    if resumed := summary.get("resume", {}).get("farhaul"):
        parts += ["Resume", resume_table(resumed)]
    if found:
        parts += ["Targets", report.verdict_table(found)]
    return "\n\n".join(parts) + "\n"


def runs_table(summary):
    head = ["case", "system", "s", "from first bytes, s", "Gb/s", "CPU s", "CPU s/GB"]
    rows = [
        [case, name, *row(medians_of)]
        for case, systems in summary.items()
        for name, medians_of in systems.items()
    ]
    return report.table([*head, "near, MB", "far, MB"], rows)


def row(m):
    if m is None:
        return ["failed"] * 7
    seconds = f"{m['seconds']:.2f} ({m['fastest_s']:.2f} to {m['slowest_s']:.2f})"
    if m["stopped"]:
        seconds += f", {m['stopped']} stopped, at {m['bytes'] / 1e6:.0f} MB"
    if m["failed"]:
        seconds += f", {m['failed']} failed"
    return [
        seconds,
        f"{m['data_seconds']:.2f}" if "data_seconds" in m else "-",
        f"{m['bits_per_second'] / 1e9:.3f}" if m.get("bits_per_second") else "-",
        f"{m['cpu_s']:.2f}",
        f"{m['cpu_s_per_gb']:.3f}" if "cpu_s_per_gb" in m else "-",
        f"{m['rss_near'] / 1e6:.0f}",
        f"{m['rss_far'] / 1e6:.0f}",
    ]


def resume_table(m):
    head = ["s until new bytes", "MB written before", "MB proved", "MB moved twice"]
    sizes = [m[key] / 1e6 for key in ("written_before", "resumed_bytes", "moved_twice")]
    return report.table(head, [[f"{m['until_new_bytes_s']:.2f}", *(f"{size:.1f}" for size in sizes)]])
