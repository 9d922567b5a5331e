//! The filters: every system call on their lists, with the error a program gets.

use std::collections::HashMap;
use std::process::Command;
use std::sync::OnceLock;

use nix::libc;
use test_case::test_case;

/// Runs calls by number in Python, below the filters if `with_filter`, and returns the error number of each.
///
/// The arguments make the call fail or do nothing where there is no filter.
fn errors(with_filter: bool) -> HashMap<String, i32> {
    let calls: Vec<String> = CALLS
        .iter()
        .map(|(name, number, arguments)| format!("('{name}', {number}, {arguments:?})"))
        .collect();
    let script = format!(
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n\
         for name, number, arguments in [{}]:\n\
         \x20   ctypes.set_errno(0)\n\
         \x20   r = libc.syscall(ctypes.c_long(number), *[ctypes.c_ulong(a) for a in arguments])\n\
         \x20   print(name, ctypes.get_errno() if r == -1 else 0, flush=True)\n",
        calls.join(", ")
    );
    let mut command = match with_filter {
        true => {
            let mut command = Command::new(env!("CARGO_BIN_EXE_adjutant"));
            command.args(["__confine", &std::process::id().to_string(), "python3"]);
            command
        }
        false => Command::new("python3"),
    };
    // The parent-death signal follows the thread, which ends with the test: `output` waits before that.
    let output = command.args(["-c", &script]).output().expect("python3");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.map(|(name, errno)| (name.to_owned(), errno.parse().unwrap())).collect()
}

fn filtered(name: &str) -> i32 {
    static ERRORS: OnceLock<HashMap<String, i32>> = OnceLock::new();
    ERRORS.get_or_init(|| errors(true))[name]
}

/// A pointer that leads nowhere.
const BAD: u64 = u64::MAX - 4095;
/// A descriptor that is not open.
const NO_FD: u64 = 9999;

macro_rules! calls {
    ($($name:ident $number:expr, [$($argument:expr),*], $errno:ident;)*) => {
        const CALLS: &[(&str, i64, &[u64])] = &[$((stringify!($name), $number, &[$($argument),*])),*];

        $(#[test]
        fn $name() {
            assert_eq!(filtered(stringify!($name)), libc::$errno);
        })*
    };
}

