//! Relative paths, so that a project's folder can be moved as a whole.

use std::path::{Component, Path, PathBuf};

/// `path` as seen from `folder`; both are taken as absolute after the working directory is put before them.
pub fn relative(path: &Path, folder: &Path) -> String {
    let (path, folder) = (absolute(path), absolute(folder));
    let mut above = folder.components();
    let mut below = path.components();
    loop {
        let (here, there) = (above.clone(), below.clone());
        match (above.next(), below.next()) {
            (Some(one), Some(two)) if one == two => {}
            _ => {
                (above, below) = (here, there);
                break;
            }
        }
    }
    let up = std::iter::repeat_n(Component::ParentDir, above.count());
    up.chain(below).collect::<PathBuf>().display().to_string()
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_seen_from_a_folder_below_its_own() {
        assert_eq!(relative(Path::new("/p/dag.toml"), Path::new("/p/out/.store/x-1")), "../../../dag.toml");
        assert_eq!(relative(Path::new("/p/a/dag.toml"), Path::new("/p/b")), "../a/dag.toml");
    }
}
