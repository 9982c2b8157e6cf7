//! `docs/metrics.md` names every metric there is, and no other.

use std::fmt::Write as _;
use std::path::Path;

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

fn table() -> String {
    let mut table = "\n| metric | kind | labels | meaning |\n|---|---|---|---|\n".to_owned();
    for metric in Metrics::new().catalogue() {
        let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind, labels, help) = (&metric.name, metric.kind.as_str(), labels.join(", "), metric.help);
        writeln!(table, "| `{name}` | {kind} | {labels} | {help} |").expect("a String");
    }
    table + "\n"
}
