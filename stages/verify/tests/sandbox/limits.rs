//! Limits of the sandbox: each is kept for all processes of a run together, and named when it is reached.

use crate::rig::{LIMITS, print_of, python, run_with, sandboxes};
use stage_verify::sandbox::{End, Job, Limits, Program, SandboxError};
use std::ffi::OsStr;
use std::time::Duration;

const MIB: u64 = 1 << 20;

#[test]
fn a_busy_program_ends_at_its_processor_time() {
    for sandbox in &sandboxes() {
        let limits = Limits { cpu: Duration::from_millis(300), ..LIMITS };
        let outcome = run_with(sandbox, "while True: pass", limits);
        assert_eq!(outcome.end, End::CpuLimit);
        assert!(outcome.cpu >= limits.cpu && outcome.cpu < Duration::from_secs(2), "{:?}", outcome.cpu);
    }
}

#[test]
fn processor_time_counts_children_and_cannot_be_dodged_by_ignoring_signals() {
    for sandbox in &sandboxes() {
        let limits = Limits { cpu: Duration::from_millis(600), ..LIMITS };
        let code = "import os, signal\n\
                for s in range(1, 65):\n try: signal.signal(s, signal.SIG_IGN)\n except Exception: pass\n\
                for _ in range(4):\n if os.fork() == 0: break\n\
                while True: pass";
        let outcome = run_with(sandbox, code, limits);
        assert_eq!(outcome.end, End::CpuLimit);
        assert!(outcome.cpu < Duration::from_secs(2), "{:?}", outcome.cpu);
    }
}

#[test]
fn a_sleeping_program_ends_at_its_time_on_the_clock() {
    for sandbox in &sandboxes() {
        let limits = Limits { wall: Duration::from_millis(400), ..LIMITS };
        let outcome = run_with(sandbox, "import time; time.sleep(100)", limits);
        assert_eq!(outcome.end, End::WallLimit);
        assert!(outcome.wall < Duration::from_secs(5), "{:?}", outcome.wall);
    }
}

#[test]
fn memory_above_the_limit_ends_a_program() {
    for sandbox in &sandboxes() {
        let code = "import resource\n\
                for r in (resource.RLIMIT_AS, resource.RLIMIT_DATA):\n\
                \ttry: resource.setrlimit(r, (resource.RLIM_INFINITY,) * 2)\n\
                \texcept Exception: pass\n\
                x = [b'1' * (1 << 20) for _ in range(4096)]\nprint('ESCAPED')";
        let outcome = run_with(sandbox, code, LIMITS);
        assert_eq!(outcome.end, End::MemoryLimit, "{outcome:?}");
        assert!(outcome.peak_memory_bytes < 2 * LIMITS.memory_bytes, "{}", outcome.peak_memory_bytes >> 20);
    }
}

#[test]
fn memory_of_children_counts_together() {
    for sandbox in &sandboxes() {
        let code = "import os, time\n\
                for _ in range(8):\n\
                \tif os.fork() == 0:\n\t\tx = b'1' * (60 << 20); time.sleep(20); os._exit(0)\n\
                time.sleep(20); print('ESCAPED')";
        assert_eq!(run_with(sandbox, code, LIMITS).end, End::MemoryLimit);
    }
}

#[test]
fn memory_that_forks_share_counts_once() {
    for sandbox in &sandboxes() {
        let code = "import os, time, gc\ngc.freeze()\nx = b'1' * (100 << 20)\n\
                p = [os.fork() for _ in range(1)]\n\
                if 0 in p: time.sleep(.3); os._exit(0)\n\
                q = os.fork()\n\
                if q == 0: time.sleep(.3); os._exit(0)\n\
                for _ in range(2): os.wait()\nprint('fine')";
        assert_eq!(print_of(sandbox, code), "fine");
    }
}

#[test]
fn files_are_bounded_by_the_disk_limit() {
    for sandbox in &sandboxes() {
        let code = "import os\nn = 0\n\
                try:\n\tfor i in range(100):\n\t\tf = open(f'/tmp/{i}', 'wb')\n\t\tf.write(b'1' * (4 << 20)); f.close(); n += 1\n\
                except OSError as e: print(n, e.errno)";
        assert_eq!(print_of(sandbox, code), "8 28");
    }
}

#[test]
fn a_flood_of_output_ends_a_program_and_is_cut_at_the_cap() {
    for sandbox in &sandboxes() {
        let outcome = run_with(sandbox, "while True: print('A' * 65536)", LIMITS);
        assert_eq!((outcome.end, outcome.stdout.len() as u64), (End::OutputLimit, LIMITS.stdout_bytes));
    }
}

#[test]
fn a_flood_of_errors_is_dropped_and_harms_nobody() {
    for sandbox in &sandboxes() {
        let code = "import sys\nfor _ in range(2000): sys.stderr.write('E' * 65536)\nprint('right')";
        let outcome = run_with(sandbox, code, LIMITS);
        assert_eq!((outcome.end, &outcome.stdout[..]), (End::Exited(0), &b"right\n"[..]));
        assert_eq!(outcome.stderr.len() as u64, LIMITS.stderr_bytes);
    }
}

