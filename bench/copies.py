"""Things to copy, and how each system copies them."""

import filecmp
import os
import shutil
import signal
import subprocess
import time

import process
import tree as trees

CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "chacha20-poly1305@openssh.com")
# A command that copies nothing for so long is ended.
LIMIT_S = 1800.0


class Folder:
    """Where everything lies: sources, targets and the programs' own files."""

    def __init__(self, parent):
        self.path = os.path.join(parent, f"farhaul-bench-{os.getpid()}")
        os.makedirs(self.path)
        self.into = f"{self.path}/into"
        self.home = f"{self.path}/home"
        os.makedirs(self.home)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)

    def file(self, size):
        """A file of random bytes."""
        path = f"{self.path}/file-{size}"
        if not os.path.exists(path):
            with open(path, "wb") as f:
                subprocess.run(["head", "-c", str(size), "/dev/urandom"], stdout=f, check=True)
        return path

    def tree(self, count, size):
        """A tree of `count` files of `size` random bytes each, a thousand to a directory."""
        path = f"{self.path}/tree-{count}-{size}"
        if not os.path.exists(path):
            for number in range(count):
                if number % 1000 == 0:
                    directory = f"{path}/{number // 1000:04}"
                    os.makedirs(directory)
                with open(f"{directory}/{number:06}", "wb") as f:
                    f.write(os.urandom(size))
        return path

    def remove(self, path):
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif os.path.exists(path):
            os.remove(path)

    def fresh_target(self):
        self.remove(self.into)
        os.makedirs(self.into)
        return self.into


def copied_bytes(into):
    """What has arrived, also of what is not complete."""
    total = 0
    for folder, _, names in os.walk(into):
        for name in names:
            try:
                status = os.stat(os.path.join(folder, name))
            except FileNotFoundError:
                continue
            # Of a file that is to become longer only what was written counts.
            total += min(status.st_size, status.st_blocks * 512)
    return total


def _has_come(into):
    """Whether there is anything in a target, be it empty files."""
    with os.scandir(into) as entries:
        return any(entry.is_dir() or entry.stat().st_blocks > 0 for entry in entries)


def check(source, into):
    """Raises unless `into` holds what `source` is."""
    if os.path.isfile(source):
        target = os.path.join(into, os.path.basename(source))
        if not os.path.exists(target) or not filecmp.cmp(source, target, shallow=False):
            raise process.Failed(f"{target} is not what was copied")
        return
    for folder, _, names in os.walk(source):
        there = os.path.join(into, os.path.relpath(folder, source))
        found = set(os.listdir(there)) if os.path.isdir(there) else set()
        _, different, unread = filecmp.cmpfiles(folder, there, names, shallow=False)
        if different or unread or not set(names) <= found:
            raise process.Failed(f"{there} is not what was copied")


def size_of(source):
    if os.path.isfile(source):
        return os.path.getsize(source)
    return sum(os.path.getsize(os.path.join(f, n)) for f, _, names in os.walk(source) for n in names)


class Place:
    """Where a copy is made: over loopback, or through a path."""

    def __init__(self, sshd, path=None):
        self.sshd = sshd
        self.near, self.far = (path.near, path.far) if path else (None, None)
        self.others = (path.pid,) if path else ()


def farhaul(binary, place, source, into, *options):
    remote = binary
    if "--plain" in options:
        # Whoever is written to must allow it.
        remote = os.path.join(place.sshd.folder, "farhaul-plain")
        with open(remote, "w") as f:
            f.write(f'#!/bin/sh\nFARHAUL_PLAIN=true exec "{binary}" "$@"\n')
        os.chmod(remote, 0o755)
    command = [binary, "cp", "--json", "--no-progress", "--ssh", place.sshd.ssh()]
    command += ["--remote-farhaul", remote, *options]
    return command + [_contents(source), f"{place.sshd.address}:{into}"]


