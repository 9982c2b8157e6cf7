//! The configuration, as an operator meets it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use digestd::config::keys::variable;
use digestd::config::table::KEYS;
use digestd::config::{Config, ConfigError, DatabaseUrl, GuardStore, RelayUrl, Security, reference};
use proptest::prelude::*;
use secrecy::ExposeSecret;

type Variables<'a> = &'a [(&'a str, &'a str)];

fn load(text: &str, variables: Variables<'_>) -> Result<Config, ConfigError> {
    Config::parse(text, variables.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())))
}

fn refused(text: &str, variables: Variables<'_>) -> String {
    load(text, variables).expect_err("should be refused").to_string()
}

#[track_caller]
fn refuses(text: &str, variables: Variables<'_>, expected: &[&str]) {
    let report = refused(text, variables);
    for part in expected {
        assert!(report.contains(part), "“{part}” is not in:\n{report}");
    }
    assert!(report.starts_with("the configuration has 1 problem\n"), "more than one problem:\n{report}");
}

/// A configuration with an SMTP relay and nothing missing.
const SMTP: &str = r#"
public_url = "https://digest.example.com"
[relay]
url = "smtps://mx.example.com"
from = "Digests <digests@example.com>"
"#;

fn smtp(more: &str) -> String {
    format!("{SMTP}\n{more}")
}

#[test]
fn without_any_configuration_the_defaults_need_no_other_server() {
    let config = load("", &[]).unwrap();
    assert!(matches!(&config.database.url, DatabaseUrl::Sqlite(path) if path == Path::new("./digestd.db")));
    assert_eq!(config.relay.url, RelayUrl::Directory(PathBuf::from("./mail")));
    assert_eq!(config.public_url, "http://127.0.0.1:8080");
    assert!(config.guard.is_none() && config.source.is_none() && config.admin_token.is_none());
}

