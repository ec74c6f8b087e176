//! Nothing of a run, of a supervisor or of a sandbox outlives it, whoever is killed.

use crate::rig::{
    LIMITS, alone, eventually, is_alone, print_of, processes_with, run_with, sandbox, sandbox_of, sandboxes, settings,
    succeeds,
};
use stage_verify::sandbox::{Cgroups, End, Isolation, Limits, Settings};
use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Python that leaves a process behind which has left the session, ignores signals and holds all pipes.
fn straggler(marker: &str) -> String {
    format!(
        "import os, signal, time  # {marker}\n\
         if os.fork() == 0:\n\
         \tos.setsid()\n\
         \tif os.fork() == 0:\n\
         \t\tfor s in range(1, 65):\n\
         \t\t\ttry: signal.signal(s, signal.SIG_IGN)\n\
         \t\t\texcept Exception: pass\n\
         \t\ttime.sleep(60)\n\
         \tos._exit(0)\n\
         os.wait()\n\
         print('done')"
    )
}

fn pids_of_supervisors() -> Vec<u32> {
    let own = std::process::id();
    let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
    let listed: Vec<u32> = children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    // threads of the tests start children too, which the list of the first thread lacks
    let is_own = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1)?.parse().ok());
        parent == Some(own)
    };
    if listed.is_empty() {
        processes_with("--serve-as-sandbox-supervisor").into_iter().filter(is_own).collect()
    } else {
        listed
    }
}

fn kill(pid: u32) {
    let killed = std::process::Command::new("/bin/kill").args(["-9", &pid.to_string()]).status();
    assert!(killed.is_ok_and(|status| status.success()), "cannot kill {pid}");
}

#[test]
fn a_straggler_neither_survives_nor_holds_the_run_up() {
    for sandbox in &sandboxes() {
        let marker = format!("straggler-{}", std::process::id());
        let start = Instant::now();
        assert_eq!(print_of(sandbox, &straggler(&marker)), "done");
        assert!(start.elapsed() < Duration::from_secs(20));
        assert_eq!(processes_with(&marker), Vec::<u32>::new());
    }
}

#[test]
fn a_straggler_is_hunted_down_without_isolation_too() {
    let sandbox =
        sandbox_of(Settings { isolation: Isolation::Off, ..settings() }).expect("no layer that could be denied");
    let marker = format!("hunted-{}", std::process::id());
    let outcome = run_with(&sandbox, &straggler(&marker), LIMITS);
    assert_eq!(outcome.stdout, b"done\n", "{outcome:?}");
    assert_eq!(processes_with(&marker), Vec::<u32>::new());
    let limits = Limits { wall: Duration::from_millis(500), ..LIMITS };
    let code = format!("import os, time # {marker}\nif os.fork() == 0: os.setsid()\nos.fork(); time.sleep(60)");
    assert_eq!(run_with(&sandbox, &code, limits).end, End::WallLimit);
    assert_eq!(processes_with(&marker), Vec::<u32>::new());
}

#[test]
fn a_program_cannot_harm_what_watches_it() {
    for sandbox in &sandboxes() {
        for code in [
            "import os\nfor p in (os.getppid(), 1):\n try: os.kill(p, 9)\n except OSError: pass\nprint(5)",
            "import os\nfor s in range(1, 65):\n try: os.kill(1, s)\n except OSError: pass\nprint(5)",
            "import os\nfor i in range(12):\n if os.fork() == 0: os._exit(0)\nprint(5)",
            "import resource\ntry: resource.prlimit(1, resource.RLIMIT_CPU, (0, 0))\nexcept OSError: print(5)",
            "import os\ntry: os.listdir('/proc/1/fd')\nexcept OSError: print(5)",
        ] {
            assert_eq!(print_of(sandbox, code), "5", "{code}");
        }
        // kill(-1) spares the caller itself and pid 1
        let outcome = run_with(sandbox, "import os\ntry: os.kill(-1, 9)\nexcept OSError: pass\nprint(5)", LIMITS);
        assert!(matches!(outcome.end, End::Exited(0) | End::Signaled(9)), "{outcome:?}");
        assert_eq!(print_of(sandbox, "print(1)"), "1");
    }
}

