//! What programs in the sandbox can reach.

use crate::rig::{CANARY, LIMITS, alone, is_alone, print_of, processes_with, run_with, sandbox, sandboxes, succeeds};
use stage_verify::sandbox::End;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

#[test]
fn a_program_runs_in_its_work_folder_with_a_made_up_environment() {
    for sandbox in &sandboxes() {
        let code = "import os; print(os.getcwd(), sorted(os.environ.items()), os.getuid(), os.listdir('.'))";
        assert_eq!(
            print_of(sandbox, code),
            "/box/work [('HOME', '/box/work'), ('LANG', 'C.UTF-8'), ('PATH', '/usr/local/bin:/usr/bin:/bin'), \
             ('TMPDIR', '/box/tmp')] 1000 []"
        );
    }
}

#[test]
fn secrets_of_the_caller_are_nowhere() {
    succeeds(alone("isolation::secrets_alone"));
}

#[test]
fn secrets_alone() {
    if !is_alone() {
        return;
    }
    assert!(std::env::var_os(CANARY).is_some());
    let Some(sandbox) = sandbox() else { return };
    // the word is put together inside, since the program's own command line may hold it
    let code = "import glob, os\nword = 'CAN' + 'ARY'\nhit = [k for k in os.environ if word in k]\n\
                for p in glob.glob('/proc/[0-9]*/*') + glob.glob('/proc/self/task/*/*'):\n\
                \ttry:\n\t\tif word.encode() in open(p, 'rb').read(1 << 20): hit.append(p)\n\
                \texcept OSError: pass\nprint(hit)";
    assert_eq!(print_of(&sandbox, code), "[]");
    // nor does a supervisor have them, whoever looks
    for pid in processes_with("--serve-as-sandbox-supervisor") {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        assert!(environment.is_empty(), "{}", String::from_utf8_lossy(&environment));
    }
}

#[test]
fn processes_of_the_host_are_not_seen() {
    let Some(sandbox) = sandbox() else { return };
    assert_eq!(print_of(&sandbox, "import os; print([p for p in os.listdir('/proc') if p.isdigit()])"), "['2']");
}

