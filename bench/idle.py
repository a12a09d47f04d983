#!/usr/bin/env python3
"""What idle connections cost: processor time and memory of 1 and of 1,000 on one port.

Builds and runs the library's example `idle`, both sides in processes of their own on loopback.
"""

import argparse
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(binary: pathlib.Path, count: int, seconds: float) -> None:
    """Opens `count` connections, waits, and shows what both sides print."""
    listener = subprocess.Popen(
        [binary, "listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    )
    try:
        address = listener.stdout.readline().split()[-1]
        subprocess.run([binary, "connect", address, str(count), str(seconds)], check=True)
        print(listener.stdout.read(), end="")
    finally:
        listener.kill()
        listener.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    args = parser.parse_args()
    subprocess.run(
        ["cargo", "build", "--quiet", "--release", "-p", "farhaul", "--example", "idle"],
        cwd=ROOT,
        check=True,
    )
    for count in (1, 1000):
        run(ROOT / "target/release/examples/idle", count, args.seconds)


if __name__ == "__main__":
    main()
