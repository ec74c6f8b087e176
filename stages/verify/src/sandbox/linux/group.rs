//! Control groups, the caller's part: finds where a group can be made, makes one for each supervisor, removes it at
//! the end.
//!
//! A group is kept for all runs of its supervisor, which sits in it itself: to move every run into one would cost
//! the kernel a wait of milliseconds each time. The caller opens the group's files and hands them over, since the
//! supervisor no longer has the rights to.

use super::counters::{Kind, Version};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Start of the names of groups; the caller's process number and a count follow.
const PREFIX: &str = "pipeline-sandbox-";

static COUNT: AtomicU32 = AtomicU32::new(0);

/// Folders in which groups can be made: one for each hierarchy that is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Version of the hierarchy.
    pub version: Version,
    /// Folders of hierarchies, that of memory first.
    pub folders: Vec<PathBuf>,
}

/// A group; removed on drop, when its processes must have ended.
#[derive(Debug)]
pub struct Group {
    version: Version,
    folders: Vec<PathBuf>,
}

impl Place {
    /// Where this process could make groups, in the order of preference: version 2 from the innermost group
    /// outwards, then version 1.
    pub fn all() -> Vec<Self> {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self::from_tables(&read("/proc/self/mounts"), &read("/proc/self/cgroup"))
    }

    /// The same by the texts of `/proc/self/mounts` and `/proc/self/cgroup`.
    fn from_tables(mounts: &str, own: &str) -> Vec<Self> {
        let mounted = |kind: &str, controller: Option<&str>| {
            mounts.lines().find_map(|line| {
                let mut fields = line.split(' ');
                let (at, found, options) = (fields.nth(1)?, fields.next()?, fields.next()?);
                let fits = controller.is_none_or(|name| options.split(',').any(|option| option == name));
                (found == kind && fits).then(|| PathBuf::from(at))
            })
        };
        let own_path = |controller: &str| {
            own.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':').skip(1);
                let (controllers, path) = (fields.next()?, fields.next()?);
                controllers.split(',').any(|name| name == controller).then(|| path.trim_start_matches('/').to_owned())
            })
        };
        let mut places = Vec::new();
        if let (Some(mount), Some(path)) = (mounted("cgroup2", None), own_path("")) {
            let inner = mount.join(path);
            let groups = inner.ancestors().take_while(|folder| folder.starts_with(&mount));
            let giving = groups.filter(|folder| hands_on(folder));
            places.extend(giving.map(|folder| Self { version: Version::Two, folders: vec![folder.to_path_buf()] }));
        }
        let of_version_1 = |controller: &str| {
            let mount = mounted("cgroup", Some(controller))?;
            let inner = mount.join(own_path(controller)?);
            // in a container the path may be the host's, and what is mounted the container's own group
            Some(if inner.is_dir() { inner } else { mount })
        };
        if let Some(memory) = of_version_1("memory") {
            let mut folders = vec![memory];
            for controller in ["pids", "cpuacct"] {
                // two controllers may share a hierarchy
                folders.extend(of_version_1(controller).filter(|folder| !folders.contains(folder)));
            }
            places.push(Self { version: Version::One, folders });
        }
        places
    }

    /// Removes groups that callers left behind which are no more, for instance because they were killed.
    fn tidy(&self) {
        for folder in &self.folders {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let owner =
                    name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse::<u32>().ok());
                if owner.is_some_and(|owner| !Path::new(&format!("/proc/{owner}")).exists()) {
                    // the kernel refuses while there are processes in it
                    drop(fs::remove_dir(entry.path()));
                }
            }
        }
    }
}

/// Whether groups in this group of version 2 have memory and processes counted.
fn hands_on(folder: &Path) -> bool {
    let text = fs::read_to_string(folder.join("cgroup.subtree_control")).unwrap_or_default();
    ["memory", "pids"].iter().all(|wanted| text.split_ascii_whitespace().any(|name| name == *wanted))
}

impl Group {
    /// A new group at the first place that allows it; the reason in words where none does.
    pub fn make() -> Result<Self, String> {
        let mut reason = "no hierarchy with memory is mounted or delegated".to_owned();
        for place in Place::all() {
            place.tidy();
            match Self::make_at(&place) {
                Ok(group) => return Ok(group),
                Err(error) => reason = format!("cannot make one in `{}`: {error}", place.folders[0].display()),
            }
        }
        Err(reason)
    }

    fn make_at(place: &Place) -> io::Result<Self> {
        let name = format!("{PREFIX}{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        // made step by step, so that what has been made is removed if the next step fails
        let mut group = Self { version: place.version, folders: Vec::new() };
        for (index, folder) in place.folders.iter().enumerate() {
            let folder = folder.join(&name);
            match fs::create_dir(&folder) {
                Ok(()) => group.folders.push(folder),
                Err(error) if index == 0 => return Err(error),
                Err(_) => {}
            }
        }
        let kinds: Vec<Kind> = group.files().into_iter().map(|(kind, _)| kind).collect();
        if [Kind::MemoryLimit, Kind::MemoryUse, Kind::MemoryKills].iter().all(|kind| kinds.contains(kind)) {
            return Ok(group);
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "its files of memory are missing"))
    }

