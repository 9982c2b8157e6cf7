//! The shape of the source tree, checked against the code: who may import whom, what each folder
//! keeps to itself, how long a file may be. Every check is a pure function over file texts and is
//! tested below on samples that break it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A file's path from the repository's root, and its text.
type Source = (String, String);

/// Past this, a file holds a second noun.
const MAX_LINES: usize = 500;

/// Tables of cases make tests longer, not harder to read.
const MAX_TEST_LINES: usize = 800;

/// The four that do the work; the composition root brings them together and nobody else does.
const WORKERS: [&str; 4] = ["tick", "deliver", "cleanup", "http"];

/// What may import the workers, and whatever is above them.
const ABOVE: [&str; 3] = ["main", "cli", "app"];

/// A word that only some folders may hold, and why.
struct Private {
    word: &'static str,
    homes: &'static [&'static str],
}

const PRIVATE: [Private; 14] = [
    // The table of configuration keys shows examples of operators' queries. The logs keep the driver quiet, by its name.
    Private { word: "sqlx", homes: &["src/store/", "src/source/", "src/telemetry.rs"] },
    Private { word: "INSERT INTO ", homes: &["src/store/"] },
    Private { word: "DELETE FROM ", homes: &["src/store/"] },
    Private { word: "UPDATE ", homes: &["src/store/", "src/config/table.rs"] },
    // `source/` wraps the operator's own queries.
    Private { word: "SELECT ", homes: &["src/store/", "src/source/", "src/config/table.rs"] },
    // A lock of a session that goes back to a pool is held by whoever gets that session next.
    Private { word: "pg_advisory_lock", homes: &["no folder"] },
    Private { word: "pg_try_advisory_lock", homes: &["no folder"] },
    Private { word: "lettre", homes: &["src/mail/"] },
    Private { word: "jiff", homes: &["src/domain/zone.rs"] },
    // The demo shows a page too.
    Private { word: "axum", homes: &["src/http/", "src/demo/"] },
    Private { word: "println!", homes: &["src/cli/"] },
    Private { word: "print!", homes: &["src/cli/"] },
    Private { word: "eprintln!", homes: &["src/cli/"] },
    Private { word: "eprint!", homes: &["src/cli/"] },
];

#[test]
fn modules_import_only_what_the_architecture_allows() {
    let sources = read_all("src");
    assert!(sources.len() > 20, "the source tree was not found");
    assert_none(&forbidden_imports(&imports(&sources)));
}

#[test]
fn modules_do_not_import_each_other_in_a_circle() {
    assert_none(&circles(&imports(&read_all("src"))));
}

#[test]
fn each_folder_keeps_its_tools_to_itself() {
    assert_none(&strays(&read_all("src")));
}

#[test]
fn files_are_short_and_hold_no_unfinished_work() {
    let mut sources = read_all("src");
    sources.extend(read_all("tests").into_iter().filter(|(path, _)| path != "tests/it/tidy.rs"));
    assert_none(&unfinished(&sources));
}

#[test]
fn statements_that_write_are_read_to_their_end() {
    assert_none(&half_read(&read_all("src/store")));
}

#[test]
fn migrations_are_twins() {
    assert_none(&lonely(&names("migrations/postgres"), &names("migrations/sqlite")));
}

