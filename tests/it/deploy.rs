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

/// Asked for `--help`, one began to build an image instead.
#[test]
fn every_script_with_options_answers_a_question_for_help() {
    let mut found = 0;
    for folder in ["scripts", "scripts/containers"] {
        let entries = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).expect("a folder");
        for path in entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_file()) {
            let text = fs::read_to_string(&path).expect("a script");
            let usage = format!("#   {folder}/{} ", path.file_name().expect("a name").to_string_lossy());
            let has_options = text.lines().any(|line| line.starts_with(&usage) && line.contains("[--"));
            if text.starts_with("#!/usr/bin/env bash") && has_options {
                found += 1;
                let answers = text.contains("--help)") || text.contains("== --help");
                assert!(answers, "{} does not know --help", path.display());
            }
        }
    }
    assert!(found >= 6, "{found} scripts with options were found");
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