#[test]
fn a_newcomer_sees_all_three_mistakes_with_their_places_and_hints() {
    let report = refused(
        "[relay]\nconections = 8\n\n[schedule]\ntimezone = \"Europe/Berln\"\n",
        &[("DIGESTD__TICK__INTERVAL", "5")],
    );
    insta::assert_snapshot!(report, @r#"
    the configuration has 3 problems
      - digestd.toml:2: relay.conections: unknown key
          hint: did you mean relay.connections?
      - digestd.toml:5: schedule.timezone: expected an IANA time zone such as Europe/Berlin; found “Europe/Berln”
          hint: did you mean Europe/Berlin?
      - environment variable DIGESTD__TICK__INTERVAL: tick.interval: expected a duration from 50ms to 1h, such as "90s", "15m", "36h" or "30d"; found “5”
    "#);
    let page = include_str!("../../docs/configuration.md");
    assert!(page.contains(&report), "docs/configuration.md shows another report than\n{report}");
}

#[test]
fn a_value_of_the_wrong_type_is_never_cast() {
    let wrong = |line: &str, found: &str| {
        let (table, rest) = line.split_once('.').unwrap();
        refuses(&format!("[{table}]\n{rest}\n"), &[], &["digestd.toml:2", "expected", found]);
    };
    wrong("relay.connections = 7.9", "the number 7.9");
    wrong("relay.connections = true", "found true");
    wrong("relay.connections = \"5\"", "text in quotes");
    wrong("relay.connections = 51", "from 1 to 50; found “51”");
    wrong("relay.connections = -1", "“-1”");
    wrong("database.pgbouncer = 1", "true or false; found the number 1");
    wrong("database.pgbouncer = \"true\"", "text in quotes");
    wrong("tick.interval = 5", "in quotes; found the number 5");
    wrong("tick.interval = \"5\"", "“5”");
    wrong("schedule.time = 08:00:00", "a time without quotes");
    wrong("schedule.time = \"24:00\"", "“24:00”");
    wrong("digest.empty = \"sent\"", "did you mean send?");
    wrong("delivery.retry = \"1m\"", "a list of durations");
    wrong("delivery.retry = []", "a list of durations");
    wrong("delivery.max_age = \"7d\"", "to 144h");
    wrong("relay.pace = \"fast\"", "such as 14/s");
    wrong("database.pool = 3", "from 4 to 200");
    wrong("database.schema = \"Digest\"", "small letters");
    wrong("brand.accent = \"#ffffaa\"", "contrast to white");
    wrong("brand.accent = \"blue\"", "such as #1d4ed8; found “blue”");
    wrong("brand.logo_url = \"http://x.io/a.png\"", "an https:// link");
    wrong("database.url = [\"sqlite:a\"]", "a list");
}

#[test]
fn text_of_the_environment_is_parsed_by_the_same_rules() {
    let config = load(
        "[relay]\nconnections = 2\n",
        &[
            ("DIGESTD__RELAY__CONNECTIONS", "7"),
            ("DIGESTD__DATABASE__PGBOUNCER", "true"),
            ("DIGESTD__DELIVERY__RETRY", "1m, 2m"),
            ("DIGESTD__RELAY__TIMEOUTS__REPLY", "5m"),
            ("DIGESTD__SCHEDULE__TIMEZONE", ""),
        ],
    )
    .unwrap();
    assert_eq!(config.relay.connections, 7);
    assert!(config.database.pgbouncer);
    assert_eq!(config.delivery.retry.len(), 2);
    assert_eq!(config.relay.timeouts.reply.as_secs(), 300);
    for (name, text) in [
        ("DIGESTD__RELAY__CONNECTIONS", "7.9"),
        ("DIGESTD__RELAY__CONNECTIONS", "true"),
        ("DIGESTD__RELAY__CONNECTIONS", "0x7"),
        ("DIGESTD__DATABASE__PGBOUNCER", "1"),
        ("DIGESTD__DATABASE__PGBOUNCER", "yes"),
    ] {
        refuses("", &[(name, text)], &[name, &format!("found “{text}”")]);
    }
}

#[test]
fn a_variable_that_is_no_key_is_refused_and_one_of_kubernetes_is_not_ours() {
    refuses("", &[("DIGESTD__RELAY__ULR", "x")], &["unknown key", "did you mean DIGESTD__RELAY__URL?"]);
    refuses("", &[("DIGESTD__SECTION__NAME", "x")], &["write it in the file"]);
    let service = [("DIGESTD_PORT", "tcp://10.0.0.1:80"), ("DIGESTD_SERVICE_HOST", "10.0.0.1")];
    assert!(load("", &service).is_ok());
}

#[test]
fn unknown_tables_and_keys_are_named_once_with_the_nearest() {
    refuses(
        "[databse]\nurl = \"sqlite:a\"\npool = 5\n",
        &[],
        &["digestd.toml:1: [databse]", "did you mean database?"],
    );
    refuses("[log]\nzzz = 1\n", &[], &["log.zzz", "known here: log.format, log.filter"]);
    refuses("database = \"sqlite:a\"\n", &[], &["expected a table: [database]"]);
    refuses("[section]\nname = \"a\"\n", &[], &["[[section]], with two brackets"]);
}

#[test]
fn every_syntax_error_has_its_line_and_hides_no_other_mistake() {
    let report = refused("[relay]\nconections = 4\nfrom = \n\n[log]\nformat = \"yaml\"\n[x\n", &[]);
    for part in [
        "digestd.toml:2: relay.conections",
        "digestd.toml:3: TOML syntax",
        "digestd.toml:6: log.format",
        "digestd.toml:7: TOML syntax",
    ] {
        assert!(report.contains(part), "{part} is not in:\n{report}");
    }
}

#[test]
fn no_error_shows_a_secret() {
    let secret = "hunter2";
    let cases: &[(&str, Variables<'_>)] = &[
        ("[database]\nurl = \"mysql://u:hunter2@h/d\"\n", &[]),
        ("[database]\nurl = \"postgres://u:hunter2@h/d\n", &[]),
        ("database = \"postgres://u:hunter2@h/d\"\n", &[]),
        ("", &[("DIGESTD__DATABASE", "postgres://u:hunter2@h/d")]),
        ("", &[("DIGESTD__DATABASE__ULR", "postgres://u:hunter2@h/d")]),
        ("[relay]\nurl = \"smtps://u:hunter2@h\"\n", &[]),
        ("[relay]\npasword = \"hunter2\"\n", &[]),
        ("[relay]\npassword_file = \"hunter2\"\nusername = \"u\"\n", &[]),
        ("[relay]\npassword = \"hunter2\n", &[]),
        ("[relay]\npassword = hunter2\n", &[]),
        ("[relay]\npassword = \"\"\"hunter2\n", &[]),
        ("[admin]\ntoken = \"hunter2\"\n", &[]),
        ("[unsubscribe]\nkeys = \"hunter2\"\n", &[]),
        ("[guard]\nbackend = \"redis\"\nurl = \"http://:hunter2@h\"\n", &[]),
        ("[source]\nurl = \"hunter2\"\n", &[]),
        ("public_url = \"https://u:hunter2@h\"\n", &[]),
        ("", &[("DIGESTD__TICK__INTERVAL", "https://u:hunter2@h")]),
    ];
    for (text, variables) in cases {
        let error = load(text, variables).expect_err(text);
        assert!(!format!("{error} {error:?}").contains(secret), "{text} {variables:?}\n{error}");
    }
    let config = load(
        "[database]\nurl = \"postgres://u:hunter2@h/d\"\n[relay]\nusername = \"u\"\npassword = \"hunter2\"\n",
        &[],
    );
    assert!(!format!("{:?}", config.unwrap()).contains(secret));
}

#[test]
fn secrets_come_from_files_and_the_environment_replaces_the_pair() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let url = file("url", "postgres://u@h/d\n");
    let config = load(
        "[database]\nurl = \"sqlite:a.db\"\n[relay]\nusername = \"u\"\n",
        &[("DIGESTD__DATABASE__URL_FILE", &url), ("DIGESTD__RELAY__PASSWORD_FILE", &file("pw", " a b \r\n"))],
    )
    .unwrap();
    assert!(
        matches!(&config.database.url, DatabaseUrl::Postgres(url) if url.expose_secret() == "postgres://u@h/d")
    );
    assert_eq!(config.relay.login.unwrap().password.expose_secret(), " a b ");

    let both = format!("[database]\nurl = \"sqlite:a.db\"\nurl_file = \"{url}\"\n");
    refuses(
        &both,
        &[],
        &["database.url_file", "database.url is set as well (digestd.toml:2)", "set one of the two"],
    );
    refuses(
        "[database]\nurl_file = \"/nowhere\"\n",
        &[],
        &["digestd.toml:2: database.url_file", "not found"],
    );
    let empty = format!("[admin]\ntoken_file = \"{}\"\n", file("empty", "\n"));
    refuses(&empty, &[], &["admin.token_file", "it is empty"]);
    let wrong = format!("[database]\nurl_file = \"{}\"\n", file("wrong", "mysql://h"));
    refuses(&wrong, &[], &["digestd.toml:2, in the file it names", "postgres://"]);
}

#[test]
fn combinations_that_cannot_work_are_refused() {
    refuses(&smtp("[delivery]\nlease = \"3m\"\n"), &[], &["delivery.lease", "195 s together"]);
    refuses("[shutdown]\ngrace = \"30s\"\n", &[], &["shutdown.grace", "killed while it drains"]);
    refuses("[guard]\nbackend = \"sql\"\nttl = \"10d\"\n", &[], &["guard.ttl", "252 h or more"]);
    let short = "[retention]\nattempts = \"143h\"\n";
    refuses(&format!("[guard]\nbackend = \"sql\"\n{short}"), &[], &["retention.attempts", "144 h or more"]);
    assert!(Config::parse(&format!("[guard]\nbackend = \"off\"\n{short}"), []).is_ok());
    refuses("[guard]\nbackend = \"redis\"\n", &[], &["guard.url: missing"]);
    refuses("[guard]\nbackend = \"sql\"\nurl = \"redis://h\"\n", &[], &["guard.url", "redis backend only"]);
    refuses("[tick]\nresweep = \"5s\"\n", &[], &["tick.resweep", "more frequent"]);
    let late = "[schedule]\ncatch_up = \"1h\"\nlate_alarm = \"1h\"\n";
    refuses(late, &[], &["schedule.late_alarm", "the alarm would come"]);
    refuses("[relay]\nconnections_total = 2\n", &[], &["relay.connections_total", "each of them"]);
    refuses("[relay]\nusername = \"u\"\n", &[], &["relay.password: missing; relay.username needs it"]);
    refuses("[relay]\npassword = \"p\"\n", &[], &["relay.username: missing; relay.password needs it"]);
    refuses("[relay]\nclient_key_file = \"k\"\n", &[], &["relay.client_cert_file: missing"]);
    refuses("[opt_out]\nsql = \"SELECT 1\"\n", &[], &["opt_out.url: missing"]);
    refuses("[admin]\ntoken = \"short\"\n", &[], &["admin.token", "16 characters"]);
    let report = refused("[relay]\nurl = \"smtps://mx.example.com\"\n", &[]);
    assert!(report.contains("relay.from: missing") && report.contains("public_url: missing"), "{report}");
}

#[test]
fn a_default_gives_way_to_a_written_value_that_it_would_contradict() {
    let config = load("[schedule]\ncatch_up = \"1h\"\n[tick]\ninterval = \"30m\"\n", &[]).unwrap();
    assert_eq!(config.schedule.late_alarm.num_minutes(), 30);
    assert_eq!(config.tick.resweep.num_minutes(), 30);
}

#[test]
fn a_rule_is_silent_where_one_of_its_values_is_wrong_in_itself() {
    refuses("[shutdown]\ngrace = \"1 minute\"\nkill_after = \"2s\"\n", &[], &["shutdown.grace: expected"]);
    refuses(
        &smtp("[relay.timeouts]\nconnect = \"never\"\n[delivery]\nlease = \"1m\"\n"),
        &[],
        &["connect: expected"],
    );
}

#[test]
fn plaintext_needs_loopback_or_the_explicit_flag() {
    let plain = |host: &str, more: &str| {
        let from = "from = \"digests@example.com\"";
        format!(
            "public_url = \"http://localhost\"\n[relay]\nurl = \"smtp+plaintext://{host}:25\"\n{from}\n{more}\n"
        )
    };
    for (host, more) in
        [("127.0.0.1", ""), ("localhost", ""), ("[::1]", ""), ("mx.example.com", "allow_plaintext = true")]
    {
        let config = load(&plain(host, more), &[]).unwrap();
        assert!(matches!(config.relay.url, RelayUrl::Smtp(url) if url.security == Security::Plaintext));
    }
    refuses(&plain("mx.example.com", ""), &[], &["relay.url", "readable on the way"]);
}

#[test]
fn sections_are_checked_each_and_together() {
    let source = "[source]\nurl = \"sqlite:app.db\"\nrecipients = \"SELECT 1\"\n";
    let section =
        |more: &str| format!("[[section]]\nname = \"a\"\ntitle = \"A\"\nsql = \"SELECT 1\"\n{more}\n");
    let config = load(&format!("{source}{}", section("kind = \"figures\"\nlimit = 3")), &[]).unwrap();
    assert_eq!((config.sections.len(), config.sections[0].limit), (1, 3));

    refuses(&format!("{source}{}{}", section(""), section("")), &[], &["section[2].name", "another section"]);
    refuses(
        &format!("{source}{}", section("limits = 5")),
        &[],
        &["section[1].limits", "did you mean limit?"],
    );
    refuses(
        &format!("{source}{}", section("kind = \"figures\"\npersonal = true")),
        &[],
        &["section[1].personal", "figures"],
    );
    refuses(
        &format!("{source}[[section]]\nname = \"a\"\ntitle = \"A\"\n"),
        &[],
        &["section[1].sql: missing", "digestd.toml:4"],
    );
    refuses(source, &[], &["source.url", "without any [[section]]"]);
    refuses(&section(""), &[], &["source.url: missing; [[section]] queries run against it"]);
}

#[test]
fn headers_of_our_own_cannot_be_replaced() {
    let config = load("[headers]\nX-SES-CONFIGURATION-SET = \"digests\"\n", &[]).unwrap();
    assert_eq!(config.headers, [("X-SES-CONFIGURATION-SET".to_owned(), "digests".to_owned())]);
    refuses("[headers]\nBcc = \"a@x.io\"\n", &[], &["headers.Bcc", "ours to write"]);
    refuses("[headers]\nX-A = \"a\\r\\nBcc: b\"\n", &[], &["headers.X-A", "printable"]);
    refuses("[headers]\n\"X A\" = \"a\"\n", &[], &["not the name of a header"]);
}

#[test]
fn the_redis_guard_carries_its_url_and_prefix() {
    let config = load("[guard]\nbackend = \"redis\"\nurl = \"rediss://h/0\"\n", &[]).unwrap();
    let guard = config.guard.unwrap();
    assert!(
        matches!(guard.store, GuardStore::Redis { url, prefix } if url.expose_secret() == "rediss://h/0" && prefix == "email:fp:")
    );
}

#[test]
fn the_file_is_named_by_argument_or_by_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d.toml");
    std::fs::write(&path, "[relay]\nconnections = 9\n").unwrap();
    let named = [("DIGESTD_CONFIG".to_owned(), path.display().to_string())];
    assert_eq!(Config::load(Some(&path), []).unwrap().relay.connections, 9);
    assert_eq!(Config::load(None, named).unwrap().relay.connections, 9);
    let error = Config::load(Some(&dir.path().join("absent.toml")), []).unwrap_err().to_string();
    assert!(error.contains("absent.toml: the file cannot be read"), "{error}");
}

