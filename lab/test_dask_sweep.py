"""The Dask driver against `farhaul sim run`. FARHAUL is the program."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

DRIVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dask_sweep.py")
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


def run(*command, env=None):
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, env=env
    )


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

    def wrapper(self, cases):
        """A program that does something else in some cases of its arguments."""
        path = self.write(
            "wrapper",
            f"""#!/bin/sh
case "$*" in
{cases}
esac
exec {FARHAUL} "$@"
""",
        )
        os.chmod(path, 0o755)
        return path

    def dask(self, *args, farhaul=FARHAUL):
        return run(sys.executable, DRIVER, "--local", "2", "--farhaul", farhaul, *args)

    def test_the_table_is_the_same(self):
        with_dask = self.dask(self.path, "--seed", "7", "--set", "rate=[4M,8M]", "--json")
        self.assertEqual(with_dask.returncode, 0, with_dask.stderr)
        alone = run(
            FARHAUL, "sim", "run", self.path, "--seed", "7", "--set", "rate=[4M,8M]", "--json",
            "--no-plot",
        )
        self.assertEqual(json.loads(with_dask.stdout), json.loads(alone.stdout)["table"])
        self.assertEqual(len(json.loads(with_dask.stdout)["rows"]), 4)

    def test_the_title_is_the_same(self):
        path = self.write("titled.toml", 'title = "A link at $rate"\n' + SCENARIO)
        with_dask = self.dask(path, "--json")
        alone = run(FARHAUL, "sim", "run", path, "--json", "--no-plot")
        self.assertEqual(json.loads(with_dask.stdout), json.loads(alone.stdout)["table"])
        self.assertEqual(json.loads(with_dask.stdout)["title"], "A link at …")

    def one_line(self, ended, code, text):
        self.assertEqual(ended.returncode, code, ended.stderr)
        self.assertEqual(ended.stderr.count("\n"), 1, ended.stderr)
        self.assertIn(text, ended.stderr)

    def test_without_a_cluster(self):
        driver = [sys.executable, DRIVER, self.path]
        driver += ["--farhaul", FARHAUL, "--scheduler"]
        for address in ["tcp://127.0.0.1", "tcp://a:b", "foo://x:1", "tls://127.0.0.1:5"]:
            self.one_line(run(*driver, address), 2, address)
        waiting = dict(os.environ, DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT="1s")
        ended = run(*driver, "tcp://127.0.0.1:1", env=waiting)
        self.one_line(ended, 1, "tcp://127.0.0.1:1")

    def test_without_dask(self):
        # A package of that name that has nothing in it stands before it.
        os.mkdir(os.path.join(self.directory.name, "dask"))
        self.write("dask/__init__.py", "")
        env = dict(os.environ, PYTHONPATH=self.directory.name)
        command = [sys.executable, DRIVER, self.path, "--local", "1", "--farhaul", FARHAUL]
        self.one_line(run(*command, env=env), 1, "pip install -r lab/requirements.txt")

    def test_interrupted(self):
        # A program whose points do not end; it says that one has begun.
        begun = os.path.join(self.directory.name, "begun")
        wrapper = self.wrapper(f'*"--point"*) touch {begun}; exec sleep 100 ;;')
        command = [sys.executable, DRIVER, self.path, "--local", "2", "--farhaul", wrapper]
        # As on a terminal the signal goes to all processes of the group.
        # Where the tests run in the background it is ignored.
        heed = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)
        sweep = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=heed
        )
        while not os.path.exists(begun):
            self.assertIsNone(sweep.poll())
            time.sleep(0.05)
        os.killpg(sweep.pid, signal.SIGINT)
        errors = sweep.communicate(timeout=60)[1]
        self.maxDiff = None
        self.assertEqual((sweep.returncode, errors), (130, "dask_sweep.py: interrupted\n"))

    def test_points_that_fail_are_named(self):
        # A program that fails at point 3, and is killed with its worker once at point 5.
        marker = os.path.join(self.directory.name, "killed")
        wrapper = self.wrapper(
            f"""*"--point 3 "*) echo out of order >&2; exit 1 ;;
*"--point 5 "*) [ -e {marker} ] || {{ touch {marker}; kill -9 $PPID; exit 1; }} ;;"""
        )
        ended = self.dask(self.path, farhaul=wrapper)
        self.assertEqual(ended.returncode, 1, ended.stderr)
        self.assertIn("point 3 failed: out of order", ended.stderr)
        self.assertNotIn("point 5 failed", ended.stderr)
        self.assertTrue(os.path.exists(marker))
        rows = [line for line in ended.stdout.splitlines() if line.startswith(("5M", "10M"))]
        self.assertEqual(len(rows), 4, ended.stdout + ended.stderr)

    def test_without_workers(self):
        for number in ["0", "-1", "two"]:
            ended = run(sys.executable, DRIVER, self.path, "--local", number)
            self.assertEqual(ended.returncode, 2, ended.stderr)
            self.assertIn("give at least 1", ended.stderr)

    def test_a_bad_file(self):
        ended = self.dask(self.write("bad.toml", "duratoin = \"1s\"\n"))
        self.assertEqual(ended.returncode, 2)
        self.assertIn("did you mean", ended.stderr)


if __name__ == "__main__":
    unittest.main()