    /// Moves a process in, and with it all that it starts from now on.
    pub fn admit(&self, process: u32) -> io::Result<()> {
        self.folders.iter().try_for_each(|folder| fs::write(folder.join("cgroup.procs"), process.to_string()))
    }

    /// Its files as far as there are any, opened for what they are used for.
    pub fn files(&self) -> Vec<(Kind, File)> {
        let open = |kind: Kind| {
            self.folders.iter().find_map(|folder| {
                let path = folder.join(kind.file(self.version));
                OpenOptions::new().read(true).write(kind.is_written()).open(path).ok()
            })
        };
        Kind::ALL.into_iter().filter_map(|kind| Some((kind, open(kind)?))).collect()
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// What it limits and counts, in words.
    pub fn describe(&self) -> String {
        let version = if self.version == Version::One { 1 } else { 2 };
        let kinds: Vec<Kind> = self.files().into_iter().map(|(kind, _)| kind).collect();
        let of = |kind, name| if kinds.contains(&kind) { name } else { "" };
        format!(
            "control group v{version}: memory{}{}",
            of(Kind::Tasks, ", processes"),
            of(Kind::Cpu, ", processor time")
        )
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for folder in &self.folders {
            // if a process lingers, the next caller's start removes it
            drop(fs::remove_dir(folder));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that looks like a hierarchy, removed on drop.
    struct Fake(PathBuf);

    impl Fake {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("group-test-{}-{name}", std::process::id()));
            drop(fs::remove_dir_all(&path));
            fs::create_dir_all(&path).expect("a temporary folder");
            Self(path)
        }

        fn with(self, file: &str, content: &str) -> Self {
            let path = self.0.join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a temporary folder");
            fs::write(path, content).expect("a temporary file");
            self
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    #[test]
    fn version_2_is_taken_from_the_innermost_group_that_hands_memory_and_processes_on() {
        let fake = Fake::new("two")
            .with("cgroup.subtree_control", "cpu memory pids\n")
            .with("user/cgroup.subtree_control", "memory pids\n")
            .with("user/app/cgroup.subtree_control", "cpu\n");
        let mounts = format!("tmpfs /tmp tmpfs rw 0 0\ncgroup2 {} cgroup2 rw,nsdelegate 0 0\n", fake.0.display());
        let places = Place::from_tables(&mounts, "0::/user/app\n");
        let folders: Vec<&Path> = places.iter().map(|place| place.folders[0].as_path()).collect();
        assert_eq!(folders, [fake.0.join("user"), fake.0.clone()]);
        assert!(places.iter().all(|place| place.version == Version::Two));
    }

    #[test]
    fn version_2_without_memory_gives_way_to_version_1() {
        let fake = Fake::new("one")
            .with("unified/cgroup.subtree_control", "hugetlb\n")
            .with("memory/own/tasks", "")
            .with("cpu,cpuacct/tasks", "");
        let at = fake.0.display();
        let mounts = format!(
            "cgroup {at}/memory cgroup rw,memory 0 0\ncgroup {at}/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n\
             cgroup2 {at}/unified cgroup2 rw 0 0\n"
        );
        let places = Place::from_tables(&mounts, "4:memory:/own\n3:cpu,cpuacct:/not/seen/here\n0::/\n");
        let folders = vec![fake.0.join("memory/own"), fake.0.join("cpu,cpuacct")];
        assert_eq!(places, [Place { version: Version::One, folders }]);
    }

    #[test]
    fn without_hierarchies_there_is_no_place() {
        assert!(Place::from_tables("", "").is_empty());
        assert!(Place::from_tables("cgroup2 /nowhere cgroup2 rw 0 0", "0::/\n").is_empty());
    }

    #[test]
    fn groups_of_dead_owners_are_removed_and_others_stay() {
        let alive = format!("{PREFIX}{}-0/x", std::process::id());
        let fake = Fake::new("stale").with(&alive, "").with("other/x", "");
        let dead = fake.0.join(format!("{PREFIX}4194999-0"));
        fs::create_dir(&dead).expect("a temporary folder");
        Place { version: Version::Two, folders: vec![fake.0.clone()] }.tidy();
        assert!(!dead.exists() && fake.0.join(alive).exists() && fake.0.join("other").exists());
    }

    #[test]
    fn a_group_without_files_is_refused_and_removed() {
        let fake = Fake::new("empty");
        let place = Place { version: Version::Two, folders: vec![fake.0.clone()] };
        Group::make_at(&place).expect_err("a plain folder is no group");
        assert_eq!(fs::read_dir(&fake.0).expect("a folder").count(), 0);
    }
}
