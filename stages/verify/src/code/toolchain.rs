//! The languages that programs may be written in, and what runs them on this host.
//!
//! Python is asked where it really is, because what `PATH` holds may be a script that picks an
//! interpreter; the sandbox then starts that interpreter by its own path. A language that is not
//! installed is an error only when a row needs it. Versions are part of every cache key.

use super::CodeError;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How programs of one language are run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolchain {
    /// Name of the program's file in its work folder, for instance `main.py`.
    pub file: String,
    /// Command that makes an executable of it, if the language is compiled.
    pub compile: Option<Compile>,
    /// Command that runs it, its first word an absolute path. For a compiled language: the arguments of the executable.
    pub run: Vec<String>,
    /// Host folders that it needs besides the system's.
    pub roots: Vec<PathBuf>,
    /// Variables of the environment it runs with.
    pub environment: Vec<(String, String)>,
    /// Processes and threads that the language itself needs, besides those that a test allows.
    pub processes: u32,
    /// What decides its behaviour: name, version, options. Enters cache keys.
    pub version: String,
    /// A program that prints `42`. It is run once before the first verdict, so that a broken installation is not taken
    /// for wrong programs.
    pub probe: String,
}

/// A compiler's command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compile {
    /// The command, its first word an absolute path.
    pub command: Vec<String>,
    /// The executable that it leaves in the work folder.
    pub output: String,
}

/// Languages by name.
#[derive(Debug, Clone, Default)]
pub struct Toolchains {
    known: BTreeMap<String, Result<Toolchain, String>>,
}

impl Toolchains {
    /// Python and C++ as this host has them. Starts the interpreter and the compiler once each, for their versions.
    pub fn found() -> Self {
        let known = [("python", python()), ("cpp", cpp())];
        Self { known: known.into_iter().map(|(name, found)| (name.to_string(), found)).collect() }
    }

    /// With another language, or with another toolchain for a known one.
    #[must_use]
    pub fn with(mut self, name: &str, toolchain: Toolchain) -> Self {
        self.known.insert(language(name), Ok(toolchain));
        self
    }

    /// The toolchain of a language.
    ///
    /// # Errors
    /// [`CodeError::NoToolchain`]: the language is unknown, or not installed here.
    pub fn get(&self, name: &str) -> Result<&Toolchain, CodeError> {
        let wrong = |why: String| CodeError::NoToolchain { language: name.to_string(), why };
        match self.known.get(&language(name)) {
            Some(found) => found.as_ref().map_err(|why| wrong(why.clone())),
            None => Err(wrong(format!("the known languages are {}", self.names().collect::<Vec<_>>().join(", ")))),
        }
    }

    /// Whether a language is known, installed or not: what counts as a program must not depend on the host.
    pub fn knows(&self, name: &str) -> bool {
        self.known.contains_key(&language(name))
    }

    /// The names of the known languages, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.known.keys().map(String::as_str)
    }

    /// Host folders that the sandbox must show.
    pub fn roots(&self) -> Vec<PathBuf> {
        let mut roots: Vec<_> = self.known.values().flatten().flat_map(|toolchain| toolchain.roots.clone()).collect();
        roots.sort();
        roots.dedup();
        roots
    }

    /// Versions by language, for fingerprints; languages that are not installed are left out.
    pub fn versions(&self) -> BTreeMap<&str, &str> {
        self.known
            .iter()
            .filter_map(|(name, found)| Some((name.as_str(), found.as_ref().ok()?.version.as_str())))
            .collect()
    }
}

/// The usual name of a language, lower case: `py` and `Python3` are `python`, `c++` and `cc` are `cpp`.
pub fn language(word: &str) -> String {
    let word = word.trim().to_lowercase();
    match word.as_str() {
        "py" | "python3" | "py3" | "pypy" | "pypy3" | "ipython" => "python".to_string(),
        "c++" | "cc" | "cxx" | "cplusplus" | "g++" | "gnu++" | "hpp" => "cpp".to_string(),
        standard if is_standard(standard) => "cpp".to_string(),
        version if version.strip_prefix("python3.").is_some_and(is_number) => "python".to_string(),
        _ => word,
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|letter| letter.is_ascii_digit())
}

