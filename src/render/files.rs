//! Where templates and words come from: the program itself, or a folder of the operator's.

use std::collections::BTreeMap;
use std::path::Path;

use super::TemplateError;

/// The files that come with the program, as name and content.
pub const FILES: [(&str, &str); 8] = [
    ("digest.html", include_str!("../../templates/digest.html")),
    ("digest.txt", include_str!("../../templates/digest.txt")),
    ("digest.subject.txt", include_str!("../../templates/digest.subject.txt")),
    ("macros.html", include_str!("../../templates/macros.html")),
    ("macros.txt", include_str!("../../templates/macros.txt")),
    ("strings.en.ftl", include_str!("../../templates/strings.en.ftl")),
    ("strings.de.ftl", include_str!("../../templates/strings.de.ftl")),
    ("strings.ar.ftl", include_str!("../../templates/strings.ar.ftl")),
];

/// All files, before they are compiled.
pub(super) struct Files {
    /// Templates by name.
    pub templates: BTreeMap<String, String>,
    /// Words by language tag.
    pub strings: BTreeMap<String, String>,
}

/// Takes the program's files and lays the folder's over them.
pub(super) fn collect(dir: Option<&Path>) -> Result<Files, TemplateError> {
    let mut files = Files { templates: BTreeMap::new(), strings: BTreeMap::new() };
    for (name, content) in FILES {
        files.add(name, content);
    }
    let Some(dir) = dir else { return Ok(files) };
    let unreadable = |path: &Path| {
        let file = path.display().to_string();
        move |source| TemplateError::Read { file, source }
    };
    for entry in std::fs::read_dir(dir).map_err(unreadable(dir))? {
        let path = entry.map_err(unreadable(dir))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if path.is_file() && is_ours(name) {
            files.add(name, &std::fs::read_to_string(&path).map_err(unreadable(&path))?);
        }
    }
    Ok(files)
}

impl Files {
    fn add(&mut self, name: &str, content: &str) {
        // Windows editors' line ends would end up in the mail.
        let content = content.replace("\r\n", "\n");
        match name.strip_prefix("strings.").and_then(|rest| rest.strip_suffix(".ftl")) {
            Some(tag) => self.strings.insert(tag.to_owned(), content),
            None => self.templates.insert(name.to_owned(), content),
        };
    }
}

/// Editors leave other files behind: backups, swap files.
fn is_ours(name: &str) -> bool {
    let language = name.starts_with("strings.") && has_ending(name, "ftl");
    !name.starts_with('.') && (language || has_ending(name, "html") || has_ending(name, "txt"))
}

/// Whether the name ends in a dot and the ending. The ending decides how a part is escaped.
pub(super) fn has_ending(name: &str, ending: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, found)| found == ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_replaces_and_adds_files() {
        let dir = tempfile::tempdir().unwrap();
        for (name, content) in [
            ("digest.txt", "own\r\n"),
            ("extra.html", "x"),
            ("strings.fr.ftl", "dir = ltr"),
            (".x.html.swp", ""),
        ] {
            std::fs::write(dir.path().join(name), content).unwrap();
        }
        let files = collect(Some(dir.path())).unwrap();
        assert_eq!(files.templates["digest.txt"], "own\n");
        assert_eq!(files.templates.len(), 6);
        assert_eq!(files.strings.keys().collect::<Vec<_>>(), ["ar", "de", "en", "fr"]);
    }

    #[test]
    fn a_missing_folder_is_an_error_with_its_path() {
        let error = collect(Some(Path::new("/nonexistent/templates"))).err().unwrap();
        assert_eq!(error.to_string(), "reading /nonexistent/templates");
    }
}