#[test]
fn a_fork_bomb_is_bounded_and_ends() {
    for sandbox in &sandboxes() {
        let limits = Limits { cpu: Duration::from_secs(1), ..LIMITS };
        let code = "import os\n\
                while True:\n\ttry: os.fork()\n\texcept OSError: pass\n\
                \tif sum(p.isdigit() for p in os.listdir('/proc')) > 400: print('ESCAPED')";
        let outcome = run_with(sandbox, code, limits);
        assert!(outcome.stdout.is_empty(), "{outcome:?}");
        println!("{:?} after {:?}, {:?} of processor time", outcome.end, outcome.wall, outcome.cpu);
        // which of the limits is seen first is a matter of chance
        assert!(matches!(outcome.end, End::Signaled(9) | End::CpuLimit), "{outcome:?}");
        assert_eq!(print_of(sandbox, "print(1)"), "1");
    }
}

#[test]
fn threads_have_room_besides_processes() {
    for sandbox in &sandboxes() {
        let code = "import threading, time\n\
                t = [threading.Thread(target=time.sleep, args=(.2,)) for _ in range(100)]\n\
                [x.start() for x in t]; [x.join() for x in t]; print('fine')";
        let outcome = run_with(sandbox, code, Limits { processes: 1, ..LIMITS });
        assert_eq!(outcome.end, End::Exited(0), "{}", String::from_utf8_lossy(&outcome.stderr));
    }
}

#[test]
fn a_compiled_program_is_taken_out_and_executed_with_deep_recursion() {
    for sandbox in &sandboxes() {
        let source = "#include <cstdio>\n\
                  int d(int n){ volatile char pad[64]; pad[0]=(char)n; if(n==0) return 0; return 1+d(n-1)+(pad[0]-pad[0]); }\n\
                  int main(){int n; if(scanf(\"%d\",&n)!=1) return 1; printf(\"%d\\n\",d(n));}\n";
        let arguments = ["-O1", "-o", "out", "main.cpp"].map(OsStr::new);
        let limits = Limits { memory_bytes: 1024 * MIB, ..LIMITS };
        let compile = Job {
            program: Program::Path(OsStr::new("/usr/bin/c++")),
            files: &[("main.cpp", source.as_bytes())],
            collect: Some("out"),
            ..python(&arguments, limits)
        };
        let compiled = sandbox.run(&compile).expect("the sandbox works");
        assert_eq!(compiled.end, End::Exited(0), "{}", String::from_utf8_lossy(&compiled.stderr));
        let artifact = compiled.artifact.expect("an executable");
        let job = Job { program: Program::Artifact(&artifact), stdin: b"600000\n", ..python(&[], limits) };
        let outcome = sandbox.run(&job).expect("the sandbox works");
        assert_eq!((outcome.end, &outcome.stdout[..]), (End::Exited(0), &b"600000\n"[..]));
        let endless = Job { stdin: b"2000000000\n", limits: LIMITS, ..job };
        assert_eq!(sandbox.run(&endless).expect("the sandbox works").end, End::MemoryLimit);
    }
}

#[test]
fn the_report_comes_apart_from_the_output() {
    for sandbox in &sandboxes() {
        let arguments = ["-I", "-c", "import os; os.write(3, b'{}'); print('debug')"].map(OsStr::new);
        let outcome = sandbox.run(&Job { report: true, ..python(&arguments, LIMITS) }).expect("the sandbox works");
        assert_eq!((&outcome.report[..], &outcome.stdout[..]), (&b"{}"[..], &b"debug\n"[..]));
        let without = run_with(sandbox, "import os\ntry: os.write(3, b'{}')\nexcept OSError: print('none')", LIMITS);
        assert_eq!(&without.stdout[..], b"none\n");
    }
}

#[test]
fn exit_status_and_signal_are_told_apart() {
    for sandbox in &sandboxes() {
        assert_eq!(run_with(sandbox, "raise SystemExit(3)", LIMITS).end, End::Exited(3));
        assert_eq!(run_with(sandbox, "import os; os.kill(os.getpid(), 11)", LIMITS).end, End::Signaled(11));
    }
}

#[test]
fn a_program_that_is_not_there_is_an_error_of_the_caller() {
    for sandbox in &sandboxes() {
        let job = Job { program: Program::Path(OsStr::new("/usr/bin/no-such-program")), ..python(&[], LIMITS) };
        assert!(matches!(sandbox.run(&job), Err(SandboxError::Program { .. })));
        let relative = Job { program: Program::Path(OsStr::new("python3")), ..python(&[], LIMITS) };
        assert!(matches!(sandbox.run(&relative), Err(SandboxError::Job(_))));
        assert_eq!(print_of(sandbox, "print(1)"), "1");
    }
}

#[test]
fn big_standard_input_needs_no_reader() {
    for sandbox in &sandboxes() {
        let input = vec![b'7'; 20 << 20];
        let arguments = ["-I", "-c", "import sys; print(len(sys.stdin.read()))"].map(OsStr::new);
        let outcome = sandbox.run(&Job { stdin: &input, ..python(&arguments, LIMITS) }).expect("the sandbox works");
        assert_eq!(&outcome.stdout[..], b"20971520\n");
        let unread = ["-I", "-c", "print(1)"].map(OsStr::new);
        let outcome = sandbox.run(&Job { stdin: &input, ..python(&unread, LIMITS) }).expect("the sandbox works");
        assert_eq!(&outcome.stdout[..], b"1\n");
    }
}