calls! {
    ptrace libc::SYS_ptrace, [12345, 1], EPERM;
    process_vm_readv libc::SYS_process_vm_readv, [1, BAD, 1, BAD, 1, 9], EPERM;
    process_vm_writev libc::SYS_process_vm_writev, [1, BAD, 1, BAD, 1, 9], EPERM;
    pidfd_getfd libc::SYS_pidfd_getfd, [NO_FD, 0, 0], EPERM;
    process_madvise libc::SYS_process_madvise, [NO_FD, BAD, 1, 0, 0], EPERM;
    kcmp libc::SYS_kcmp, [1, 1, 99, 0, 0], EPERM;
    keyctl libc::SYS_keyctl, [9999], EPERM;
    add_key libc::SYS_add_key, [BAD, BAD, BAD, 1, 0], EPERM;
    request_key libc::SYS_request_key, [BAD, BAD, BAD, 0], EPERM;
    bpf libc::SYS_bpf, [9999, BAD, 0], EPERM;
    perf_event_open libc::SYS_perf_event_open, [BAD, 0, 0, 0, 0], EPERM;
    userfaultfd libc::SYS_userfaultfd, [0xffff_0000], EPERM;
    mount libc::SYS_mount, [BAD, BAD, BAD, 0, 0], EPERM;
    umount2 libc::SYS_umount2, [BAD, 0], EPERM;
    pivot_root libc::SYS_pivot_root, [BAD, BAD], EPERM;
    move_mount libc::SYS_move_mount, [NO_FD, BAD, NO_FD, BAD, 0], EPERM;
    open_tree libc::SYS_open_tree, [NO_FD, BAD, 0], EPERM;
    open_tree_attr 467, [NO_FD, BAD, 0, BAD, 0], EPERM;
    fsopen libc::SYS_fsopen, [BAD, 0], EPERM;
    fsmount libc::SYS_fsmount, [NO_FD, 0, 0], EPERM;
    fsconfig libc::SYS_fsconfig, [NO_FD, 99, 0, 0, 0], EPERM;
    fspick libc::SYS_fspick, [NO_FD, BAD, 0], EPERM;
    mount_setattr libc::SYS_mount_setattr, [NO_FD, BAD, 0, BAD, 0], EPERM;
    unshare libc::SYS_unshare, [libc::CLONE_FILES as u64], EPERM;
    setns libc::SYS_setns, [NO_FD, 0], EPERM;
    chroot libc::SYS_chroot, [BAD], EPERM;
    kexec_load libc::SYS_kexec_load, [0, 99, BAD, 0xffff_ffff], EPERM;
    kexec_file_load libc::SYS_kexec_file_load, [NO_FD, NO_FD, 0, BAD, 0xffff], EPERM;
    init_module libc::SYS_init_module, [BAD, 1, BAD], EPERM;
    finit_module libc::SYS_finit_module, [NO_FD, BAD, 0], EPERM;
    delete_module libc::SYS_delete_module, [BAD, 0], EPERM;
    swapon libc::SYS_swapon, [BAD, 0], EPERM;
    swapoff libc::SYS_swapoff, [BAD], EPERM;
    acct libc::SYS_acct, [BAD], EPERM;
    quotactl libc::SYS_quotactl, [0, BAD, 0, 0], EPERM;
    quotactl_fd libc::SYS_quotactl_fd, [NO_FD, 0, 0, 0], EPERM;
    reboot libc::SYS_reboot, [1, 2, 3, 4], EPERM;
    syslog libc::SYS_syslog, [99, 0, 0], EPERM;
    settimeofday libc::SYS_settimeofday, [BAD, BAD], EPERM;
    clock_settime libc::SYS_clock_settime, [0, BAD], EPERM;
    clock_adjtime libc::SYS_clock_adjtime, [0, BAD], EPERM;
    adjtimex libc::SYS_adjtimex, [BAD], EPERM;
    sethostname libc::SYS_sethostname, [BAD, 1], EPERM;
    setdomainname libc::SYS_setdomainname, [BAD, 1], EPERM;
    lookup_dcookie libc::SYS_lookup_dcookie, [0, BAD, 0], EPERM;
    nfsservctl libc::SYS_nfsservctl, [0, 0, 0], EPERM;
    name_to_handle_at libc::SYS_name_to_handle_at, [NO_FD, BAD, BAD, BAD, 0], EPERM;
    open_by_handle_at libc::SYS_open_by_handle_at, [NO_FD, BAD, 0], EPERM;
    fanotify_init libc::SYS_fanotify_init, [0xffff_ffff, 0], EPERM;
    migrate_pages libc::SYS_migrate_pages, [99_999_999, 0, 0, 0], EPERM;
    move_pages libc::SYS_move_pages, [99_999_999, 0, 0, 0, 0, 0], EPERM;
    mbind libc::SYS_mbind, [1, 1, 99, 0, 0, 0], EPERM;
    set_mempolicy libc::SYS_set_mempolicy, [99, 0, 0], EPERM;
    vmsplice libc::SYS_vmsplice, [NO_FD, BAD, 1, 0], EPERM;
    clone3 libc::SYS_clone3, [BAD, 88], ENOSYS;
    openat2 libc::SYS_openat2, [NO_FD, BAD, BAD, 24], ENOSYS;
    fchmodat2 libc::SYS_fchmodat2, [NO_FD, BAD, 0, 0], ENOSYS;
    io_uring_setup libc::SYS_io_uring_setup, [0, BAD], ENOSYS;
    io_uring_enter libc::SYS_io_uring_enter, [NO_FD, 0, 0, 0, 0, 0], ENOSYS;
    io_uring_register libc::SYS_io_uring_register, [NO_FD, 0, 0, 0], ENOSYS;
    clone_new_user libc::SYS_clone, [libc::CLONE_NEWUSER as u64 | libc::CLONE_FS as u64, 0, 0, 0, 0], EPERM;
    clone_new_mounts libc::SYS_clone, [libc::CLONE_NEWNS as u64 | libc::CLONE_FS as u64, 0, 0, 0, 0], EPERM;
    terminal_input libc::SYS_ioctl, [NO_FD, 0x5412, BAD], EPERM;
    terminal_input_with_high_bits libc::SYS_ioctl, [NO_FD, 0x1_0000_5412, BAD], EPERM;
    terminal_selection libc::SYS_ioctl, [NO_FD, 0x541C, BAD], EPERM;
    terminal_size_is_allowed libc::SYS_ioctl, [NO_FD, 0x5413, BAD], EBADF;
    personality_without_randomness libc::SYS_personality, [0x0040_0000], EPERM;
    fchmod_setuid libc::SYS_fchmod, [NO_FD, 0o4755], EPERM;
    fchmod_setgid libc::SYS_fchmod, [NO_FD, 0o2755], EPERM;
    fchmod_is_allowed libc::SYS_fchmod, [NO_FD, 0o755], EBADF;
    fchmodat_setuid libc::SYS_fchmodat, [NO_FD, BAD, 0o4755], EPERM;
    mknodat_setuid libc::SYS_mknodat, [NO_FD, BAD, 0o104_755, 0], EPERM;
    mkdirat_setuid libc::SYS_mkdirat, [NO_FD, BAD, 0o4755], EPERM;
    openat_setuid libc::SYS_openat, [NO_FD, BAD, libc::O_CREAT as u64, 0o4755], EPERM;
    openat_temporary_setuid libc::SYS_openat, [NO_FD, BAD, libc::O_TMPFILE as u64 | 1, 0o4755], EPERM;
    openat_is_allowed libc::SYS_openat, [NO_FD, BAD, libc::O_CREAT as u64, 0o755], EFAULT;
    socket_packet libc::SYS_socket, [17, 3, 0], EAFNOSUPPORT;
    socket_vsock libc::SYS_socket, [40, 1, 0], EAFNOSUPPORT;
    socket_alg libc::SYS_socket, [38, 5, 0], EAFNOSUPPORT;
    socket_bluetooth libc::SYS_socket, [31, 3, 1], EAFNOSUPPORT;
    socket_key libc::SYS_socket, [15, 3, 2], EAFNOSUPPORT;
    socket_xdp libc::SYS_socket, [44, 3, 0], EAFNOSUPPORT;
    socket_tipc libc::SYS_socket, [30, 1, 0], EAFNOSUPPORT;
    socket_rds libc::SYS_socket, [21, 5, 0], EAFNOSUPPORT;
    socket_can libc::SYS_socket, [29, 3, 1], EAFNOSUPPORT;
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::{BAD, libc, probe_one};
    use test_case::test_case;

    #[test_case(libc::SYS_iopl, "[9]" => libc::EPERM; "iopl")]
    #[test_case(libc::SYS_ioperm, "[0, 0, 0]" => libc::EPERM; "ioperm")]
    #[test_case(libc::SYS_uselib, &format!("[{BAD}]") => libc::EPERM; "uselib")]
    #[test_case(libc::SYS_ustat, &format!("[0, {BAD}]") => libc::EPERM; "ustat")]
    #[test_case(libc::SYS__sysctl, &format!("[{BAD}]") => libc::EPERM; "sysctl")]
    #[test_case(libc::SYS_modify_ldt, "[99, 0, 0]" => libc::EPERM; "modify ldt")]
    #[test_case(libc::SYS_vhangup, "[]" => libc::EPERM; "vhangup")]
    #[test_case(libc::SYS_chmod, &format!("[{BAD}, 0o4755]") => libc::EPERM; "chmod")]
    #[test_case(libc::SYS_creat, &format!("[{BAD}, 0o4755]") => libc::EPERM; "creat")]
    #[test_case(libc::SYS_mknod, &format!("[{BAD}, 0o4755, 0]") => libc::EPERM; "mknod")]
    #[test_case(libc::SYS_mkdir, &format!("[{BAD}, 0o4755]") => libc::EPERM; "mkdir")]
    #[test_case(libc::SYS_open, &format!("[{BAD}, 0o100, 0o4755]") => libc::EPERM; "open")]
    #[test_case(0x4000_0000 + 39, "[]" => libc::ENOSYS; "getpid of x32")]
    fn calls_of_this_architecture(number: i64, arguments: &str) -> i32 {
        probe_one(number, arguments)
    }
}