#[test]
fn many_threads_share_few_supervisors() {
    let Some(sandbox) = sandbox() else { return };
    std::thread::scope(|scope| {
        let prints: Vec<_> = (0..8)
            .map(|number| {
                let sandbox = &sandbox;
                scope
                    .spawn(move || (0..3).all(|_| print_of(sandbox, &format!("print({number})")) == number.to_string()))
            })
            .collect();
        assert!(prints.into_iter().all(|print| print.join().expect("no panic")));
    });
}

#[test]
fn a_supervisor_that_is_killed_is_replaced() {
    succeeds(alone("survival::replacement_alone"));
}

#[test]
fn replacement_alone() {
    if !is_alone() {
        return;
    }
    let Some(sandbox) = sandbox() else { return };
    assert_eq!(print_of(&sandbox, "print(1)"), "1");
    // while it is idle
    pids_of_supervisors().into_iter().for_each(kill);
    assert_eq!(print_of(&sandbox, "print(2)"), "2");
    // while it runs a program, of which nothing may stay
    let marker = format!("orphan-{}", std::process::id());
    let code = format!("import time; time.sleep(1.5); print(3) # {marker}");
    std::thread::scope(|scope| {
        let running = scope.spawn(|| print_of(&sandbox, &code));
        assert!(eventually(|| !processes_with(&marker).is_empty()));
        let first = processes_with(&marker);
        pids_of_supervisors().into_iter().for_each(kill);
        assert!(eventually(|| first.iter().all(|pid| !processes_with(&marker).contains(pid))));
        assert_eq!(running.join().expect("no panic"), "3");
    });
    assert_eq!(processes_with(&marker), Vec::<u32>::new());
}

#[test]
fn nothing_outlives_a_caller_that_is_killed() {
    let marker = format!("outlives-{}", std::process::id());
    let mut caller =
        alone("survival::long_run_alone").env("MARKER", &marker).stdout(Stdio::null()).spawn().expect("it starts");
    assert!(eventually(|| !processes_with(&format!("long {marker}")).is_empty()));
    caller.kill().expect("it runs");
    caller.wait().expect("it runs");
    assert!(eventually(|| processes_with(&format!("long {marker}")).is_empty()));
}

#[test]
fn long_run_alone() {
    if !is_alone() {
        return;
    }
    let Some(sandbox) = sandbox() else { return };
    let marker = std::env::var_os("MARKER").expect("the other test sets it");
    let code = format!("import os, time\nos.fork()\nos.setsid()\ntime.sleep(60) # long {}", marker.display());
    run_with(&sandbox, &code, Limits { wall: Duration::from_mins(2), ..LIMITS });
}

#[test]
fn two_hundred_runs_leave_nothing_behind() {
    succeeds(alone("survival::many_runs_alone"));
}

#[test]
fn many_runs_alone() {
    if !is_alone() {
        return;
    }
    let count = |path: &str| fs::read_dir(path).expect("/proc").count();
    let groups = || {
        let memory = fs::read_dir("/sys/fs/cgroup/memory").into_iter().flatten().flatten();
        memory.filter(|entry| entry.file_name().to_string_lossy().starts_with("pipeline-sandbox-")).count()
    };
    let before = (count("/proc/self/fd"), fs::read_to_string("/proc/self/mounts").expect("/proc"), groups());
    for cgroups in [Cgroups::Auto, Cgroups::None] {
        let Some(sandbox) = sandbox_of(Settings { cgroups, ..settings() }) else { return };
        for _ in 0..10 {
            print_of(&sandbox, "print(1)");
        }
        let (descriptors, supervisors) = (count("/proc/self/fd"), pids_of_supervisors());
        let inner: Vec<usize> = supervisors.iter().map(|pid| count(&format!("/proc/{pid}/fd"))).collect();
        for _ in 0..200 {
            let outcome = run_with(&sandbox, &straggler("many"), LIMITS);
            assert_eq!(outcome.end, End::Exited(0), "{outcome:?}");
        }
        assert_eq!(count("/proc/self/fd"), descriptors);
        assert_eq!(pids_of_supervisors(), supervisors);
        let inner_after: Vec<usize> = supervisors.iter().map(|pid| count(&format!("/proc/{pid}/fd"))).collect();
        assert_eq!(inner_after, inner);
        drop(sandbox);
        assert!(supervisors.iter().all(|pid| !fs::exists(format!("/proc/{pid}")).unwrap_or(true)));
    }
    assert_eq!((count("/proc/self/fd"), fs::read_to_string("/proc/self/mounts").expect("/proc"), groups()), before);
    assert_eq!(pids_of_supervisors(), Vec::<u32>::new());
}
