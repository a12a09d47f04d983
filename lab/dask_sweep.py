#!/usr/bin/env python3
"""Runs the points of a scenario's sweep over a Dask cluster, and prints the same table as
`farhaul sim run`.

    lab/dask_sweep.py scenarios/lossy-link.toml --local 4
    lab/dask_sweep.py scenarios/lossy-link.toml --scheduler tcp://head:8786 --set seeds=20

Workers need the farhaul program (--farhaul PATH, as it is called there) and nothing else: the
scenario's text is sent to them. Needs the packages of lab/requirements.txt. A point whose worker is
lost runs again on another one. Exit codes: 0 done; 1 some points failed, each named with its standard
error; 2 a bad file or bad usage.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile


def simulate(farhaul, name, text, options, point):
    """Runs one point, on a worker. Returns its exit code, its result and its standard error."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        command = [farhaul, "sim", "run", path, *options, "--point", str(point)]
        command += ["--jobs", "1", "--no-plot", "--json"]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            return 1, "", f"{farhaul}: {error}"
    return ended.returncode, ended.stdout, ended.stderr


def sweep(client, farhaul, path, options, points, retries):
    """Results of all points, and what failed: {point: text}."""
    from dask.distributed import as_completed

    with open(path, encoding="utf-8") as file:
        text = file.read()
    name = os.path.basename(path)
    futures = {
        client.submit(
            simulate, farhaul, name, text, options, point, pure=False, retries=retries
        ): point
        for point in range(points)
    }
    results, failures = {}, {}
    for future in as_completed(futures):
        point = futures[future]
        error = future.exception() if future.status == "error" else None
        if error is not None:
            failures[point] = repr(error)
            continue
        code, result, errors = future.result()
        if code == 0:
            results[point] = result
        else:
            failures[point] = errors.strip() or f"exit code {code}"
        future.release()
    return results, failures


def workers(text):
    """A number of worker processes: with none, a sweep would wait for ever."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of workers: give at least 1")
    return number


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("scenario", metavar="FILE")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--seed", metavar="N")
    parser.add_argument("--farhaul", default="farhaul", metavar="PATH", help="the program")
    parser.add_argument("--retries", type=int, default=3, help="for points whose worker is lost")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--scheduler", metavar="ADDRESS", help="of a cluster that runs")
    where.add_argument("--local", type=workers, metavar="N", help="so many worker processes here")
    return parser.parse_args()


def main():
    args = arguments()
    options = [word for pair in args.set for word in ("--set", pair)]
    options += ["--seed", args.seed] if args.seed is not None else []
    check = [args.farhaul, "sim", "check", args.scenario, *options, "--json"]
    try:
        checked = subprocess.run(check, stdout=subprocess.PIPE, text=True, check=False)
    except OSError as error:
        print(f"{args.farhaul}: {error}", file=sys.stderr)
        return 1
    if checked.returncode != 0:
        return checked.returncode
    points = json.loads(checked.stdout)["points"]

    import dask
    from dask.distributed import Client, LocalCluster

    # A worker that dies takes a point down with it: not the point's fault the first times.
    dask.config.set({"distributed.scheduler.allowed-failures": args.retries})
    if args.local is not None:
        cluster = LocalCluster(
            n_workers=args.local, threads_per_worker=1, processes=True, dashboard_address=None
        )
    else:
        cluster = args.scheduler
    with Client(cluster) as client:
        results, failures = sweep(
            client, args.farhaul, args.scenario, options, points, args.retries
        )
    if args.local is not None:
        cluster.close()
    for point, why in sorted(failures.items()):
        print(f"point {point} failed: {why}", file=sys.stderr)
    if not results:
        return 1
    with tempfile.TemporaryDirectory() as directory:
        gathered = os.path.join(directory, "points.json")
        with open(gathered, "w", encoding="utf-8") as file:
            file.writelines(results[point] for point in sorted(results))
        name = os.path.splitext(os.path.basename(args.scenario))[0]
        command = [args.farhaul, "sim", "gather", gathered, "--name", name]
        table = subprocess.run(command + (["--json"] if args.json else []), check=False)
    return 1 if failures else table.returncode


if __name__ == "__main__":
    sys.exit(main())
