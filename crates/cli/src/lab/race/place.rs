//! Where the files of a race lie: what is copied and where to, and what a private sshd needs.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use farhaul_base::Rng;

use super::folder::Folder;

/// Memory, where the system has it: a disk would be raced, too.
const MEMORY: &str = "/dev/shm";
const SOURCE: &str = "file";
/// As Debian and others have it; sshd's own otherwise.
const SFTP_SERVERS: [&str; 2] =
    ["/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server"];
/// Where sshd locks its helpers into; its service makes it otherwise.
const SSHD_FOLDER: &str = "/run/sshd";
/// Programs of administrators are not in the path of users.
const MORE_PATHS: &str = "/usr/sbin:/usr/local/sbin:/sbin";

/// A folder that goes with the race.
pub struct Place {
    folder: Folder,
    /// Where programs are looked for.
    pub path: String,
    /// Bytes of the source, if there is one.
    size: Option<u64>,
}

impl Place {
    /// `peers`: a folder with programs, which need not exist.
    pub fn new(peers: &Path) -> Result<Place> {
        let memory = Path::new(MEMORY);
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let folder = Folder::create(&parent).context("cannot make a folder for what is copied")?;
        let known = std::env::var("PATH").unwrap_or_default();
        let path = match std::path::absolute(peers) {
            Ok(peers) => format!("{}:{known}:{MORE_PATHS}", peers.display()),
            Err(_) => format!("{known}:{MORE_PATHS}"),
        };
        Ok(Place { folder, path, size: None })
    }

    /// Where a program is, if it is installed.
    pub fn find(&self, program: &str) -> Option<PathBuf> {
        let folders = self.path.split(':').filter(|folder| !folder.is_empty());
        folders.map(|folder| Path::new(folder).join(program)).find(|path| path.is_file())
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The file to copy, of so many random bytes.
    pub fn source(&mut self, bytes: u64) -> Result<PathBuf> {
        let path = self.at(SOURCE);
        if self.size != Some(bytes) {
            self.size = None;
            write_random(&path, bytes).context("cannot write the file to copy")?;
            self.size = Some(bytes);
        }
        Ok(path)
    }

    /// An empty folder to copy into.
    pub fn target(&self, number: usize) -> Result<PathBuf> {
        let path = self.at(&format!("target-{number}"));
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir(&path)?;
        Ok(path)
    }

    /// Whether the target has what the source has.
    pub fn is_copied(&self, target: &Path) -> bool {
        let files = (File::open(self.at(SOURCE)), File::open(target.join(SOURCE)));
        let (Ok(mut source), Ok(mut copy)) = files else { return false };
        let (mut one, mut other) = (vec![0; 1 << 20], vec![0; 1 << 20]);
        loop {
            let Ok(length) = source.read(&mut one) else { return false };
            if length == 0 {
                return matches!(copy.read(&mut other), Ok(0));
            }
            if copy.read_exact(&mut other[..length]).is_err() || one[..length] != other[..length] {
                return false;
            }
        }
    }

    /// Keys and configurations for an sshd at that address and for who reaches it; the command of the sshd.
    pub fn ssh(&self, address: &str, port: u16) -> Result<String> {
        for name in ["host_key", "user_key"] {
            self.make_key(name)?;
        }
        fs::copy(self.at("user_key.pub"), self.at("authorized_keys"))?;
        if !Path::new(SSHD_FOLDER).exists() {
            let made = fs::DirBuilder::new().mode(0o755).create(SSHD_FOLDER);
            made.with_context(|| format!("cannot make {SSHD_FOLDER}, which sshd needs"))?;
        }
        let sftp = SFTP_SERVERS.into_iter().find(|path| Path::new(path).exists());
        let folder = self.folder.path().display();
        let server = self.at(&format!("sshd_config-{port}"));
        fs::write(
            &server,
            format!(
                "ListenAddress {address}:{port}\nHostKey {folder}/host_key\n\
                 AuthorizedKeysFile {folder}/authorized_keys\nPidFile none\n\
                 Subsystem sftp {}\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n\
                 KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n\
                 MaxStartups 100\nPrintMotd no\nUseDNS no\n",
                sftp.unwrap_or("internal-sftp"),
            ),
        )?;
        fs::write(
            self.ssh_config(port),
            format!(
                "Host {address}\n Port {port}\n User root\n IdentityFile {folder}/user_key\n \
                 IdentitiesOnly yes\n BatchMode yes\n StrictHostKeyChecking no\n \
                 UserKnownHostsFile {folder}/known_hosts\n LogLevel ERROR\n"
            ),
        )?;
        let sshd = self.find("sshd").context("there is no sshd")?;
        let words = [sshd.display().to_string(), "-D".into(), "-e".into(), "-f".into()];
        let words = words.into_iter().chain([server.display().to_string()]);
        Ok(format!("exec {}", shell_words::join(words)))
    }

    /// What tells ssh how to reach the sshd at that port.
    pub fn ssh_config(&self, port: u16) -> PathBuf {
        self.at(&format!("ssh_config-{port}"))
    }

    pub fn ssh_key(&self) -> PathBuf {
        self.at("user_key")
    }

    fn make_key(&self, name: &str) -> Result<()> {
        let path = self.at(name);
        if path.exists() {
            return Ok(());
        }
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(&path)
            .stdin(Stdio::null())
            .output()
            .context("cannot run ssh-keygen")?;
        if !made.status.success() {
            bail!("ssh-keygen: {}", String::from_utf8_lossy(&made.stderr).trim_end());
        }
        Ok(())
    }
}

/// Bytes that no compression makes fewer.
fn write_random(path: &Path, bytes: u64) -> Result<()> {
    let mut rng = Rng::new(bytes);
    let mut file = File::create(path)?;
    let mut block = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        block.chunks_exact_mut(8).for_each(|word| {
            word.copy_from_slice(&rng.next_u64().to_le_bytes());
        });
        let length = left.min(block.len() as u64);
        file.write_all(&block[..length as usize])?;
        left -= length;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_one_if_all_bytes_are_there() {
        let mut place = Place::new(Path::new("/no/peers")).expect("a place");
        let source = place.source(3_000_001).expect("a source");
        let target = place.target(0).expect("a target");
        assert!(!place.is_copied(&target));
        fs::copy(&source, target.join(SOURCE)).expect("a copy");
        assert!(place.is_copied(&target));
        fs::OpenOptions::new()
            .append(true)
            .open(target.join(SOURCE))
            .and_then(|mut file| file.write_all(b"x"))
            .expect("one more");
        assert!(!place.is_copied(&target));
        let target = place.target(0).expect("an empty one");
        assert_eq!(fs::read_dir(target).expect("a folder").count(), 0);
    }

    #[test]
    fn programs_are_found_in_the_path_and_among_the_peers() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("a-peer"), "").expect("a file");
        let place = Place::new(folder.path()).expect("a place");
        assert_eq!(place.find("a-peer"), Some(folder.path().join("a-peer")));
        assert!(place.find("sh").is_some() && place.find("no-such-program").is_none());
    }
}