/// `c++17`, `cpp20`.
fn is_standard(word: &str) -> bool {
    ["c++", "cpp", "gnu++"].iter().any(|name| word.strip_prefix(name).is_some_and(is_number))
}

/// Prints what is needed of the interpreter that runs it.
const ASK_PYTHON: &str = "import sys\nprint(sys.executable, sys.prefix, sys.base_prefix, sys.implementation.name, \
                          '.'.join(map(str, sys.version_info[:3])), sep='\\n')";

fn python() -> Result<Toolchain, String> {
    let mut why = String::new();
    for name in ["python3", "python", "/usr/bin/python3", "/usr/local/bin/python3"] {
        match ask(name, &["-I", "-c", ASK_PYTHON]).and_then(|answer| interpreter(&answer)) {
            Ok(toolchain) => return Ok(toolchain),
            Err(wrong) => why.push_str(&format!("{}`{name}`: {wrong}", if why.is_empty() { "" } else { "; " })),
        }
    }
    Err(format!("install Python 3 or put it on `PATH` ({why})"))
}

fn interpreter(answer: &str) -> Result<Toolchain, String> {
    let lines: Vec<_> = answer.lines().collect();
    let [executable, prefix, base, implementation, version] = lines[..] else {
        return Err("it does not say where it is".to_string());
    };
    if !version.starts_with("3.") {
        return Err(format!("version {version} is not Python 3"));
    }
    let roots = roots(&[prefix, base]);
    let shown = |path: &Path| is_system(path) || roots.iter().any(|root| path.starts_with(root));
    // a link from elsewhere is not visible inside; what it points to is
    let executable = if shown(Path::new(executable)) {
        executable.to_string()
    } else {
        let real = Path::new(executable).canonicalize().map_err(|error| error.to_string())?;
        real.into_os_string().into_string().map_err(|_| "its path is not UTF-8".to_string())?
    };
    let variable = |name: &str, value: &str| (name.to_string(), value.to_string());
    Ok(Toolchain {
        file: "main.py".to_string(),
        compile: None,
        // no user packages, no byte code files, UTF-8 whatever the locale; `site` stays, since programs call `exit()`
        run: [&executable, "-s", "-B", "-X", "utf8", "main.py"].map(str::to_string).to_vec(),
        roots,
        // sets have the same order in every run, and numeric libraries start no threads
        environment: vec![
            variable("PYTHONHASHSEED", "0"),
            variable("OPENBLAS_NUM_THREADS", "1"),
            variable("OMP_NUM_THREADS", "1"),
            variable("MKL_NUM_THREADS", "1"),
        ],
        processes: 0,
        version: format!("{implementation} {version} -s -B -X utf8"),
        probe: "print(6 * 7)\n".to_string(),
    })
}

/// Options of the compiler. Warnings and repeated source lines would only fill the diagnostics.
const CPP_OPTIONS: [&str; 5] = ["-O2", "-std=gnu++17", "-pthread", "-w", "-fno-diagnostics-show-caret"];

fn cpp() -> Result<Toolchain, String> {
    let mut why = String::new();
    for name in ["c++", "g++", "clang++"] {
        let found = ask("/bin/sh", &["-c", &format!("command -v {name}")]);
        let found = found.map(|path| driver(Path::new(path.trim()))).and_then(|path| {
            let version = ask(&path.to_string_lossy(), &["--version"])?;
            Ok((path, version.lines().next().unwrap_or_default().trim().to_string()))
        });
        match found {
            Ok((path, version)) => return Ok(compiler(&path, &version)),
            Err(wrong) => why.push_str(&format!("{}`{name}`: {wrong}", if why.is_empty() { "" } else { "; " })),
        }
    }
    Err(format!("install a C++ compiler or put it on `PATH` ({why})"))
}

