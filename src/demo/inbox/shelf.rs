//! The inbox as something to look at.

use std::fs;
use std::io;
use std::path::PathBuf;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::files::{self, blocking};
use crate::http::viewer::{Choice, Entry, List, Mail, Shelf, ShelfError};

/// The newest mails that the list shows.
const LISTED: usize = 500;

/// The mails of a folder.
#[derive(Debug)]
pub struct InboxShelf {
    folder: PathBuf,
}

impl InboxShelf {
    /// Shows this folder, whatever comes into it meanwhile.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }
}

impl Shelf for InboxShelf {
    fn title(&self) -> String {
        "Inbox".to_owned()
    }

    fn list<'a>(&'a self, wanted: &'a str) -> BoxFuture<'a, Result<List, ShelfError>> {
        let (folder, wanted) = (self.folder.clone(), wanted.to_lowercase());
        blocking(move || {
            let mut list = List::default();
            for name in files::mails(&folder)?.into_iter().rev() {
                let head = files::head(&folder.join(&name))?;
                let entry = Entry { title: head.subject, detail: head.to, id: name };
                let words = format!("{} {} {}", entry.id, entry.title, entry.detail).to_lowercase();
                if !words.contains(&wanted) {
                    continue;
                }
                if list.entries.len() == LISTED {
                    list.more = true;
                    break;
                }
                list.entries.push(entry);
            }
            Ok(list)
        })
        .map(told)
        .boxed()
    }

    fn mail<'a>(&'a self, choice: &'a Choice) -> BoxFuture<'a, Result<Option<Mail>, ShelfError>> {
        let (folder, id) = (self.folder.clone(), choice.id.clone());
        blocking(move || {
            // One of the names that are there: an id chooses no path.
            if !files::mails(&folder)?.contains(&id) {
                return Ok(None);
            }
            Ok(Some(Mail { bytes: fs::read(folder.join(id))?, ..Mail::default() }))
        })
        .map(told)
        .boxed()
    }

    fn version(&self) -> BoxFuture<'_, u64> {
        let folder = self.folder.clone();
        let count = blocking(move || Ok(files::mails(&folder)?.len() as u64));
        count.map(Result::unwrap_or_default).boxed()
    }
}

fn told<T>(read: io::Result<T>) -> Result<T, ShelfError> {
    read.map_err(|error| ShelfError(format!("The folder of the mails cannot be read: {error}")))
}
