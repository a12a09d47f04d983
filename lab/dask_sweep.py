#!/usr/bin/env python3
"""Runs the points of a scenario's sweep over a Dask cluster, and prints the same table as
`farhaul sim run`.

    lab/dask_sweep.py scenarios/lossy-link.toml --local 4
    lab/dask_sweep.py scenarios/lossy-link.toml --scheduler tcp://head:8786 --set seeds=20

Workers need the farhaul program (--farhaul PATH, as it is called there) and nothing else: the
scenario's text is sent to them. Needs the packages of lab/requirements.txt. A point whose worker is
lost runs again on another one. Exit codes: 0 done; 1 some points failed, each named with its standard
error, or there is no cluster; 2 a bad file or bad usage; 130 interrupted.
"""

import argparse
import json
import logging
import os
import signal
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
    from dask.distributed import CancelledError, as_completed

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
        # Without an error of its own if the scheduler has gone.
        if future.status in ("error", "cancelled"):
            failed = future.status == "error"
            failures[point] = repr(future.exception()) if failed else future.status
            continue
        # A result that has gone with its worker ("lost", "pending") comes from another one.
        try:
            code, result, errors = future.result()
        except CancelledError as error:
            failures[point] = repr(error)
            continue
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


# A level above all.
SILENCE = logging.CRITICAL + 1


class Trouble(Exception):
    """What is said in one line, and the exit code."""

    def __init__(self, message, code=1):
        super().__init__(message)
        self.code = code


def connect(args):
    """A client of the cluster, and the cluster if it has to be closed."""
    try:
        import dask
        from dask.distributed import Client, LocalCluster
    except ImportError as error:
        raise Trouble(f"{error}: pip install -r lab/requirements.txt") from None
    # A worker that dies takes a point down with it: not the point's fault the first times.
    dask.config.set({"distributed.scheduler.allowed-failures": args.retries})
    # What workers here say as they are torn down helps nobody, and what fails is told by its point.
    dask.config.set({"logging": {"distributed": SILENCE}})
    if args.local is None:
        try:
            return Client(args.scheduler), None
        except (ValueError, TypeError) as error:
            raise Trouble(f"--scheduler {args.scheduler}: {error}", 2) from None
        except OSError as error:
            raise Trouble(f"--scheduler {args.scheduler}: {error}") from None
    # Ctrl-C reaches the workers too, which would all have something to say about it.
    heeded = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        cluster = LocalCluster(
            n_workers=args.local,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            silence_logs=SILENCE,
        )
    except (OSError, RuntimeError) as error:
        raise Trouble(f"no cluster on this machine: {error}") from None
    finally:
        signal.signal(signal.SIGINT, heeded)
    return Client(cluster), cluster


def main():
    args = arguments()
    options = [word for pair in args.set for word in ("--set", pair)]
    options += ["--seed", args.seed] if args.seed is not None else []
    check = [args.farhaul, "sim", "check", args.scenario, *options, "--json"]
    try:
        checked = subprocess.run(check, stdout=subprocess.PIPE, text=True, check=False)
    except OSError as error:
        raise Trouble(f"{args.farhaul}: {error}") from None
    if checked.returncode != 0:
        return checked.returncode
    points = json.loads(checked.stdout)["points"]

    client, cluster = connect(args)
    try:
        results, failures = sweep(
            client, args.farhaul, args.scenario, options, points, args.retries
        )
    except BaseException:
        logging.getLogger("distributed").setLevel(SILENCE)
        raise
    finally:
        client.close()
        if cluster is not None:
            cluster.close()
    for point, why in sorted(failures.items()):
        print(f"point {point} failed: {why}", file=sys.stderr)
    if not results:
        return 1
    with tempfile.TemporaryDirectory() as directory:
        gathered = os.path.join(directory, "points.json")
        with open(gathered, "w", encoding="utf-8") as file:
            file.writelines(results[point] for point in sorted(results))
        command = [args.farhaul, "sim", "gather", gathered]
        if not any(json.loads(result).get("title") for result in results.values()):
            # As `sim run` calls what has no title.
            command += ["--name", os.path.splitext(os.path.basename(args.scenario))[0]]
        table = subprocess.run(command + (["--json"] if args.json else []), check=False)
    return 1 if failures else table.returncode


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Trouble as trouble:
        print(f"dask_sweep.py: {trouble}", file=sys.stderr)
        sys.exit(trouble.code)
    except KeyboardInterrupt:
        print("dask_sweep.py: interrupted", file=sys.stderr)
        sys.exit(130)