def scp(place, source, into, cipher, *options):
    command = ["scp", "-q", "-P", str(place.sshd.port), *place.sshd.options(cipher), *options]
    return [*command, source, f"{place.sshd.address}:{into}"]


def rsync(place, source, into, cipher):
    remote = f"{place.sshd.address}:{into}"
    return ["rsync", "-a", "-e", place.sshd.ssh(cipher), _contents(source), remote]


def _contents(source):
    """As rsync has it: a slash stands for what is in a directory."""
    return source + "/" if os.path.isdir(source) else source


def run(place, folder, source, command, limit_s=LIMIT_S):
    """One copy. `command(into)` is made when the server's port is known. Returns what it took."""
    into = folder.fresh_target()
    server, port = place.sshd.command()
    words = command(into)
    total = size_of(source)

    def work(tree):
        local = tree.start(words, place.near, {"HOME": folder.home})
        # Nobody is to be believed about when it began.
        first, ended = trees.wait(local, limit_s, lambda: _has_come(into), 0.005)
        seconds, ended = (first, True) if ended else trees.wait(local, limit_s)
        record = {"bytes": total, "seconds": seconds, "complete": ended}
        record["data_seconds"] = seconds - first
        if ended:
            local.check_exit()
        else:
            record["bytes"] = copied_bytes(into)
            os.kill(local.pid, signal.SIGTERM)
            trees.wait(local, seconds + 5.0)
        if ended and words[1] == "cp":
            record["report"] = local.result()
            record["transfer_seconds"] = record["report"]["transfer_seconds"]
        local.kill()
        record["rss_near"] = local.usage.ru_maxrss << 10
        record["bits_per_second"] = record["bytes"] * 8 / seconds
        return record

    record = trees.measure(work, server, port, place.far, place.others)
    if record["complete"]:
        check(source, into)
    folder.remove(into)
    return record


def resume(place, folder, source, command, share):
    """A copy by `command(into)` whose near side is killed when `share` of it is there, and the same
    again: when new bytes came, and how many came a second time."""
    into = folder.fresh_target()
    server, port = place.sshd.command()
    words = command(into)
    total = size_of(source)

    def work(tree):
        first = tree.start(words, place.near, {"HOME": folder.home})
        _, ended = trees.wait(first, LIMIT_S, lambda: copied_bytes(into) >= share * total, 0.002)
        if ended:
            first.check_exit()
            raise process.Failed("the copy was over before it could be killed")
        first.kill()
        killed = time.monotonic()
        held = _settled(into)
        noticed = time.monotonic() - killed
        again = tree.start(words, place.near, {"HOME": folder.home})
        # The file loses its temporary name at the end, and is never shorter than it was.
        new_bytes, ended = trees.wait(again, LIMIT_S, lambda: copied_bytes(into) > held, 0.002)
        seconds, ended = trees.wait(again, LIMIT_S)
        if not ended:
            raise process.Failed("the second copy does not end")
        again.check_exit()
        report = again.result()
        again.kill()
        # The first one's far side waits for a while whether it comes back.
        tree.end()
        return {
            "bytes": total,
            "complete": True,
            "seconds": seconds,
            "quiet_s": noticed,
            "until_new_bytes_s": new_bytes,
            "written_before": held,
            "moved_after": report["moved_bytes"],
            "resumed_bytes": report["resumed_bytes"],
            "moved_twice": max(0, held + report["moved_bytes"] - total),
            "rss_near": again.usage.ru_maxrss << 10,
            "report": report,
        }

    record = trees.measure(work, server, port, place.far, place.others)
    check(source, into)
    folder.remove(into)
    return record


def _settled(into):
    """The bytes there, once nothing has come for 50 ms: the far side may still have some to write."""
    last, since = copied_bytes(into), time.monotonic()
    while time.monotonic() - since < 0.05:
        now = copied_bytes(into)
        if now != last:
            last, since = now, time.monotonic()
        time.sleep(0.002)
    return last