#[test]
fn the_reference_file_holds_the_defaults_and_nothing_else() {
    let from_file = load(&reference::toml(), &[]).unwrap();
    assert_eq!(format!("{from_file:?}"), format!("{:?}", load("", &[]).unwrap()));
}

#[test]
fn every_example_of_the_reference_parses() {
    let mut text = reference::toml().replace("file:./mail", "smtps://mx.example.com");
    text = text.replace("backend = \"off\"", "backend = \"redis\"");
    let uncommented: Vec<&str> = text
        .lines()
        .map(|line| line.strip_prefix("# ").filter(|line| is_setting(line)).unwrap_or(line))
        .filter(|line| !line.contains("_file = \"/run/secrets"))
        .collect();
    let secrets = "[admin]\ntoken = \"0123456789abcdef\"\n";
    let text = uncommented
        .join("\n")
        .replace("[admin]\n", secrets)
        .replace("[relay]\n", "[relay]\npassword = \"p\"\n");
    let text = text.replace("# client_key_file", "client_key_file");
    let config =
        load(&text.replace("client_cert_file", "client_key_file = \"key.pem\"\nclient_cert_file"), &[])
            .unwrap();
    assert_eq!((config.sections.len(), config.headers.len()), (1, 1));
    assert!(config.relay.pace.is_some() && config.source.is_some() && config.relay.client_cert.is_some());
}

