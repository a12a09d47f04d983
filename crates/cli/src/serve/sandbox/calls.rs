//! Which system calls the process can still make: seccomp.
//!
//! This is a list of calls that are denied, not of those that are allowed. What a process of this size calls is
//! decided by its C library, allocator and cryptography, and changes with their updates; a call that a list of allowed
//! ones lacks breaks copies in the field, at a place that no test has been to. What is denied here no file server
//! calls, with any library, and it is what exploits need after their first step: other programs, other processes,
//! other namespaces and mounts, and the parts of the kernel with the most defects. The unit for systemd adds a
//! list of allowed calls, which the distribution keeps.

use std::collections::BTreeMap;

use libc::{
    AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET,
    CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, CLONE_NEWUTS, EPERM, TIOCLINUX, TIOCSTI,
};
use seccompiler::{
    Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

use super::Holds;

/// Denied whatever their arguments are.
const DENIED: &[libc::c_long] = &[
    // Other programs and processes.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Other views of the system.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    // Files past their paths, and special ones.
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_mknodat,
    // Other users.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_capset,
    // The kernel itself.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_personality,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_vhangup,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
];

/// The same that one architecture has only.
#[cfg(target_arch = "x86_64")]
const DENIED_HERE: &[libc::c_long] = &[
    libc::SYS_mknod,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_uselib,
    libc::SYS_kexec_file_load,
    libc::SYS_fork,
    libc::SYS_vfork,
];
#[cfg(not(target_arch = "x86_64"))]
const DENIED_HERE: &[libc::c_long] = &[];

/// Sockets of other kinds lead into parts of the kernel that are little used.
const FAMILIES: [libc::c_int; 4] = [AF_UNIX, AF_INET, AF_INET6, AF_NETLINK];
/// With any of these a new process has another view of the system.
const NAMESPACES: [libc::c_int; 7] = [
    CLONE_NEWNS,
    CLONE_NEWCGROUP,
    CLONE_NEWUTS,
    CLONE_NEWIPC,
    CLONE_NEWUSER,
    CLONE_NEWPID,
    CLONE_NEWNET,
];
/// Put input into the user's terminal.
const TERMINAL: [libc::Ioctl; 2] = [TIOCSTI, TIOCLINUX];

/// Denies these calls to this thread and those that it will make; they fail with `EPERM`.
///
/// # Errors
/// The kernel has seccomp and refuses it.
pub fn restrict() -> Result<Holds, Error> {
    let Ok(arch) = TargetArch::try_from(std::env::consts::ARCH) else {
        return Ok(Err(format!("not on {}", std::env::consts::ARCH)));
    };
    let errno = |number: libc::c_int| SeccompAction::Errno(number.unsigned_abs());
    let filters = [
        (rules()?, errno(EPERM)),
        // The C library then makes threads with clone, whose flags can be looked at.
        (BTreeMap::from([(libc::SYS_clone3, Vec::new())]), errno(libc::ENOSYS)),
    ];
    for (rules, denied) in filters {
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, arch)?;
        let program: seccompiler::BpfProgram = filter.try_into()?;
        match apply_filter(&program) {
            Err(Error::Seccomp(error)) if error.raw_os_error() == Some(libc::ENOSYS) => {
                return Ok(Err("the kernel has none".into()));
            }
            applied => applied?,
        }
    }
    #[cfg(target_arch = "x86_64")]
    apply_filter(&other_numbers())?;
    let count = DENIED.len() + DENIED_HERE.len();
    Ok(Ok(format!("{count} calls denied")))
}

fn rules() -> Result<BTreeMap<i64, Vec<SeccompRule>>, Error> {
    let of = |arg, is: SeccompCmpOp, value: u64| {
        SeccompCondition::new(arg, SeccompCmpArgLen::Dword, is, value)
    };
    // All calls of a number with no rule are meant.
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        DENIED.iter().chain(DENIED_HERE).map(|call| (*call, Vec::new())).collect();
    let others = FAMILIES.map(|family| of(0, SeccompCmpOp::Ne, u64::from(family.unsigned_abs())));
    let others = others.into_iter().collect::<Result<_, _>>()?;
    let others = vec![SeccompRule::new(others)?];
    rules.insert(libc::SYS_socketpair, others.clone());
    rules.insert(libc::SYS_socket, others);
    let namespace = |flag: &libc::c_int| {
        let flag = u64::from(flag.unsigned_abs());
        SeccompRule::new(vec![of(0, SeccompCmpOp::MaskedEq(flag), flag)?])
    };
    rules.insert(libc::SYS_clone, NAMESPACES.iter().map(namespace).collect::<Result<_, _>>()?);
    let typing = |call: &libc::Ioctl| {
        #[allow(clippy::unnecessary_cast, reason = "its type is the C library's affair")]
        SeccompRule::new(vec![of(1, SeccompCmpOp::Eq, *call as u64)?])
    };
    rules.insert(libc::SYS_ioctl, TERMINAL.iter().map(typing).collect::<Result<_, _>>()?);
    Ok(rules)
}

/// Denies the calls of x32, which are those of x86-64 under other numbers: a list of denied ones would be
/// gone round.
#[cfg(target_arch = "x86_64")]
fn other_numbers() -> seccompiler::BpfProgram {
    use seccompiler::sock_filter;
    const X32: u32 = 0x4000_0000;
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, k| sock_filter { code, jt, jf: 0, k };
    vec![
        // The number of the call is the first word of what is looked at.
        step(LOAD, 0, 0),
        step(AT_LEAST, 1, X32),
        step(RETURN, 0, libc::SECCOMP_RET_ALLOW),
        step(RETURN, 0, libc::SECCOMP_RET_ERRNO | EPERM.unsigned_abs()),
    ]
}
