//! `docs/metrics.md` names every metric there is, and no other.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use digestd::metrics::Metrics;

use crate::support::variable;

const START: &str = "<!-- made from src/metrics/catalogue.rs -->\n";
const END: &str = "<!-- end -->\n";

#[test]
fn the_list_of_metrics_is_the_code_s() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let text = std::fs::read_to_string(&path).expect("docs/metrics.md");
    let (before, rest) = text.split_once(START).expect("the start of the list");
    let (listed, after) = rest.split_once(END).expect("the end of the list");
    let expected = table();
    if listed != expected && variable("DIGESTD_BLESS").is_some() {
        std::fs::write(&path, format!("{before}{START}{expected}{END}{after}")).expect("written");
        return;
    }
    assert_eq!(listed, expected, "run this test once with DIGESTD_BLESS=1");
}

#[test]
fn names_carry_their_unit_and_what_is_counted_ends_in_total() {
    for metric in Metrics::new().catalogue() {
        let name = &metric.name;
        assert!(name.starts_with("digestd_"), "{name}");
        assert_eq!(name.ends_with("_total"), metric.kind.as_str() == "counter", "{name}");
        assert!(!metric.help.ends_with('.') && !metric.help.contains('\n'), "{name}");
    }
}

/// Alarms and panels on numbers that nobody ever set are worse than none: six were registered, documented
/// and drawn, and stood at zero.
#[test]
fn every_number_is_set_by_somebody() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let metrics = std::fs::read_to_string(root.join("metrics.rs")).expect("src/metrics.rs");
    let others = sources(&root).into_iter().filter(|path| !path.starts_with(root.join("metrics")));
    let others: String = others
        .filter(|path| *path != root.join("metrics.rs"))
        .map(|path| std::fs::read_to_string(path).expect("a source"))
        .collect();
    let setters: Vec<&str> = metrics
        .lines()
        .filter_map(|line| {
            line.strip_prefix("    pub fn ")?.split_once('(').filter(|(_, rest)| rest.starts_with("&self"))
        })
        .filter(|(_, rest)| rest.contains(','))
        .map(|(name, _)| name.split('<').next().unwrap_or(name))
        .collect();
    assert!(setters.len() > 20, "hardly any setter was found: {setters:?}");
    let idle: Vec<_> = setters.iter().filter(|name| !others.contains(&format!(".{name}("))).collect();
    assert!(idle.is_empty(), "nobody calls {idle:?}");
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let found = entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    found.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

fn table() -> String {
    let mut table = "\n| metric | kind | labels | meaning |\n|---|---|---|---|\n".to_owned();
    for metric in Metrics::new().catalogue() {
        let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind, labels, help) = (&metric.name, metric.kind.as_str(), labels.join(", "), metric.help);
        writeln!(table, "| `{name}` | {kind} | {labels} | {help} |").expect("a String");
    }
    table + "\n"
}