fn assert_none(problems: &[String]) {
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// `tick` imports `{domain, store}`, and so on: top-level modules only.
type Imports = BTreeMap<String, BTreeSet<String>>;

fn imports(sources: &[Source]) -> Imports {
    let mut imports = Imports::new();
    for (path, text) in sources {
        let module = module_of(path);
        if module == "lib" {
            continue;
        }
        let text = code(text);
        let crates = if module == "main" { ["crate::", "digestd::"].as_slice() } else { &["crate::"] };
        let found = imports.entry(module.clone()).or_default();
        found.extend(crates.iter().flat_map(|root| named_after(&text, root)));
        // In a module's own root file, `super` is the crate.
        if path.ends_with("/mod.rs") && path.matches('/').count() == 2 || path.matches('/').count() == 1 {
            found.extend(named_after(&text, "super::"));
        }
        found.remove(&module);
    }
    imports
}

fn forbidden_imports(imports: &Imports) -> Vec<String> {
    let mut problems = Vec::new();
    for (module, imported) in imports {
        for other in imported {
            let allowed = match other.as_str() {
                _ if module == "domain" => false,
                "main" => false,
                "cli" => module == "main",
                "app" => module == "main" || module == "cli",
                "http" if module == "demo" => true,
                worker if WORKERS.contains(&worker) => ABOVE.contains(&module.as_str()),
                _ => true,
            };
            if !allowed {
                problems.push(format!("src/{module} must not import {other}"));
            }
        }
    }
    problems
}

/// Modules that reach themselves through their imports.
fn circles(imports: &Imports) -> Vec<String> {
    let reaches = |start: &String| {
        let mut seen = BTreeSet::new();
        let mut open: Vec<&String> = imports.get(start).into_iter().flatten().collect();
        while let Some(module) = open.pop() {
            if seen.insert(module) {
                open.extend(imports.get(module).into_iter().flatten());
            }
        }
        seen.contains(start)
    };
    imports
        .keys()
        .filter(|module| reaches(module))
        .map(|module| format!("src/{module} imports itself in a circle"))
        .collect()
}

fn strays(sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in sources {
        let text = code(text);
        for Private { word, homes } in &PRIVATE {
            if homes.iter().any(|home| path.starts_with(home)) {
                continue;
            }
            for (number, _) in text.lines().enumerate().filter(|(_, line)| holds_word(line, word)) {
                problems.push(format!(
                    "{path}:{}: “{}” belongs to {}",
                    number + 1,
                    word.trim(),
                    homes.join(" and ")
                ));
            }
        }
    }
    problems
}

fn unfinished(sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in sources {
        let lines = text.lines().count();
        let most = if path.starts_with("tests/") { MAX_TEST_LINES } else { MAX_LINES };
        if lines > most {
            problems.push(format!("{path} has {lines} lines; at most {most}"));
        }
        for word in ["todo!(", "unimplemented!(", "#[allow(", "#![allow("] {
            if without_comments(text).contains(word) {
                problems.push(format!("{path} holds {word}…)"));
            }
        }
    }
    problems
}

/// Statements that write and are read up to their first row only: what comes of the commit behind it is
/// never heard.
fn half_read(sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    // Migrations ask their questions through the connection that writes.
    for (path, text) in sources.iter().filter(|(path, _)| path != "src/store/migrate.rs") {
        let mut writes = false;
        for (number, line) in code(text).lines().enumerate() {
            if line.contains("fn ") || line.contains(", read, ") {
                writes = false;
            }
            if line.contains(", write, ") || line.contains("transact!(") {
                writes = true;
            }
            if writes && (line.contains(".fetch_optional(") || line.contains(".fetch_one(")) {
                problems
                    .push(format!("{path}:{}: a statement that writes is to be read to its end", number + 1));
            }
        }
    }
    problems
}

fn lonely(postgres: &BTreeSet<String>, sqlite: &BTreeSet<String>) -> Vec<String> {
    postgres
        .symmetric_difference(sqlite)
        .map(|name| format!("migration {name} has no twin of its name"))
        .collect()
}

/// The text that counts: without comments, and without the unit tests, which stand at the bottom.
fn code(text: &str) -> String {
    let end = text.find("#[cfg(test)]").unwrap_or(text.len());
    without_comments(&text[..end])
}

/// Keeps the lines, so that their numbers hold.
fn without_comments(text: &str) -> String {
    let lines = text.lines().map(|line| if line.trim_start().starts_with("//") { "" } else { line });
    lines.collect::<Vec<_>>().join("\n")
}

/// `src/tick/once.rs` and `src/tick.rs` are both `tick`.
fn module_of(path: &str) -> String {
    let inner = path.trim_start_matches("src/").trim_end_matches(".rs");
    inner.split('/').next().unwrap_or(inner).to_owned()
}

/// The first names after each `root`, through one level of braces: `root{a::x, b}` gives a and b.
fn named_after(text: &str, root: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (start, _) in text.match_indices(root) {
        let before = text[..start].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
            continue;
        }
        let rest = &text[start + root.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            found.extend(first_name(rest));
            continue;
        };
        let mut depth = 0_i32;
        let mut expecting = true;
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => expecting = true,
                _ if expecting && !c.is_whitespace() => {
                    found.extend(first_name(&group[at..]));
                    expecting = false;
                }
                _ => {}
            }
        }
    }
    // Only modules count: a macro or a type of the crate's root has no folder.
    found.into_iter().filter(|name| name.starts_with(|c: char| c.is_lowercase())).collect()
}

fn first_name(text: &str) -> Option<String> {
    let name: String = text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (!name.is_empty()).then_some(name)
}

/// Whether `line` holds `word` with no letter just before it.
fn holds_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

fn read_all(folder: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut open = vec![root.join(folder)];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the repository") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a source file");
                let name = path.strip_prefix(root).expect("below the root").display().to_string();
                found.push((name, text));
            }
        }
    }
    found.sort();
    found
}

fn names(folder: &str) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

mod tests {
    use super::{Source, circles, code, forbidden_imports, half_read, imports, lonely, strays, unfinished};

    fn source(path: &str, text: &str) -> Source {
        (path.to_owned(), text.to_owned())
    }

    fn complaints(path: &str, text: &str) -> Vec<String> {
        forbidden_imports(&imports(&[source(path, text)]))
    }

    #[test]
    fn a_worker_may_use_the_store_but_no_other_worker() {
        assert!(
            complaints(
                "src/tick/mod.rs",
                "use crate::store::Store;\nuse crate::{domain, render::{http, x}};"
            )
            .is_empty()
        );
        for text in [
            "use crate::deliver::Loop;",
            "use crate::{domain::week::WeekKey, http};",
            "use crate::{\n    domain::{a, b},\n    cleanup::sweep,\n};",
            "fn f() { crate::http::serve() }",
            "use super::deliver;",
        ] {
            assert_eq!(complaints("src/tick/mod.rs", text).len(), 1, "{text}");
        }
    }

