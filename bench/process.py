"""Runs a sender and a receiver, each a process of its own, and accounts for them."""

import functools
import json
import os
import signal
import subprocess
import tempfile
import time

import machine
import netns

# Socket states in /proc/net: an unconnected UDP socket, a listening TCP socket.
_OPEN_STATES = ("07", "0A")


class Failed(Exception):
    """One run did not deliver a result."""


class Process:
    """A child with its output in a file, waited for with its own resource usage."""

    def __init__(self, command, namespace, environment=None):
        self.out = tempfile.TemporaryFile("w+")
        self.err = tempfile.TemporaryFile("w+")
        self.usage = None
        self.name = os.path.basename(command[0])
        self.began = time.monotonic()
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self.out,
            stderr=self.err,
            env=environment and {**os.environ, **environment},
            preexec_fn=functools.partial(netns.enter, namespace) if namespace else None,
        )
        self.pid = self._popen.pid

    def poll(self):
        """True once the child has ended."""
        if self.usage is None:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid != 0:
                self._popen.returncode = os.waitstatus_to_exitcode(status)
                self.usage = usage
        return self.usage is not None

    def kill(self):
        if not self.poll():
            os.kill(self.pid, signal.SIGKILL)
            while not self.poll():
                time.sleep(0.02)
        self.out.close()
        self.err.close()

    def check_exit(self):
        """Raises if the child has ended with anything but success."""
        if self._popen.returncode != 0:
            raise Failed(f"{self.name}: exit {self._popen.returncode}: {self.stderr()}")

    def result(self):
        """The JSON document on standard output, or its last line."""
        self.out.seek(0)
        text = self.out.read().strip()
        for candidate in (text, text.rpartition("\n")[2]):
            try:
                return json.loads(candidate)
            except ValueError:
                continue
        raise Failed(f"{self.name}: no result")

    def stderr(self):
        self.err.seek(0)
        return self.err.read().strip()[-300:]

    def cpu_s(self):
        return self.usage.ru_utime + self.usage.ru_stime

    def user_s(self):
        return self.usage.ru_utime


def measure(receiver, sender, port, namespaces, seconds):
    """One run. `receiver` and `sender` are commands, `namespaces` where each runs (None: here).

    Returns bytes, seconds, bits_per_second as the receiver saw them, CPU seconds of both
    processes by the kernel's account, CPU seconds of the whole machine in the meantime, and what
    other programs took: their user time in cores, because system time may be the kernel's work
    for the two.
    """
    processes = []
    try:
        processes.append(Process(receiver, namespaces[0]))
        wait_for_port(processes[0], port)
        began, before = time.monotonic(), machine.busy_s()
        processes.append(Process(sender, namespaces[1]))
        _wait_for_all(processes, began + seconds + 40)
        own, busy = (after - start for after, start in zip(machine.busy_s(), before))
        elapsed = time.monotonic() - began
        received, sent = (process.result() for process in processes)
        seen = _receiver_side(received, sent)
        return {
            "bytes": seen["bytes"],
            "seconds": seen["seconds"],
            "bits_per_second": seen["bits_per_second"],
            "cpu_s": sum(process.cpu_s() for process in processes),
            "cpu_s_receiver": processes[0].cpu_s(),
            "cpu_s_sender": processes[1].cpu_s(),
            "cpu_s_machine": busy,
            "disturbance_cores": (own - sum(p.user_s() for p in processes)) / elapsed,
            "receiver": received,
            "sender": sent,
        }
    finally:
        for process in processes:
            process.kill()


def _wait_for_all(processes, deadline):
    """Until all have ended well; the first that fails ends the run."""
    running = list(processes)
    while running:
        for process in [p for p in running if p.poll()]:
            process.check_exit()
            running.remove(process)
        if running and time.monotonic() > deadline:
            names = ", ".join(f"{p.name} ({p.stderr()})" for p in running)
            raise Failed(f"does not end: {names}")
        time.sleep(0.02)


def _receiver_side(received, sent):
    for report in (received, sent.get("peer"), sent):
        if isinstance(report, dict) and report.get("bytes") and report.get("bits_per_second"):
            return report
    raise Failed("nothing was transferred")


def wait_for_port(process, port):
    """Until the process's namespace has a socket bound to the port (UDP, or listening TCP)."""
    suffix = f":{port:04X}"
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if process.poll():
            raise Failed(f"{process.name} ended at once: {process.stderr()}")
        for table in ("udp", "udp6", "tcp", "tcp6"):
            with open(f"/proc/{process.pid}/net/{table}") as lines:
                for line in lines:
                    fields = line.split()
                    if fields[1].endswith(suffix) and fields[3] in _OPEN_STATES:
                        return
        time.sleep(0.01)
    raise Failed(f"{process.name} does not open port {port}")
