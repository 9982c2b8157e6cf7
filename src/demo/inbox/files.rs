//! The folder: one `.eml` a mail, its HTML beside it, and an index to open in a browser.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use crate::http::viewer::mime;

/// How much of a mail the index reads for its header.
const HEADER_BYTES: u64 = 16 * 1024;

/// The longest id in a file name.
const MAX_ID: usize = 80;

/// Makes the folder and gives the number of its last mail.
pub(super) async fn prepare(folder: &Path) -> io::Result<usize> {
    let folder = folder.to_owned();
    blocking(move || {
        fs::create_dir_all(&folder)?;
        let names = mails(&folder)?;
        Ok(names.iter().filter_map(|name| number(name)).max().unwrap_or(0))
    })
    .await
}

/// Writes `<number>-<id>.eml` and, if there is an HTML part, the same with `.html`.
pub(super) async fn save(folder: &Path, number: usize, id: Option<&str>, bytes: Vec<u8>) -> io::Result<()> {
    let stem = format!("{number:05}-{}", id.map_or_else(|| number.to_string(), file_name));
    let folder = folder.to_owned();
    blocking(move || {
        if let Some(html) = mime::html(&bytes) {
            write_whole(&folder.join(format!("{stem}.html")), &html)?;
        }
        // Last, so that whoever counts the mails finds each complete.
        write_whole(&folder.join(format!("{stem}.eml")), &bytes)
    })
    .await
}

/// Writes `index.html`, which lists the folder's mails with links, and gives its path.
pub fn write_index(folder: &Path) -> io::Result<PathBuf> {
    let mut page = String::from(PAGE_START);
    let names = mails(folder)?;
    for name in &names {
        let head = head(&folder.join(name))?;
        let html = Path::new(name).with_extension("html");
        let shown = if folder.join(&html).exists() { html } else { PathBuf::from(name) };
        // Writing to a String cannot fail.
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td><a href=\"{}\">{}</a></td><td>{}</td><td><a href=\"{}\">eml</a></td></tr>",
            number(name).unwrap_or_default(),
            escape(&shown.to_string_lossy()),
            escape(&head.subject),
            escape(&head.to),
            escape(name),
        );
    }
    let _ = writeln!(page, "</tbody></table><p>{} mails</p></main></html>", names.len());
    let path = folder.join("index.html");
    write_whole(&path, page.as_bytes())?;
    Ok(path)
}

const PAGE_START: &str = r#"<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>digestd inbox</title>
<style>
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
main { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .4rem .8rem .4rem 0; border-bottom: 1px solid #8884 }
</style>
<main><h1>digestd inbox</h1>
<table><thead><tr><th>No.</th><th>Subject</th><th>To</th><th>Source</th></tr></thead><tbody>
"#;

/// What a list shows of a mail.
#[derive(Debug)]
pub(super) struct Head {
    pub subject: String,
    pub to: String,
}

/// Reads the beginning of a mail.
pub(super) fn head(path: &Path) -> io::Result<Head> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(HEADER_BYTES).read_to_end(&mut bytes)?;
    let text = |header| mime::words(&mime::header(&bytes, header).unwrap_or_default());
    Ok(Head { subject: text("Subject"), to: text("To") })
}

/// The names of all mails, in the order of their numbers.
pub(super) fn mails(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        if Path::new(&name).extension() == Some(OsStr::new("eml")) {
            names.extend(name.into_string());
        }
    }
    names.sort_by_key(|name| (number(name), name.clone()));
    Ok(names)
}

fn number(name: &str) -> Option<usize> {
    name.split_once('-')?.0.parse().ok()
}

/// An id comes out of a mail and must not choose a path.
fn file_name(id: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '_' };
    id.chars().take(MAX_ID).map(safe).collect()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Under another name first: a reader sees the whole file or none.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let partial = path.with_extension("part");
    fs::write(&partial, bytes)?;
    fs::rename(&partial, path)
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::{file_name, mails, prepare, save, write_index};
    use std::fs;

    #[test]
    fn an_id_never_leaves_the_folder() {
        assert_eq!(file_name("../../etc/passwd"), "______etc_passwd");
        assert_eq!(file_name("0af-1_B"), "0af-1_B");
        assert_eq!(file_name(&"x".repeat(500)).len(), 80);
    }

    #[tokio::test]
    async fn numbers_go_on_where_the_folder_ends() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(prepare(folder.path()).await.unwrap(), 0);
        save(folder.path(), 9, None, b"Subject: a\r\n\r\n".to_vec()).await.unwrap();
        save(folder.path(), 100_000, Some("x"), b"Subject: b\r\n\r\n".to_vec()).await.unwrap();
        assert_eq!(mails(folder.path()).unwrap(), ["00009-9.eml", "100000-x.eml"]);
        assert_eq!(prepare(folder.path()).await.unwrap(), 100_000);
    }

    #[tokio::test]
    async fn the_index_shows_subjects_as_text_and_links_the_html() {
        let folder = tempfile::tempdir().unwrap();
        let mail =
            "Subject: =?utf-8?Q?<b>_K=C3=B6ln?=\r\nTo: a@b.c\r\nContent-Type: text/html\r\n\r\n<p>x</p>";
        save(folder.path(), 1, Some("id"), mail.as_bytes().to_vec()).await.unwrap();
        let path = write_index(folder.path()).unwrap();
        let page = fs::read_to_string(path).unwrap();
        assert!(page.contains("<a href=\"00001-id.html\">&lt;b&gt; Köln</a></td><td>a@b.c</td>"), "{page}");
        assert!(page.contains("<a href=\"00001-id.eml\">eml</a>"), "{page}");
        assert_eq!(fs::read_to_string(folder.path().join("00001-id.html")).unwrap(), "<p>x</p>");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }
}