    #[test]
    fn a_comment_or_a_unit_test_imports_nothing() {
        let text = "// use crate::deliver;\n#[cfg(test)]\nmod tests { use crate::http; }";
        assert!(complaints("src/tick/once.rs", text).is_empty());
        assert_eq!(code("a\n// b\nc\n#[cfg(test)]\nd"), "a\n\nc");
    }

    #[test]
    fn the_domain_imports_nothing_of_ours() {
        assert!(
            complaints("src/domain/send.rs", "use crate::domain::week::WeekKey;\nuse super::ids::OrgId;")
                .is_empty()
        );
        assert_eq!(complaints("src/domain/send.rs", "use crate::clock::now;").len(), 1);
    }

    #[test]
    fn only_what_is_above_may_import_the_top() {
        assert!(complaints("src/main.rs", "use digestd::cli;").is_empty());
        assert!(complaints("src/cli/run.rs", "use crate::app::App;").is_empty());
        assert!(complaints("src/app.rs", "use crate::{tick, deliver, cleanup, http};").is_empty());
        assert!(complaints("src/demo/mod.rs", "use crate::http::page;").is_empty());
        for (path, text) in [
            ("src/app.rs", "use crate::cli;"),
            ("src/tick/mod.rs", "use crate::app;"),
            ("src/store/mod.rs", "use crate::tick::due;"),
            ("src/demo/mod.rs", "use crate::deliver;"),
        ] {
            assert_eq!(complaints(path, text).len(), 1, "{path}: {text}");
        }
    }

    #[test]
    fn a_circle_is_found_through_a_third_module() {
        let mut sources = vec![source("src/a.rs", "use crate::b;"), source("src/b.rs", "use crate::c::X;")];
        assert!(circles(&imports(&sources)).is_empty());
        sources.push(source("src/c/mod.rs", "use crate::a;"));
        assert_eq!(circles(&imports(&sources)).len(), 3);
    }

    #[test]
    fn a_tool_outside_its_folder_is_found_with_its_line() {
        assert!(
            strays(&[source("src/store/sends.rs", "const S: &str = \"SELECT 1\"; use sqlx::query;")])
                .is_empty()
        );
        assert!(strays(&[source("src/tick/mod.rs", "// SELECT 1\nlet my_lettre = RESELECT ;")]).is_empty());
        for (path, line) in [
            ("src/tick/mod.rs", "use sqlx::PgPool;"),
            ("src/tick/mod.rs", "const S: &str = \"SELECT 1\";"),
            ("src/source/sql.rs", "    UPDATE users"),
            ("src/tick/mod.rs", "use lettre::Message;"),
            ("src/domain/week.rs", "use jiff::Zoned;"),
            ("src/app.rs", "axum::serve(a, b)"),
            ("src/app.rs", "println!(\"x\")"),
            ("src/store/mod.rs", "eprint!(\"x\")"),
        ] {
            let found = strays(&[source(path, &format!("\n{line}"))]);
            assert_eq!(found.len(), 1, "{line}: {found:?}");
            assert!(found[0].starts_with(&format!("{path}:2:")), "{found:?}");
        }
    }

    #[test]
    fn a_long_file_and_unfinished_work_are_found() {
        assert!(unfinished(&[source("src/a.rs", &"x\n".repeat(500))]).is_empty());
        assert_eq!(unfinished(&[source("src/a.rs", &"x\n".repeat(501))]).len(), 1);
        assert_eq!(unfinished(&[source("tests/a.rs", &"x\n".repeat(801))]).len(), 1);
        for text in ["todo!()", "unimplemented!()", "#[allow(dead_code)]", "#![allow(unused)]"] {
            assert_eq!(unfinished(&[source("src/a.rs", text)]).len(), 1, "{text}");
        }
    }

    #[test]
    fn a_write_that_is_read_to_its_first_row_only_is_found() {
        let path = "src/store/x.rs";
        let one = |side: &str, fetch: &str| {
            let text = format!(
                "fn f() {{\n    run!(self, {side}, db => {{\n        q.{fetch}(db).await\n    }})\n}}"
            );
            half_read(&[source(path, &text)]).len()
        };
        assert_eq!(one("write", "fetch_optional"), 1);
        assert_eq!(one("write", "fetch_one"), 1);
        assert_eq!(one("write", "fetch_all"), 0);
        assert_eq!(one("read", "fetch_optional"), 0);
    }

    #[test]
    fn a_migration_without_a_twin_is_found() {
        let one = ["1_a.sql".to_owned()].into();
        let two = ["1_a.sql".to_owned(), "2_b.sql".to_owned()].into();
        assert!(lonely(&one, &one).is_empty());
        assert_eq!(lonely(&one, &two), ["migration 2_b.sql has no twin of its name"]);
        assert_eq!(lonely(&two, &one).len(), 1);
    }
}
