//! What a server tells the service manager that started it: see `sd_notify(3)`.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Tells `state`, as `READY=1`, if there is somebody to tell.
///
/// # Errors
/// There is, and it cannot be told.
pub fn notify(state: &str) -> io::Result<()> {
    match std::env::var_os("NOTIFY_SOCKET") {
        Some(name) if !name.is_empty() => send(&name, state),
        _ => Ok(()),
    }
}

/// How often the service manager wants to be told that all is well, half of the time after which it restarts
/// the service; none if it does not.
pub fn watchdog() -> Option<Duration> {
    let of = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let for_other = of("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id()));
    let time = of("WATCHDOG_USEC").filter(|time| *time > 0 && !for_other)?;
    Some(Duration::from_micros(time / 2))
}

/// A name that begins with `@` is none of a file.
fn send(name: &OsStr, state: &str) -> io::Result<()> {
    let address = match name.as_bytes() {
        #[cfg(target_os = "linux")]
        [b'@', rest @ ..] => {
            use std::os::linux::net::SocketAddrExt;
            SocketAddr::from_abstract_name(rest)?
        }
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_arrive_whatever_kind_the_name_is_of() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("a socket");
        send(path.as_os_str(), "READY=1").expect("told");
        let mut buf = [0; 64];
        let count = manager.recv(&mut buf).expect("a state");
        assert_eq!(&buf[..count], b"READY=1");
        assert!(send(OsStr::new("/none/there"), "READY=1").is_err());
        #[cfg(target_os = "linux")]
        {
            use std::os::linux::net::SocketAddrExt;
            let name = format!("farhaul-test-{}", std::process::id());
            let address = SocketAddr::from_abstract_name(&name).expect("an address");
            let manager = UnixDatagram::bind_addr(&address).expect("a socket");
            send(OsStr::new(&format!("@{name}")), "STOPPING=1").expect("told");
            let count = manager.recv(&mut buf).expect("a state");
            assert_eq!(&buf[..count], b"STOPPING=1");
        }
    }
}