fn compiler(path: &Path, version: &str) -> Toolchain {
    let mut command = vec![path.to_string_lossy().into_owned()];
    command.extend(CPP_OPTIONS.map(str::to_string));
    command.extend(["-o", "program", "main.cpp"].map(str::to_string));
    let prefix = path.parent().and_then(Path::parent).map(|prefix| prefix.to_string_lossy().into_owned());
    Toolchain {
        file: "main.cpp".to_string(),
        compile: Some(Compile { command, output: "program".to_string() }),
        run: Vec::new(),
        roots: roots(&[prefix.as_deref().unwrap_or_default()]),
        environment: Vec::new(),
        processes: 0,
        version: format!("{version} {}", CPP_OPTIONS.join(" ")),
        probe: "#include <iostream>\nint main() { std::cout << 6 * 7; }\n".to_string(),
    }
}

/// Follows the links of a compiler as long as the name still says that it compiles C++: the folder of
/// alternatives is not visible in the sandbox.
fn driver(path: &Path) -> PathBuf {
    let mut path = path.to_path_buf();
    for _ in 0..8 {
        let Ok(next) = path.read_link() else { break };
        let next = path.parent().unwrap_or(Path::new("/")).join(next);
        if !next.file_name().is_some_and(|name| name.to_string_lossy().contains("++")) {
            break;
        }
        path = next;
    }
    match (path.parent().map(Path::canonicalize), path.file_name()) {
        (Some(Ok(folder)), Some(name)) => folder.join(name),
        _ => path,
    }
}

/// The folders that lie outside the system's, and what they are links to.
fn roots(folders: &[&str]) -> Vec<PathBuf> {
    let mut roots = Vec::new();
    for folder in folders.iter().map(Path::new) {
        let real = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
        for root in [folder.to_path_buf(), real] {
            let is_root = root.parent().is_none();
            if root.is_absolute() && !is_root && !is_system(&root) && !roots.contains(&root) {
                roots.push(root);
            }
        }
    }
    roots
}

/// Whether the sandbox shows a path anyway.
fn is_system(path: &Path) -> bool {
    let first = path.components().nth(1).map(|part| part.as_os_str().to_string_lossy().into_owned());
    first.is_some_and(|first| ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"].contains(&first.as_str()))
}

/// What a program of the host prints.
fn ask(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| error.to_string())?;
    if !output.status.success() {
        let said = super::line::last(&output.stderr);
        return Err(if said.is_empty() { "not found".to_string() } else { said });
    }
    String::from_utf8(output.stdout).map_err(|_| "its answer is not UTF-8".to_string())
}

#[cfg(test)]
mod tests {
    use super::{Toolchains, interpreter, is_system, language, roots};
    use std::path::Path;

    #[test]
    fn languages_have_one_name() {
        for word in ["py", "Python", "python3", "PY3", "python3.11"] {
            assert_eq!(language(word), "python");
        }
        for word in ["C++", "cpp", "cc", "c++17", "CPP20"] {
            assert_eq!(language(word), "cpp");
        }
        assert_eq!(
            (language("Java"), language("c"), language("python2")),
            ("java".into(), "c".into(), "python2".into())
        );
    }

    #[test]
    fn a_missing_toolchain_is_an_error_only_when_it_is_asked_for() {
        let none = Toolchains::default();
        assert!(none.roots().is_empty() && !none.knows("python"));
        assert!(none.get("python").unwrap_err().to_string().contains("`python`"));
    }

    #[test]
    fn an_interpreter_outside_the_system_shows_its_own_folders_only() {
        let found = interpreter("/opt/py/bin/python3\n/opt/venv\n/opt/py\ncpython\n3.12.1\n").unwrap();
        assert_eq!(found.roots, [Path::new("/opt/venv"), Path::new("/opt/py")]);
        assert_eq!(found.run[0], "/opt/py/bin/python3");
        assert!(found.version.starts_with("cpython 3.12.1"));
        assert!(interpreter("/usr/bin/python3\n/usr\n/usr\ncpython\n3.11.2\n").unwrap().roots.is_empty());
        assert!(interpreter("/usr/bin/python\n/usr\n/usr\ncpython\n2.7.18\n").is_err() && interpreter("").is_err());
        assert!(roots(&["/", ""]).is_empty() && is_system(Path::new("/lib64/x")) && !is_system(Path::new("/opt/usr")));
    }
}
