//! Mail into a folder: one `.eml` file per message, for first steps and for other carriers.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::fs;
use tokio::io::AsyncWriteExt as _;

use crate::domain::message::MessageUid;
use crate::domain::reply::{HandOver, Phase, Reply};

/// A folder that takes messages. Cheap to clone.
#[derive(Debug, Clone)]
pub struct MailFolder(Arc<Path>);

impl MailFolder {
    /// Takes messages in this folder, which must exist.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into().into())
    }

    /// Where the files are.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes `<uid>.eml`: whole and on disk, or not at all. The same message written again is
    /// the same file, so a failure is never uncertain.
    pub async fn write(&self, bytes: &[u8], uid: &MessageUid) -> HandOver {
        match self.put(bytes, uid).await {
            Ok(()) => {
                let text = format!("written to {uid}.eml");
                HandOver::Accepted(Reply { code: 250, enhanced: None, text })
            }
            Err(error) => HandOver::Broken { phase: Phase::Body, stale: false, error: error.to_string() },
        }
    }

    async fn put(&self, bytes: &[u8], uid: &MessageUid) -> io::Result<()> {
        // Two replicas may write the same message only after one of them has lost its lease;
        // the process id keeps their unfinished files apart.
        let unfinished = self.0.join(format!(".{uid}.{}.tmp", std::process::id()));
        let written = write_synced(&unfinished, bytes).await;
        let moved = match written {
            Ok(()) => fs::rename(&unfinished, self.0.join(format!("{uid}.eml"))).await,
            Err(error) => Err(error),
        };
        if moved.is_err() {
            // The first error is the one to tell.
            let _ = fs::remove_file(&unfinished).await;
        }
        moved?;
        fs::File::open(&self.0).await?.sync_all().await
    }
}

async fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::File::create(path).await?;
    file.write_all(bytes).await?;
    file.sync_all().await
}
