"""A private sshd, and how ssh, scp and rsync reach it."""

import os
import shutil
import socket
import subprocess

# As sshd of Debian: scp speaks SFTP.
_SFTP_SERVERS = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "internal-sftp")


class Sshd:
    """Keys and a configuration in `folder`; the server itself is started for each measurement."""

    def __init__(self, folder, address):
        self.folder = folder
        self.address = address
        self.program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
        if self.program is None:
            raise SystemExit("there is no sshd; Debian has it in openssh-server")
        os.makedirs(folder, exist_ok=True)
        for key in ("host_key", "user_key"):
            if not os.path.exists(f"{folder}/{key}"):
                command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/{key}"]
                subprocess.run(command, check=True)
        shutil.copy(f"{folder}/user_key.pub", f"{folder}/authorized_keys")
        if os.geteuid() == 0:
            # Where it locks its helpers into; its service makes it otherwise.
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)

    def command(self):
        """The server, and the port it listens at, a new one each time."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        sftp = next(s for s in _SFTP_SERVERS if os.path.exists(s) or s == "internal-sftp")
        lines = [
            f"ListenAddress {self.address}:{self.port}",
            f"HostKey {self.folder}/host_key",
            f"AuthorizedKeysFile {self.folder}/authorized_keys",
            f"PidFile {self.folder}/pid",
            f"Subsystem sftp {sftp}",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin prohibit-password",
            "MaxStartups 100",
            "PrintMotd no",
            "",
        ]
        with open(f"{self.folder}/config", "w") as f:
            f.write("\n".join(lines))
        return [self.program, "-D", "-e", "-f", f"{self.folder}/config"], self.port

    def options(self, cipher=None):
        """For ssh and scp, without the port, for which each has a letter of its own."""
        settings = [
            "IdentitiesOnly=yes",
            "BatchMode=yes",
            "StrictHostKeyChecking=no",
            f"UserKnownHostsFile={self.folder}/known_hosts",
            "LogLevel=ERROR",
        ]
        options = ["-F", "none", "-i", f"{self.folder}/user_key"]
        for setting in settings:
            options += ["-o", setting]
        return options + (["-c", cipher] if cipher else [])

    def ssh(self, cipher=None):
        """What --ssh of farhaul and -e of rsync take."""
        return " ".join(["ssh", "-p", str(self.port), *self.options(cipher)])
