//! Secrets from files: `…_file` keys and `DIGESTD__…_FILE` variables.

use std::collections::BTreeMap;

use super::keys::FILE_SUFFIX;
use super::layer::Entry;
use super::problem::Problem;
use super::table::KEYS;

/// A secret is small; a larger file is the wrong one.
const MAX_SECRET_BYTES: u64 = 64 * 1024;

/// Replaces every `…_file` by what the file holds, without its last line end.
pub fn read_files(values: &mut BTreeMap<String, Entry>, problems: &mut Vec<Problem>) {
    for key in KEYS.iter().filter(|key| key.secret) {
        let twin = format!("{}{FILE_SUFFIX}", key.path);
        let Some(named) = values.remove(&twin) else { continue };
        if let Some(direct) = values.get(key.path) {
            let message = format!("{} is set as well ({})", key.path, direct.origin);
            problems.push(Problem::new(&twin, Some(&named.origin), message).hint("set one of the two"));
            continue;
        }
        match read_file(&named.text) {
            Ok(text) => {
                let origin = format!("{}, in the file it names", named.origin);
                values.insert(key.path.to_owned(), Entry { text, origin });
            }
            // The path is not shown: people put the secret itself there.
            Err(reason) => {
                let problem =
                    Problem::new(&twin, Some(&named.origin), format!("the file cannot be read: {reason}"));
                problems.push(problem.hint("the value is the path of a file that holds the secret"));
            }
        }
    }
}

fn read_file(path: &str) -> Result<String, String> {
    let size = std::fs::metadata(path).map_err(|error| error.kind().to_string())?.len();
    if size > MAX_SECRET_BYTES {
        return Err("it is too large for a secret".to_owned());
    }
    let bytes = std::fs::read(path).map_err(|error| error.kind().to_string())?;
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(text.to_owned()) }
}
