"""Two network namespaces joined by a veth pair, and the offloads of their devices.

Needs root. Everything is done with `ip` and the kernel's own interfaces; no ethtool program.
"""

import array
import ctypes
import errno
import fcntl
import os
import socket
import struct
import subprocess
import threading

NAMES = ("fh-a", "fh-b")
DEVICES = ("fh-veth-a", "fh-veth-b")
ADDRESSES = ("10.199.77.1", "10.199.77.2")
LOCK = "/run/lock/farhaul-bench.lock"

# The features that make up "segmentation offload": with them off, the kernel cuts large sends in
# software just before the device (generic segmentation stays on).
SEGMENTATION = ("tx-udp-segmentation", "tx-tcp-segmentation", "tx-tcp6-segmentation")
RECEIVE = ("rx-gro",)

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def enter(name):
    """Moves the calling thread (in a forked child: the process) into the namespace, given by its
    name or by the path of its file."""
    descriptor = os.open(os.path.join("/run/netns", name), os.O_RDONLY)
    try:
        if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns {name}")
    finally:
        os.close(descriptor)


class Namespaces:
    """Context manager: creates both namespaces, deletes them whatever happens inside."""

    def __enter__(self):
        self._lock = open(LOCK, "w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SystemExit("another benchmark is using the namespaces fh-a and fh-b")
        self._delete()  # what a killed run may have left
        try:
            self._create()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._delete()
        self._lock.close()

    def _create(self):
        for name in NAMES:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("link", "add", DEVICES[0], "netns", NAMES[0], "type", "veth",
           "peer", "name", DEVICES[1], "netns", NAMES[1])
        for name, device, address in zip(NAMES, DEVICES, ADDRESSES):
            ip("-n", name, "address", "add", f"{address}/24", "dev", device)
            ip("-n", name, "link", "set", device, "up")

    def _delete(self):
        present = os.listdir("/run/netns") if os.path.isdir("/run/netns") else []
        for name in NAMES:
            if name in present:
                ip("netns", "delete", name)

    def configure(self, mtu, segmentation, gro):
        """Sets the MTU of the pair, and the offloads of the pair and of the loopback devices."""
        for name, device in zip(NAMES, DEVICES):
            ip("-n", name, "link", "set", device, "mtu", str(mtu))
            wanted = {feature: segmentation for feature in SEGMENTATION}
            set_features(name, "lo", wanted)
            set_features(name, device, {**wanted, **{feature: gro for feature in RECEIVE}})


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


# ---- device features (the ioctl behind ethtool -K) --------------------------------------------

_SIOCETHTOOL = 0x8946
_GSTRINGS, _GSSET_INFO, _GFEATURES, _SFEATURES = 0x1B, 0x37, 0x3A, 0x3B
_FEATURE_STRINGS = 4
_NAME_BYTES = 32


def set_features(namespace, device, wanted):
    """Turns features on or off by name; raises if the device does not end up as wanted."""
    with _socket_in(namespace) as control:
        names = _feature_names(control, device)
        blocks = (len(names) + 31) // 32
        masks = [[0, 0] for _ in range(blocks)]
        for name, on in wanted.items():
            block, bit = divmod(names.index(name), 32)
            masks[block][0] |= 1 << bit
            masks[block][1] |= (1 << bit) if on else 0
        words = [word for mask in masks for word in mask]
        _ethtool(control, device, struct.pack(f"=II{len(words)}I", _SFEATURES, blocks, *words))

        raw = _ethtool(control, device, struct.pack("=II", _GFEATURES, blocks) + bytes(16 * blocks))
        active = struct.unpack(f"={4 * blocks}I", raw[8:])[2::4]
        for name, on in wanted.items():
            block, bit = divmod(names.index(name), 32)
            if bool(active[block] >> bit & 1) != on:
                raise OSError(errno.EOPNOTSUPP, f"{device}: {name} stays {'off' if on else 'on'}")


def _feature_names(control, device):
    request = struct.pack("=IIQI", _GSSET_INFO, 0, 1 << _FEATURE_STRINGS, 0)
    count = struct.unpack("=IIQI", _ethtool(control, device, request))[3]
    request = struct.pack("=III", _GSTRINGS, _FEATURE_STRINGS, count) + bytes(_NAME_BYTES * count)
    strings = _ethtool(control, device, request)[12:]
    return [
        strings[at : at + _NAME_BYTES].split(b"\0")[0].decode()
        for at in range(0, _NAME_BYTES * count, _NAME_BYTES)
    ]


def _ethtool(control, device, request):
    buffer = array.array("B", request)
    address, _ = buffer.buffer_info()
    name = device.encode().ljust(16, b"\0")
    fcntl.ioctl(control, _SIOCETHTOOL, struct.pack("16sP16x", name, address))
    return buffer.tobytes()


def _socket_in(namespace):
    """A socket of another namespace: it stays there, the thread that made it ends here."""
    made = []

    def make():
        try:
            enter(namespace)
            made.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]
