//! Filters for system calls that no program of an agent needs and that reach far into the kernel.
//!
//! Each filter has one error number; the kernel applies all of them and takes the strictest answer. Everything that is
//! not listed is allowed: the mounts and namespaces of the sandbox are the boundary, the filters make it smaller.

use std::collections::BTreeMap;
use std::io;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Refused with EPERM.
const FORBIDDEN: &[i64] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
    // Keys, programs in the kernel, counters, faults.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    SYS_OPEN_TREE_ATTR,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_fsconfig,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_chroot,
    // The machine.
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    // Files without a path, and memory of other nodes.
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_mbind,
    libc::SYS_set_mempolicy,
    libc::SYS_vmsplice,
];

/// Refused with EPERM; these exist on x86-64 only.
#[cfg(target_arch = "x86_64")]
const FORBIDDEN_HERE: &[i64] = &[
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_uselib,
    libc::SYS_ustat,
    libc::SYS__sysctl,
    libc::SYS_modify_ldt,
];
#[cfg(not(target_arch = "x86_64"))]
const FORBIDDEN_HERE: &[i64] = &[];

/// Refused with ENOSYS, so that programs fall back to a call whose arguments can be inspected.
const MISSING: &[i64] = &[
    libc::SYS_clone3,
    libc::SYS_openat2,
    libc::SYS_fchmodat2,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// The same number on all architectures; `libc` does not know it yet.
const SYS_OPEN_TREE_ATTR: i64 = 467;

/// `CLONE_NEW*`: a new namespace of any kind. `CLONE_NEWTIME` cannot be given to `clone`.
const NAMESPACE_FLAGS: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWCGROUP,
];

/// Families of sockets that a program may create. Packets, virtual machines, cryptography and others are refused.
const SOCKET_FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Set-user-ID and set-group-ID: on the host such a file would run as the user of Adjutant.
const SETUID: u64 = 0o4000;
const SETGID: u64 = 0o2000;
/// `O_TMPFILE` without `O_DIRECTORY`, which it contains.
const TEMPORARY_FILE: u64 = 0o20_000_000;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Returns the filters of a sandbox.
pub(crate) fn filters() -> io::Result<Vec<BpfProgram>> {
    let mut programs = Vec::new();
    let lists =
        [(libc::EPERM, forbidden()?), (libc::ENOSYS, missing()), (libc::EAFNOSUPPORT, sockets()?)];
    for (errno, rules) in lists {
        let errno = SeccompAction::Errno(errno.unsigned_abs());
        let architecture = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, errno, architecture);
        programs.push(filter.and_then(BpfProgram::try_from).map_err(io::Error::other)?);
    }
    #[cfg(target_arch = "x86_64")]
    programs.push(other_numbers());
    Ok(programs)
}

/// Encodes a filter as `struct sock_filter[]`, as bwrap reads it.
pub(crate) fn to_bytes(program: &BpfProgram) -> Vec<u8> {
    let encode = |step: &seccompiler::sock_filter| {
        let jumps = [step.jt, step.jf];
        step.code.to_ne_bytes().into_iter().chain(jumps).chain(step.k.to_ne_bytes())
    };
    program.iter().flat_map(encode).collect()
}

fn forbidden() -> io::Result<Rules> {
    let mut rules: Rules =
        FORBIDDEN.iter().chain(FORBIDDEN_HERE).map(|&call| (call, vec![])).collect();
    for flag in NAMESPACE_FLAGS {
        let flag = u64::from(flag.unsigned_abs());
        deny(&mut rules, libc::SYS_clone, vec![has_bits(0, flag)?])?;
    }
    // Terminal input on behalf of the user. The kernel looks at the low 32 bits only.
    for request in [libc::TIOCSTI, libc::TIOCLINUX] {
        deny(&mut rules, libc::SYS_ioctl, vec![is_equal(1, request)?])?;
    }
    let other_than = |value| condition(0, SeccompCmpOp::Ne, value);
    let layout = vec![other_than(0)?, other_than(u64::from(u32::MAX))?];
    deny(&mut rules, libc::SYS_personality, layout)?;
    for bits in [SETUID, SETGID] {
        for (call, argument) in mode_arguments() {
            deny(&mut rules, call, vec![has_bits(argument, bits)?])?;
        }
        for created in [libc::O_CREAT.unsigned_abs().into(), TEMPORARY_FILE] {
            for (call, flags) in open_arguments() {
                let condition = vec![has_bits(flags, created)?, has_bits(flags + 1, bits)?];
                deny(&mut rules, call, condition)?;
            }
        }
    }
    Ok(rules)
}

/// Calls with a file mode, and the position of the mode.
fn mode_arguments() -> Vec<(i64, u8)> {
    let mut calls = vec![
        (libc::SYS_fchmod, 1),
        (libc::SYS_fchmodat, 2),
        (libc::SYS_mknodat, 2),
        (libc::SYS_mkdirat, 2),
    ];
    #[cfg(target_arch = "x86_64")]
    calls.extend([
        (libc::SYS_chmod, 1),
        (libc::SYS_creat, 1),
        (libc::SYS_mknod, 1),
        (libc::SYS_mkdir, 1),
    ]);
    calls
}

/// Calls that open files, and the position of the flags; the mode follows.
fn open_arguments() -> Vec<(i64, u8)> {
    let mut calls = vec![(libc::SYS_openat, 2)];
    #[cfg(target_arch = "x86_64")]
    calls.push((libc::SYS_open, 1));
    calls
}

fn missing() -> Rules {
    MISSING.iter().map(|&call| (call, vec![])).collect()
}

fn sockets() -> io::Result<Rules> {
    let others = SOCKET_FAMILIES
        .iter()
        .map(|family| condition(0, SeccompCmpOp::Ne, u64::from(family.unsigned_abs())))
        .collect::<io::Result<Vec<_>>>()?;
    let mut rules = Rules::new();
    deny(&mut rules, libc::SYS_socket, others.clone())?;
    deny(&mut rules, libc::SYS_socketpair, others)?;
    Ok(rules)
}

fn deny(rules: &mut Rules, call: i64, all_of: Vec<SeccompCondition>) -> io::Result<()> {
    let rule = SeccompRule::new(all_of).map_err(io::Error::other)?;
    rules.entry(call).or_default().push(rule);
    Ok(())
}

fn has_bits(argument: u8, bits: u64) -> io::Result<SeccompCondition> {
    condition(argument, SeccompCmpOp::MaskedEq(bits), bits)
}

fn is_equal(argument: u8, value: u64) -> io::Result<SeccompCondition> {
    condition(argument, SeccompCmpOp::Eq, value)
}

fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> io::Result<SeccompCondition> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
        .map_err(io::Error::other)
}

/// Refuses the numbers of the x32 system calls with ENOSYS: they are the same calls under other numbers.
#[cfg(target_arch = "x86_64")]
fn other_numbers() -> BpfProgram {
    const FIRST_X32_NUMBER: u32 = 0x4000_0000;
    let step = |code: u32, jt, jf, k| seccompiler::sock_filter {
        code: u16::try_from(code).unwrap_or_default(),
        jt,
        jf,
        k,
    };
    vec![
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, FIRST_X32_NUMBER),
        step(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs(),
        ),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}
