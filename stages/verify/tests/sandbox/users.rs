//! The sandbox started by root and by a user without any rights.

use crate::rig::{LIMITS, SUPERVISOR, alone, is_alone, print_of, python, sandbox, sandbox_of, settings, succeeds};
use stage_verify::sandbox::{End, Isolation, Job, Launch, Limits, Program, Sandbox, SandboxError, Settings};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

/// A folder removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(path: PathBuf) -> Self {
        fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn a_user_without_rights_has_the_same_sandbox() {
    if !is_root() {
        println!("skipped: only root can become another user; all other tests run as this user");
        return;
    }
    // the target folder may lie where only root comes
    let folder = Folder::new(std::env::temp_dir().join(format!("sandbox-test-{}", std::process::id())));
    let own = std::env::current_exe().expect("a path of the tests");
    for (source, name) in
        [(own.as_path(), "tests"), (Path::new(env!("CARGO_BIN_EXE_sandbox-supervisor")), "supervisor")]
    {
        let copy = folder.0.join(name);
        fs::copy(source, &copy).expect("a copy");
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("a copy");
    }
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).expect("a folder");
    let mut command = Command::new(folder.0.join("tests"));
    // all tests of what programs reach, and the plain ones of limits
    command
        .args(["isolation::", "limits::", "survival::a_", "--test-threads", "2"])
        .env(SUPERVISOR, folder.0.join("supervisor"));
    command.env("TMPDIR", "/tmp").current_dir("/").uid(65534).gid(65534);
    let output = command.output().expect("the copy starts");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && stdout.contains("test result: ok"), "{stdout}\n{stderr}");
}

#[test]
fn a_toolchain_where_only_root_comes_can_be_used() {
    let place = if is_root() { PathBuf::from("/root") } else { std::env::temp_dir() };
    if !is_root() {
        println!("skipped: only root has places where others do not come");
        return;
    }
    let folder = Folder::new(place.join(format!("sandbox-test-{}", std::process::id())));
    let tools = folder.0.join("tools-1.0/bin");
    fs::create_dir_all(&tools).expect("a folder");
    fs::copy("/usr/bin/true", tools.join("tool")).expect("a copy");
    fs::write(folder.0.join("secret"), "private").expect("a file");
    symlink("tools-1.0", folder.0.join("tools")).expect("a link");
    let root = folder.0.join("tools");
    let sandbox = sandbox_of(Settings { roots: vec![root.clone()], ..settings() });
    let Some(sandbox) = sandbox else { return };
    let tool = root.join("bin/tool");
    let job = Job { program: Program::Path(tool.as_os_str()), ..python(&[], LIMITS) };
    assert_eq!(sandbox.run(&job).expect("the sandbox works").end, End::Exited(0));
    let code = format!(
        "import os\nprint(sorted(os.listdir({:?})))\ntry: open({:?}, 'w')\nexcept OSError as e: print(e.errno)",
        folder.0.display().to_string(),
        tool.display().to_string()
    );
    // of the folder around it there is nothing but the way, and nothing can be written
    assert_eq!(print_of(&sandbox, &code), "['tools', 'tools-1.0']\n30");
}

#[test]
fn folders_with_private_files_cannot_be_roots() {
    for root in ["/", "/etc", "/root", "/home", "/tmp", "/proc/self", "relative", "/no/such/folder"] {
        let refused = Sandbox::new(Settings { roots: vec![PathBuf::from(root)], ..settings() });
        assert!(matches!(refused, Err(SandboxError::Job(_))), "{root}");
    }
}

#[test]
fn a_program_never_runs_as_root_even_without_isolation() {
    let sandbox =
        sandbox_of(Settings { isolation: Isolation::Off, ..settings() }).expect("no layer that could be denied");
    let code = "import os; open('file', 'w'); print(os.getuid() != 0, os.getgid() != 0, sorted(os.environ))";
    assert_eq!(print_of(&sandbox, code), "True True ['HOME', 'LANG', 'PATH', 'TMPDIR']");
    let work = print_of(&sandbox, "import os; print(os.getcwd())");
    assert!(work.starts_with("/tmp/pipeline-run-") && !Path::new(&work).exists(), "{work}");
    let limits = Limits { cpu: Duration::from_millis(300), ..LIMITS };
    let arguments = ["-I", "-c", "while True: pass"].map(OsStr::new);
    assert_eq!(sandbox.run(&python(&arguments, limits)).expect("the sandbox works").end, End::CpuLimit);
}

#[test]
fn a_program_that_would_not_serve_is_refused_as_its_own_supervisor() {
    // the main of a test program is not ours
    let refused = Sandbox::new(Settings { launch: Launch::Itself, ..settings() });
    assert!(matches!(refused, Err(SandboxError::NotAsked)));
    let absent = Sandbox::new(Settings { launch: Launch::Program(PathBuf::from("/no/such/program")), ..settings() });
    assert!(matches!(absent, Err(SandboxError::Start { .. })));
    let silent = Sandbox::new(Settings { launch: Launch::Program(PathBuf::from("/usr/bin/true")), ..settings() });
    assert!(matches!(silent, Err(SandboxError::Lost(_))));
}

#[test]
fn without_user_namespaces_the_step_and_the_way_out_are_named() {
    succeeds(alone("users::no_namespaces_alone"));
}

#[test]
fn no_namespaces_alone() {
    if !is_alone() {
        return;
    }
    let Some(sandbox) = sandbox() else { return };
    drop(sandbox);
    // inside a user namespace that allows no further one
    let program = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" --exact users::denied_alone --nocapture";
    let own = std::env::current_exe().expect("a path of the tests");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-user=1000", "--map-group=1000", "--keep-caps", "sh", "-c", program]).arg(own);
    succeeds(command);
}

#[test]
fn denied_alone() {
    if !is_alone() {
        return;
    }
    let error = Sandbox::new(settings()).expect_err("no user namespaces here").to_string();
    assert!(error.contains("--unsafe-no-sandbox"), "{error}");
    assert!(error.contains("enter new namespaces") && error.contains("user.max_user_namespaces"), "{error}");
}