fn probe_one(number: i64, arguments: &str) -> i32 {
    let script = format!(
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n\
         r = libc.syscall(ctypes.c_long({number}), *[ctypes.c_ulong(a) for a in {arguments}])\n\
         print(ctypes.get_errno() if r == -1 else 0)"
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_adjutant"));
    command.args(["__confine", &std::process::id().to_string(), "python3", "-c", &script]);
    String::from_utf8_lossy(&command.output().unwrap().stdout).trim().parse().unwrap()
}

/// Without the filters the same calls give other errors: it is the filter that is seen above.
#[test]
fn without_a_filter_the_errors_are_others() {
    let (with, without) = (errors(true), errors(false));
    let differ = with.iter().filter(|(name, errno)| without[*name] != **errno).count();
    assert!(differ > 50, "{differ} of {} differ", with.len());
}

#[test_case("import subprocess; print(subprocess.run(['true']).returncode)" => "0"; "processes")]
#[test_case("import threading; t = threading.Thread(target=print, args=('ran',)); t.start(); t.join()" => "ran"; "threads")]
#[test_case("import socket; socket.socket(socket.AF_UNIX); socket.socket(); socket.socketpair(); print('made')" => "made"; "sockets")]
#[test_case("import os, tempfile; d = tempfile.mkdtemp(); os.mkfifo(d + '/p'); os.chmod(d, 0o700); print(os.umask(0o22))" => "18"; "files")]
fn ordinary_programs_work_below_the_filters(script: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_adjutant"));
    command.args(["__confine", &std::process::id().to_string(), "python3", "-c", script]);
    let output = command.output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
