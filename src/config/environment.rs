//! Environment variables `DIGESTD__TABLE__KEY`.

use super::keys;
use super::layer::{Entry, Layer};
use super::problem::{Problem, nearest};

/// The prefix has two underscores. Kubernetes puts `DIGESTD_PORT` and the like into the
/// environment of every pod beside a service of our name; those have one and are not ours.
const PREFIX: &str = "DIGESTD__";

/// Reads the variables that are ours. An empty one counts as unset.
pub fn read(variables: impl IntoIterator<Item = (String, String)>, problems: &mut Vec<Problem>) -> Layer {
    let mut ours: Vec<(String, String)> =
        variables.into_iter().filter(|(name, text)| name.starts_with(PREFIX) && !text.is_empty()).collect();
    ours.sort();
    let mut layer = Layer::default();
    for (name, text) in ours {
        let path = name[PREFIX.len()..].to_lowercase().replace("__", ".");
        let origin = format!("environment variable {name}");
        if keys::find(&path).is_some() {
            layer.set(&path, Entry { text, origin });
        } else {
            problems.push(unknown(&path, &origin));
        }
    }
    layer
}

fn unknown(path: &str, origin: &str) -> Problem {
    let top = path.split('.').next().unwrap_or_default();
    if top == "section" || top == "headers" {
        return Problem::new(path, Some(origin), "cannot be set by the environment")
            .hint("write it in the file");
    }
    let known: Vec<String> = keys::paths().collect();
    if keys::is_table(path) {
        let inner = known.iter().find(|key| key.starts_with(&format!("{path}.")));
        let problem = Problem::new(path, Some(origin), "names a table, not a key");
        return match inner {
            Some(key) => problem.hint(format!("name one of its keys, such as {}", keys::variable(key))),
            None => problem,
        };
    }
    let problem = Problem::new(path, Some(origin), "unknown key");
    match nearest(path, known.iter().map(String::as_str)) {
        Some(near) => problem.hint(format!("did you mean {}?", keys::variable(near))),
        None => problem.hint("docs/configuration.md lists every key"),
    }
}
