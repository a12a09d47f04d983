"""A path made by `farhaul wan run`, as two namespaces in which anything can be started."""

import json
import os
import signal
import subprocess
import tempfile
import time

FAR = "10.77.0.2"
# TCP may fill the path: its buffers grow to the bandwidth-delay product of 5 Gb/s and 100 ms.
_BUFFERS = {"tcp_rmem": "4096 131072 67108864", "tcp_wmem": "4096 16384 67108864"}
_READY_S = 10.0


class Path:
    """Context manager. `near` and `far` are namespaces for `netns.enter`."""

    def __init__(self, farhaul, options):
        self.options = options
        self._folder = tempfile.TemporaryDirectory(prefix="farhaul-path-")
        folder = self._folder.name
        ends = {end: f"{folder}/{end}" for end in ("near", "far")}
        raise_buffers = "".join(
            f"echo '{value}' > /proc/sys/net/ipv4/{name}; " for name, value in _BUFFERS.items()
        )
        stay = {
            end: f"{raise_buffers} echo $$ > {file}.new; mv {file}.new {file}; exec sleep infinity"
            for end, file in ends.items()
        }
        self._counters = f"{folder}/counters"
        command = [farhaul, "wan", "run", *options.split(), "--counters", self._counters]
        command += ["--far", stay["far"], "--", "sh", "-c", stay["near"]]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self.pid = self._process.pid
        self.counters = None
        self._holders = {}
        try:
            self._holders = {end: self._number(file) for end, file in ends.items()}
        except BaseException:
            self.close()
            raise
        self.near, self.far = (f"/proc/{self._holders[end]}/ns/net" for end in ("near", "far"))

    def _number(self, file):
        deadline = time.monotonic() + _READY_S
        while time.monotonic() < deadline and self._process.poll() is None:
            if os.path.exists(file):
                with open(file) as f:
                    return int(f.read())
            time.sleep(0.01)
        raise SystemExit("there is no path: farhaul wan run has ended, or does not begin")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends the path; `counters` is then what it has counted."""
        if self._process.poll() is None and self._holders:
            # The path writes its counters when its command ends.
            os.kill(self._holders["near"], signal.SIGTERM)
        elif self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._process.wait()
        if os.path.exists(self._counters):
            with open(self._counters) as f:
                self.counters = json.load(f)
        self._folder.cleanup()