#[test]
fn neither_network_nor_sockets_of_the_host_are_reached() {
    let Some(sandbox) = sandbox() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    listener.set_nonblocking(true).expect("a listener");
    let port = listener.local_addr().expect("a listener").port();
    let name = format!("sandbox-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let unix = UnixListener::bind_addr(&address).expect("an abstract socket");
    unix.set_nonblocking(true).expect("a listener");
    let code = format!(
        "import socket\n\
         for family, kind, to in ((socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', {port})),\n\
         \t(socket.AF_INET, socket.SOCK_STREAM, ('1.1.1.1', 53)), (socket.AF_INET6, socket.SOCK_DGRAM, ('::1', 53)),\n\
         \t(socket.AF_UNIX, socket.SOCK_STREAM, '\\0{name}'), (socket.AF_NETLINK, socket.SOCK_RAW, (0, 0)),\n\
         \t(socket.AF_PACKET, socket.SOCK_RAW, ('lo', 0)), (40, socket.SOCK_STREAM, (2, 1))):\n\
         \ttry:\n\t\ts = socket.socket(family, kind); s.settimeout(.4); s.connect(to); print('ESCAPED')\n\
         \texcept OSError as e: print(e.errno)\n\
         a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))"
    );
    assert_eq!(print_of(&sandbox, &code), "97\n97\n97\n97\n97\n97\n97\nb'x'");
    assert!(listener.accept().is_err() && unix.accept().is_err());
}

#[test]
fn files_of_the_host_are_neither_seen_nor_written() {
    let Some(sandbox) = sandbox() else { return };
    let host = std::env::temp_dir().join(format!("sandbox-canary-{}", std::process::id()));
    std::fs::write(&host, "private").expect("a file");
    let code = format!(
        "import os\nhit = []\n\
         for p in ({:?}, '/etc/shadow', '/etc/hostname', '/home', '/root', '/var', '/run', '/sys', '/mnt', '/opt', '/boot', '/srv'):\n\
         \tif os.path.exists(p): hit.append(p)\n\
         for p in ('/usr/x', '/lib/x', '/bin/x', '/etc/x', '/x', '/dev/x', '/proc/x', '/etc/passwd', '/usr/bin/python3'):\n\
         \ttry: open(p, 'a').close(); hit.append(p)\n\
         \texcept OSError: pass\n\
         os.symlink('/', 'r')\n\
         try: open('r/usr/x', 'w'); hit.append('link')\n\
         except OSError: pass\n\
         print(hit, sorted(os.listdir('/')))",
        host.display().to_string()
    );
    let seen = print_of(&sandbox, &code);
    std::fs::remove_file(&host).expect("it is still there");
    assert!(seen.starts_with("[] ['bin', 'box', 'dev', 'etc', 'lib'"), "{seen}");
}

#[test]
fn controls_of_the_kernel_are_not_there() {
    let Some(sandbox) = sandbox() else { return };
    let code = "import os\nfor p in ('sys/kernel/core_pattern', 'sys/kernel/hostname', 'sysrq-trigger', 'kcore', 'keys', 'kallsyms',\n\
                \t'kmsg', 'timer_list', 'config.gz', 'interrupts', 'bus', 'fs', 'irq', 'scsi', 'acpi', 'self/../sys'):\n\
                \tif os.path.exists('/proc/' + p): print(p)\n\
                try: open('/proc/self/oom_score_adj', 'w').write('-1000'); print('oom')\nexcept OSError: pass\n\
                try: os.mknod('/box/tmp/d', 0o20666, os.makedev(1, 1)); print('mknod')\nexcept OSError: pass\n\
                print(sorted(os.listdir('/dev')))";
    assert_eq!(
        print_of(&sandbox, code),
        "['fd', 'full', 'null', 'random', 'shm', 'stderr', 'stdin', 'stdout', 'urandom', 'zero']"
    );
}

#[test]
fn a_program_has_no_capabilities_and_cannot_gain_any() {
    let Some(sandbox) = sandbox() else { return };
    let code = "for line in open('/proc/self/status'):\n\
                \tif line.startswith(('Cap', 'NoNewPrivs', 'Seccomp:', 'Groups')): print(line.split())";
    assert_eq!(
        print_of(&sandbox, code),
        "['Groups:']\n['CapInh:', '0000000000000000']\n['CapPrm:', '0000000000000000']\n['CapEff:', '0000000000000000']\n\
         ['CapBnd:', '0000000000000000']\n['CapAmb:', '0000000000000000']\n['NoNewPrivs:', '1']\n['Seccomp:', '2']"
    );
}

#[test]
fn dangerous_system_calls_are_denied() {
    let Some(sandbox) = sandbox() else { return };
    // numbers that x86-64 and the others share stand in the second list
    let architecture =
        "(101, 165, 166, 155, 161, 246, 250, 272, 308, 310, 311, 321, 298, 323, 304, 303, 313, 169, 172, 29, 68, 240)";
    let numbers = if cfg!(target_arch = "x86_64") { architecture } else { "()" };
    let code = format!(
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n\
         for n in {numbers} + (428, 429, 430, 431, 432, 433, 442):\n\
         \tctypes.set_errno(0)\n\tr = libc.syscall(n, 0, 0, 0, 0, 0)\n\
         \tif r != -1 or ctypes.get_errno() != 1: print('ESCAPED', n, r, ctypes.get_errno())\n\
         for n in (425, 426, 427, 435, 447):\n\
         \tctypes.set_errno(0)\n\tr = libc.syscall(n, 0, 0, 0, 0, 0)\n\
         \tif r != -1 or ctypes.get_errno() != 38: print('ESCAPED', n, r, ctypes.get_errno())\n\
         for flag in (0x10000000, 0x20000, 0x20000000, 0x40000000, 0x8000000, 0x4000000, 0x2000000):\n\
         \tif libc.unshare(flag) == 0: print('ESCAPED unshare', hex(flag))\n\
         if libc.mount(b'none', b'/box/tmp', b'tmpfs', 0, None) == 0: print('ESCAPED mount')\n\
         import fcntl, termios\n\
         try: fcntl.ioctl(0, termios.TIOCSTI, b'x')\n\
         except OSError as e: print(e.errno)"
    );
    assert_eq!(print_of(&sandbox, &code), "1");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn calls_by_other_numbers_kill() {
    let Some(sandbox) = sandbox() else { return };
    let x32 = "import ctypes; ctypes.CDLL(None).syscall(0x40000000 + 39); print('ESCAPED')";
    assert_eq!(run_with(&sandbox, x32, LIMITS).end, End::Signaled(31));
}

#[test]
fn no_namespace_comes_by_clone() {
    let Some(sandbox) = sandbox() else { return };
    let clone = if cfg!(target_arch = "x86_64") { 56 } else { 220 };
    let code = format!(
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n\
         for flag in (0x10000000, 0x20000, 0x20000000, 0x40000000, 0x8000000, 0x4000000, 0x2000000):\n\
         \tr = libc.syscall({clone}, flag | 17, 0, 0, 0, 0)\n\tif r == 0: os._exit(1)\n\
         \tprint(r, ctypes.get_errno())"
    );
    assert_eq!(print_of(&sandbox, &code), ["-1 1"; 7].join("\n"));
}

#[test]
fn no_descriptor_but_the_standard_ones_is_open() {
    let Some(sandbox) = sandbox() else { return };
    // the last is that of the listing itself
    let code =
        "import os; print([(n, os.path.exists('/proc/self/fd/' + n)) for n in sorted(os.listdir('/proc/self/fd'))])";
    assert_eq!(print_of(&sandbox, code), "[('0', True), ('1', True), ('2', True), ('3', False)]");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn calls_of_another_architecture_kill() {
    let Some(sandbox) = sandbox() else { return };
    // getpid of i386: mov eax, 20; int 0x80; ret
    let code = "import ctypes, mmap\n\
                m = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)\n\
                m.write(b'\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3')\n\
                f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))\n\
                f(); print('ESCAPED')";
    // a kernel without i386 calls ends it as well
    assert!(matches!(run_with(&sandbox, code, LIMITS).end, End::Signaled(31 | 11)));
}

#[test]
fn runs_share_nothing() {
    let Some(sandbox) = sandbox() else { return };
    let write = "import os\nfor p in ('x', '/tmp/x', '/dev/shm/x'): open(p, 'w').write('left')\nprint('written')";
    assert_eq!(print_of(&sandbox, write), "written");
    let read = "import os; print([os.listdir(p) for p in ('.', '/tmp', '/dev/shm')])";
    assert_eq!(print_of(&sandbox, read), "[[], [], []]");
}

#[test]
fn what_ordinary_programs_need_is_there() {
    let Some(sandbox) = sandbox() else { return };
    let code = "import multiprocessing, subprocess, tempfile, threading, os, pwd, asyncio, time, random, locale\n\
                with multiprocessing.Pool(2) as p: print(p.map(abs, [-1, -2]))\n\
                print(subprocess.run(['sh', '-c', 'echo $HOME'], capture_output=True, text=True).stdout)\n\
                with tempfile.TemporaryFile() as f: f.write(b'x')\n\
                print(pwd.getpwuid(os.getuid()).pw_name, locale.getpreferredencoding(), os.cpu_count() > 0)\n\
                print(open('/dev/zero', 'rb').read(2), len(os.urandom(3)), open('/dev/null', 'w').write('x'))\n\
                print(asyncio.run(asyncio.sleep(0, 'slept')), open('/dev/stdin').read())\n\
                from multiprocessing import shared_memory\n\
                s = shared_memory.SharedMemory(create=True, size=10); s.close(); s.unlink()\n\
                os.rename(tempfile.mkdtemp(), 'moved'); os.link('/dev/shm/../../box/work/a' if False else __import__('shutil').copy('/etc/passwd', 'a'), 'b')\n\
                print(sorted(os.listdir('.')))";
    assert_eq!(
        print_of(&sandbox, code),
        "[1, 2]\n/box/work\n\nprogram UTF-8 True\nb'\\x00\\x00' 3 1\nslept \n['a', 'b', 'moved']"
    );
}
