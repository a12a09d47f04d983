"""The machine as a whole: its load, its limits, what it is."""

import contextlib
import os
import platform
import time

_TICKS = os.sysconf("SC_CLK_TCK")
# Enough for libudt's largest useful UDP buffer; distributions often allow 208 KiB.
_SOCKET_BUFFER_LIMIT = 64 << 20
_LIMITS = ("/proc/sys/net/core/rmem_max", "/proc/sys/net/core/wmem_max")

# More than this many cores' worth of other programs' work spoils a run.
DISTURBED_CORES = 0.15


def busy_s():
    """(CPU seconds in programs' own code, CPU seconds in all), since the machine started."""
    with open("/proc/stat") as f:
        user, nice, system, _idle, _iowait, irq, softirq = map(int, f.readline().split()[1:8])
    own = user + nice
    return own / _TICKS, (own + system + irq + softirq) / _TICKS


def wait_until_quiet(limit_s):
    """Waits, limit_s at most, for half a second in which the machine does nothing to speak of."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        before = busy_s()[1]
        time.sleep(0.5)
        if (busy_s()[1] - before) / 0.5 <= DISTURBED_CORES:
            return


@contextlib.contextmanager
def raised_limits():
    """Lets every program have the UDP buffers it asks for; the old limits come back."""
    before = {}
    try:
        for path in _LIMITS:
            with open(path) as f:
                value = f.read().strip()
            if os.geteuid() == 0 and int(value) < _SOCKET_BUFFER_LIMIT:
                before[path] = value
                with open(path, "w") as f:
                    f.write(str(_SOCKET_BUFFER_LIMIT))
        yield
    finally:
        for path, value in before.items():
            with open(path, "w") as f:
                f.write(value)


def description():
    with open("/proc/cpuinfo") as f:
        model = next((line.split(": ")[1].strip() for line in f if "model name" in line), "")
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "kernel": platform.release(),
        "cpu": model,
        "cores": os.cpu_count(),
    }