fn is_setting(line: &str) -> bool {
    let name = line.split(" = ").next().unwrap_or_default();
    line == "[[section]]"
        || line.contains(" = ") && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
}

#[test]
fn every_key_can_be_set_by_the_environment() {
    for key in KEYS.iter().filter(|key| key.default.is_some()) {
        let set = [(variable(key.path), key.default.unwrap().to_owned())];
        if let Err(error) = Config::parse("", set) {
            panic!("{error}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_damaged_file_is_read_or_refused_but_never_a_panic(
        at in 0_usize..12_000,
        cut in 0_usize..60,
        noise in "[\\[\\]\"'=#{}\\\\\nA-Za-zé0-9._:/@ ]{0,20}",
    ) {
        let whole = reference::toml();
        let edge = |at: usize| (0..=at.min(whole.len())).rev().find(|at| whole.is_char_boundary(*at)).unwrap_or(0);
        let damaged = format!("{}{noise}{}", &whole[..edge(at)], &whole[edge(at + cut)..]);
        if let Err(error) = load(&damaged, &[]) {
            prop_assert!(!error.problems.is_empty());
        }
    }
}

/// A blank is right for no key, so a key that takes one is a key that nothing reads.
#[test]
fn every_key_is_read_and_refuses_a_blank() {
    for key in KEYS {
        let report = refused("", &[(&variable(key.path), " ")]);
        let expected = format!("environment variable {}: {}: expected", variable(key.path), key.path);
        assert!(report.contains(&expected), "{expected} is not in:\n{report}");
    }
}

/// Rewrites both files when `UPDATE_DOCS` is set, and compares them otherwise.
#[test]
fn file_and_page_are_in_step_with_the_table_of_keys() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page_path = root.join("docs/configuration.md");
    let page = std::fs::read_to_string(&page_path).unwrap();
    let (begin, end) = ("<!-- keys: written from src/config/table.rs -->\n", "<!-- end of keys -->");
    let (head, rest) = page.split_once(begin).unwrap();
    let (_, tail) = rest.split_once(end).unwrap();
    let mut expected = String::new();
    write!(expected, "{head}{begin}\n{}\n{end}{tail}", reference::markdown()).unwrap();
    let file_path = root.join("config/digestd.toml");
    #[expect(clippy::disallowed_methods, reason = "a switch of the test itself")]
    if std::env::var("UPDATE_DOCS").is_ok() {
        std::fs::write(&page_path, &expected).unwrap();
        std::fs::write(&file_path, reference::toml()).unwrap();
        return;
    }
    let hint = "run the tests once with UPDATE_DOCS=1";
    assert!(page == expected, "docs/configuration.md is out of date: {hint}");
    let file = std::fs::read_to_string(&file_path).unwrap_or_default();
    assert!(file == reference::toml(), "config/digestd.toml is out of date: {hint}");
}
