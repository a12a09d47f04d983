//! Network namespaces.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic;
use std::thread;

use super::context;
use super::sys::{self, Settings};

/// A network stack of its own: devices, addresses, routes, ports and TCP settings.
///
/// Exists as long as this value, or a thread, process or socket in it.
#[derive(Debug)]
pub struct Namespace {
    pub(super) file: OwnedFd,
}

impl Namespace {
    /// A new namespace. All that is in it is a loopback device.
    ///
    /// # Errors
    /// If this process may not make one (see [`isolate`]), or there are too many.
    pub fn create() -> io::Result<Namespace> {
        on_a_thread(|| {
            sys::unshare(libc::CLONE_NEWNET)
                .map_err(|e| context("a network namespace cannot be made", &e))?;
            Settings::open()?
                .set_up("lo")
                .map_err(|e| context("the loopback device cannot be configured", &e))?;
            let file = File::open("/proc/thread-self/ns/net")
                .map_err(|e| context("/proc/thread-self/ns/net", &e))?;
            Ok(Namespace { file: file.into() })
        })?
    }

    /// The same namespace.
    ///
    /// # Errors
    /// If this process has too many files open.
    pub fn try_clone(&self) -> io::Result<Namespace> {
        Ok(Namespace { file: self.file.try_clone()? })
    }

    /// Has `work` done by a thread in this namespace, and waits for it. The threads and processes
    /// that it starts, and the sockets that it opens, are in the namespace too. If `work` panics so
    /// does this call.
    ///
    /// # Errors
    /// If there can be no more threads, or this process may not enter the namespace.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_a_thread(|| {
            sys::enter_network(self.file.as_fd())
                .map_err(|e| context("a network namespace cannot be entered", &e))?;
            Ok(work())
        })?
    }
}

/// Moves this process into a network namespace of its own, with all rights there.
///
/// Without the right to do so it also moves into a user namespace, in which it appears as root. Its
/// rights over files stay what they were.
///
/// Call this while the process has only one thread.
///
/// # Errors
/// If the system lets users have no namespaces, or the process has more threads.
pub fn isolate() -> io::Result<()> {
    match sys::unshare(libc::CLONE_NEWNET) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        done => return done.map_err(|e| context("a network namespace cannot be made", &e)),
    }
    let (user, group) = sys::user_and_group();
    sys::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET)
        .map_err(|e| context("this system lets users have no namespaces", &e))?;
    // Groups can be mapped only once it is settled that they cannot be dropped, which would be a
    // way around files that are closed to a group (user_namespaces(7)).
    let maps = [("setgroups", "deny".to_owned()), ("uid_map", one(user)), ("gid_map", one(group))];
    for (name, text) in maps {
        fs::write(format!("/proc/self/{name}"), text)
            .map_err(|e| context(&format!("/proc/self/{name}"), &e))?;
    }
    Ok(())
}

/// Root inside stands for `id` outside, and nobody else for anybody.
fn one(id: u32) -> String {
    format!("0 {id} 1")
}

/// A thread that is thrown away, as it cannot leave the namespace that it has entered.
fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let name = "farhaul-netns".to_owned();
        let worker = thread::Builder::new().name(name).spawn_scoped(scope, work)?;
        Ok(worker.join().unwrap_or_else(|panic| panic::resume_unwind(panic)))
    })
}
