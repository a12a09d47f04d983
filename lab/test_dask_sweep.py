"""The Dask driver against `farhaul sim run`. FARHAUL is the program."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
FARHAUL = os.environ.get("FARHAUL", "farhaul")
SCENARIO = """
duration = "2s"
[sweep]
rate = ["5M", "10M"]
loss = ["none", "1%"]
seeds = 2
[[link]]
from = "a"
to = "b"
rate = "$rate"
delay = "5ms"
loss = "$loss"
[[flow]]
from = "a"
to = "b"
"""


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


class DaskSweep(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.path = self.write("sweep.toml", SCENARIO)

    def write(self, name, text):
        path = os.path.join(self.directory.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def dask(self, *args, farhaul=FARHAUL):
        driver = os.path.join(HERE, "dask_sweep.py")
        return run(sys.executable, driver, "--local", "2", "--farhaul", farhaul, *args)

    def test_the_table_is_the_same(self):
        with_dask = self.dask(self.path, "--seed", "7", "--set", "rate=[4M,8M]", "--json")
        self.assertEqual(with_dask.returncode, 0, with_dask.stderr)
        alone = run(
            FARHAUL, "sim", "run", self.path, "--seed", "7", "--set", "rate=[4M,8M]", "--json",
            "--no-plot",
        )
        self.assertEqual(json.loads(with_dask.stdout), json.loads(alone.stdout)["table"])
        self.assertEqual(len(json.loads(with_dask.stdout)["rows"]), 4)

    def test_points_that_fail_are_named(self):
        # A program that fails at point 3, and is killed with its worker once at point 5.
        marker = os.path.join(self.directory.name, "killed")
        wrapper = self.write(
            "wrapper",
            f"""#!/bin/sh
case "$*" in
*"--point 3 "*) echo out of order >&2; exit 1 ;;
*"--point 5 "*) [ -e {marker} ] || {{ touch {marker}; kill -9 $PPID; exit 1; }} ;;
esac
exec {FARHAUL} "$@"
""",
        )
        os.chmod(wrapper, 0o755)
        ended = self.dask(self.path, farhaul=wrapper)
        self.assertEqual(ended.returncode, 1, ended.stderr)
        self.assertIn("point 3 failed: out of order", ended.stderr)
        self.assertNotIn("point 5 failed", ended.stderr)
        self.assertTrue(os.path.exists(marker))
        rows = [line for line in ended.stdout.splitlines() if line.startswith(("5M", "10M"))]
        self.assertEqual(len(rows), 4, ended.stdout)

    def test_without_workers(self):
        driver = os.path.join(HERE, "dask_sweep.py")
        for number in ["0", "-1", "two"]:
            ended = run(sys.executable, driver, self.path, "--local", number)
            self.assertEqual(ended.returncode, 2, ended.stderr)
            self.assertIn("give at least 1", ended.stderr)

    def test_a_bad_file(self):
        ended = self.dask(self.write("bad.toml", "duratoin = \"1s\"\n"))
        self.assertEqual(ended.returncode, 2)
        self.assertIn("did you mean", ended.stderr)


if __name__ == "__main__":
    unittest.main()
