"""A tree of processes, with the account of all that was ever in it.

A process of its own becomes the parent of all orphans below it (PR_SET_CHILD_SUBREAPER), so that what
ssh has started on its far side is accounted for, too, whoever has left it behind.
"""

import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
import traceback

import machine
import process

_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)
# How long what a command leaves behind may take to end.
_LINGER_S = 20.0


class Tree:
    """Only within `in_tree`."""

    def __init__(self):
        self.reaped_rss = {}
        # Those that stay.
        self.kept = []

    def start(self, command, namespace=None, environment=None):
        return process.Process(command, namespace, environment)

    def settle(self):
        """Waits until nobody is left but those that stay. How many seconds that took."""
        began = time.monotonic()
        while left := self._left():
            if time.monotonic() - began > _LINGER_S:
                names = ", ".join(map(_name, left))
                raise process.Failed(f"still runs {_LINGER_S:.0f} s after the command: {names}")
            time.sleep(0.005)
        return time.monotonic() - began

    def end(self):
        """Kills whoever is left but those that stay."""
        while left := self._left():
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.002)

    def _left(self):
        """Who is left but those that stay. Takes notice of those that have ended."""
        kept = {one.pid for one in self.kept}
        for pid, parent in _processes():
            if parent != os.getpid() or pid in kept:
                continue
            found, _, usage = os.wait4(pid, os.WNOHANG)
            if found:
                self.reaped_rss[pid] = usage.ru_maxrss
        return [pid for pid in _below(os.getpid()) if pid not in kept]


def wait(child, limit_s, look=None, every_s=0.1):
    """Until `child` ends, or `look()`, done every so often, is true, or the time is over. Seconds
    since before its start, and whether it has ended by itself."""
    began = child.began
    descriptor = os.pidfd_open(child.pid)
    try:
        while True:
            left = began + limit_s - time.monotonic()
            ready, _, _ = select.select([descriptor], [], [], max(0.0, min(every_s, left)))
            if ready:
                seconds = time.monotonic() - began
                while not child.poll():
                    time.sleep(0.001)
                return seconds, True
            if time.monotonic() >= began + limit_s or (look is not None and look()):
                return time.monotonic() - began, False
    finally:
        os.close(descriptor)


def measure(work, server, server_port, far, others=()):
    """`work(tree)` in a process of its own, with `server`, a command, running in `far` meanwhile.

    `work` returns a dict. To it are added CPU seconds of all processes below (the server's start is
    not counted), the largest memory of one process that is not `work`'s own, in bytes, how long it
    took until what `work` has left behind had ended, and what other programs took, in cores; `others`
    are processes that are part of the measurement, but not of the account.
    """

    def inside(tree):
        daemon = tree.start(server, far)
        tree.kept.append(daemon)
        process.wait_for_port(daemon, server_port)
        before = _cpu_s(daemon.pid)
        own, busy, emulated = *machine.busy_s(), sum(map(_user_s, others))
        began = time.monotonic()
        result = work(tree)
        result["linger_s"] = tree.settle()
        elapsed = time.monotonic() - began
        own, busy = (after - start for after, start in zip(machine.busy_s(), (own, busy)))
        emulated = sum(map(_user_s, others)) - emulated
        os.kill(daemon.pid, signal.SIGTERM)
        wait(daemon, time.monotonic() - daemon.began + 10.0)
        daemon.kill()
        tree.kept.clear()
        tree.settle()
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = usage.ru_utime + usage.ru_stime - before
        # Sessions have left the server, or have been waited for by it.
        far_rss = max([daemon.usage.ru_maxrss, *tree.reaped_rss.values()])
        return result | {
            "cpu_s": cpu,
            "cpu_s_machine": busy,
            "rss_far": far_rss << 10,
            "disturbance_cores": (own - usage.ru_utime - emulated) / elapsed,
        }

    return in_tree(inside)


def in_tree(work):
    """What `work(tree)` returns, a dict, from a process of its own. Nothing of it is left after."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _serve(work, writing)
    os.close(writing)
    try:
        with os.fdopen(reading) as pipe:
            text = pipe.read()
        os.waitpid(child, 0)
    except BaseException:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
        raise
    if not text:
        raise process.Failed("the process that measures has gone")
    result = json.loads(text)
    if "error" in result:
        raise process.Failed(result["error"])
    return result


def _serve(work, writing):
    """Never returns."""
    code = 1
    try:
        if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
        tree = Tree()
        try:
            result = work(tree)
        except process.Failed as failure:
            result = {"error": str(failure)}
        finally:
            # A second Ctrl-C must not leave anybody behind.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            tree.kept.clear()
            tree.end()
        with os.fdopen(writing, "w") as pipe:
            json.dump(result, pipe)
        code = 0
    except KeyboardInterrupt:
        pass
    except BaseException:
        traceback.print_exc()
    os._exit(code)


def _processes():
    """(process, its parent) of all."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _stat(int(name))
            if fields:
                yield int(name), int(fields[1])


def _below(top):
    """All descendants."""
    children = {}
    for pid, parent in _processes():
        children.setdefault(parent, []).append(pid)
    found, left = [], [top]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return found


def _stat(pid):
    """The fields of /proc/PID/stat from the state on, None if it has gone."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _name(pid):
    try:
        with open(f"/proc/{pid}/cmdline") as f:
            return f.read().replace("\0", " ").strip()
    except (FileNotFoundError, ProcessLookupError):
        return str(pid)


def _cpu_s(pid):
    """CPU seconds of a process with one thread, by the scheduler's account."""
    with open(f"/proc/{pid}/schedstat") as f:
        return int(f.read().split()[0]) / 1e9


def _user_s(pid):
    fields = _stat(pid)
    return int(fields[11]) / os.sysconf("SC_CLK_TCK") if fields else 0.0
