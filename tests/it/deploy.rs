//! What stands in `deploy/` is true of the program.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use digestd::config::Config;
use digestd::metrics::Metrics;

/// Every word of a text that looks like a metric of ours.
fn metric_names(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("digestd_"))
        .map(str::to_owned)
        .collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect(path)
}

#[test]
fn dashboard_and_alerts_name_metrics_that_exist() {
    let known: BTreeSet<String> =
        Metrics::new().catalogue().iter().map(|metric| metric.name.clone()).collect();
    for path in ["deploy/grafana/digestd.json", "deploy/prometheus/alerts.yml"] {
        let named = metric_names(&read(path));
        assert!(named.len() > 5, "{path} names hardly any metric");
        let unknown: Vec<_> = named.difference(&known).collect();
        assert!(unknown.is_empty(), "{path} names {unknown:?}");
    }
}

#[test]
fn the_configuration_for_kubernetes_is_accepted() {
    let manifest = read("deploy/kubernetes/digestd.yaml");
    let (_, rest) = manifest.split_once("digestd.toml: |\n").expect("the configuration");
    let (text, _) = rest.split_once("---").expect("the next document");
    let lines: Vec<&str> = text.lines().map(|line| line.strip_prefix("    ").unwrap_or(line)).collect();
    let text = lines.join("\n");
    let folder = tempfile::tempdir().expect("a folder");
    for (name, secret) in [
        ("database-url", "postgres://digestd@db/digestd"),
        ("relay-password", "secret"),
        ("unsubscribe-keys", "a key that is at least as long as it must be"),
    ] {
        fs::write(folder.path().join(name), secret).expect("a secret");
    }
    let text = text.replace("/run/secrets/digestd", &folder.path().display().to_string());
    let config = Config::parse(&text, []).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.listen.port(), 8080);
}
