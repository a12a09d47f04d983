//! A real sshd on loopback with a configuration of its own, for whoever runs the tests.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use tempfile::TempDir;

/// Runs until it is dropped.
pub struct Sshd {
    /// Where it listens.
    pub port: u16,
    /// What `--ssh` takes to reach it; words parted by spaces, as paths of temporary folders allow.
    pub ssh_command: String,
    child: Child,
    _folder: TempDir,
}

impl Sshd {
    /// Starts it on 127.0.0.1; the error says why a test that needs it is to be skipped.
    pub fn start() -> Result<Sshd, String> {
        Self::start_at("127.0.0.1")
    }

    /// The same on another address.
    pub fn start_at(address: &str) -> Result<Sshd, String> {
        let sshd = sshd_program().ok_or("there is no sshd (openssh-server)")?;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name);
        for name in ["host_key", "user_key"] {
            let keygen = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(path(name))
                .stdin(Stdio::null())
                .output()
                .map_err(|error| format!("there is no ssh-keygen (openssh-client): {error}"))?;
            assert!(keygen.status.success(), "{}", String::from_utf8_lossy(&keygen.stderr));
        }
        fs::copy(path("user_key.pub"), path("authorized_keys")).expect("a copy of the key");
        privilege_separation_folder()?;
        // Another program may take the port before sshd does.
        let mut last = String::new();
        for _ in 0..5 {
            let port = TcpListener::bind((address, 0)).and_then(|l| l.local_addr());
            let port = port.map_err(|error| format!("{address}: {error}"))?.port();
            fs::write(path("config"), config(folder.path(), (address, port)))
                .expect("a configuration");
            match listening(&sshd, &path("config")) {
                Ok(child) => {
                    let ssh_command = ssh_command(folder.path(), port);
                    let sshd = Sshd { port, ssh_command, child, _folder: folder };
                    return sshd.try_out(address).map(|()| sshd);
                }
                Err(why) => last = why,
            }
        }
        Err(format!("sshd does not start: {last}"))
    }

    /// Some hosts let nobody in: accounts may be locked.
    fn try_out(&self, address: &str) -> Result<(), String> {
        let mut words = self.ssh_command.split(' ');
        let output = Command::new(words.next().expect("a program"))
            .args(words)
            .args([address, "true"])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("there is no ssh (openssh-client): {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(format!("sshd lets nobody in: {said}")) }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// It is often not in the path of users. sshd starts itself anew by its whole path.
fn sshd_program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join("sshd"))
        .find(|program| program.is_file())
}

/// As root sshd wants an empty folder to lock its helpers into, which its service makes otherwise.
fn privilege_separation_folder() -> Result<(), String> {
    let id = Command::new("id").arg("-u").output().map_err(|error| error.to_string())?;
    if id.stdout.trim_ascii() == b"0" {
        fs::create_dir_all("/run/sshd").map_err(|error| format!("no /run/sshd: {error}"))?;
        let _ = fs::set_permissions("/run/sshd", fs::Permissions::from_mode(0o755));
    }
    Ok(())
}

fn config(folder: &Path, (address, port): (&str, u16)) -> String {
    let folder = folder.display();
    let address = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
    format!(
        "ListenAddress {address}:{port}\nHostKey {folder}/host_key\n\
         AuthorizedKeysFile {folder}/authorized_keys\nPidFile {folder}/pid\n\
         StrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         PermitRootLogin prohibit-password\nMaxStartups 100\nPrintMotd no\n"
    )
}

fn ssh_command(folder: &Path, port: u16) -> String {
    let folder = folder.display();
    format!(
        "ssh -p {port} -i {folder}/user_key -F none -o IdentitiesOnly=yes -o BatchMode=yes \
         -o StrictHostKeyChecking=no -o UserKnownHostsFile={folder}/known_hosts -o LogLevel=ERROR"
    )
}

/// Starts sshd and waits until it says that it listens.
fn listening(sshd: &Path, config: &Path) -> Result<Child, String> {
    let mut child = Command::new(sshd)
        .args(["-D", "-e", "-f"])
        .arg(config)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let mut stderr = BufReader::new(child.stderr.take().expect("asked for"));
    let mut said = String::new();
    while !said.contains("Server listening on") {
        if !matches!(stderr.read_line(&mut said), Ok(1..)) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(said);
        }
    }
    // It must not wait for somebody who reads what it says.
    thread::spawn(move || stderr.read_to_end(&mut Vec::new()));
    Ok(child)
}
