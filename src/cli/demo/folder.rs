//! The folder of a demo.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::cli::failure::Misuse;

/// Marks a folder as a demo's own, to be emptied by the next one.
const MARK: &str = ".digestd-demo";

/// A folder that one demo has for itself.
pub(super) struct Folder {
    path: PathBuf,
    /// Locked for as long as this demo runs; the lock ends with the process.
    _mark: File,
}

impl Folder {
    /// The folder, empty. Only one that an earlier demo has made and none works in is emptied.
    pub(super) fn empty(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        fs::create_dir_all(path).with_context(|| format!("making {shown}"))?;
        let mark = path.join(MARK);
        if entries(path)?.next().is_some() && !mark.exists() {
            bail!(
                Misuse::new(format!("{shown} is not empty and not an earlier demo's"))
                    .hint("choose another --dir")
            );
        }
        let held = File::create(&mark).with_context(|| format!("writing into {shown}"))?;
        match held.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                bail!(
                    Misuse::new(format!("another demo runs in {shown}"))
                        .hint("end it, or choose another --dir")
                )
            }
            Err(TryLockError::Error(error)) => return Err(error).with_context(|| format!("locking {shown}")),
        }
        for entry in entries(path)?.filter(|entry| *entry != mark) {
            let removed = if entry.is_dir() { fs::remove_dir_all(&entry) } else { fs::remove_file(&entry) };
            removed.with_context(|| format!("emptying {shown}"))?;
        }
        let folder = path.canonicalize().with_context(|| format!("looking at {shown}"))?;
        Ok(Self { path: folder, _mark: held })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn entries(folder: &Path) -> anyhow::Result<impl Iterator<Item = PathBuf>> {
    let read =
        fs::read_dir(folder).and_then(|entries| entries.map(|entry| entry.map(|e| e.path())).collect());
    let paths: Vec<PathBuf> = read.with_context(|| format!("reading {}", folder.display()))?;
    Ok(paths.into_iter())
}
