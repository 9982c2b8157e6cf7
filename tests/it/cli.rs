//! What a person types, through the real binary.

use std::fs;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::support::backend::TestDatabase;
use crate::support::eventually;
use crate::support::process::{Launch, Process, Signal};

/// Far above what any command needs, and below the test runner's patience.
const SOON: Duration = Duration::from_secs(40);

/// What a command did.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// A `digestd` on a test's database, in its folder, with a name of its own for its output.
fn launch(database: &TestDatabase, arguments: &[&str]) -> Launch {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("command-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    Launch::new(database.folder(), &name, arguments).env("DIGESTD__DATABASE__URL", &database.url)
}

async fn finish(mut process: Process) -> Ran {
    let status = process.exit(SOON).await;
    Ran { code: status.code().expect("an exit code"), out: process.output(), err: process.log() }
}

pub async fn digestd(database: &TestDatabase, arguments: &[&str]) -> Ran {
    finish(launch(database, arguments).start()).await
}

/// Runs a command that must succeed; gives what it printed.
pub async fn well(database: &TestDatabase, arguments: &[&str]) -> String {
    let ran = digestd(database, arguments).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{arguments:?}: {ran:?}");
    ran.out
}

/// One org in Berlin with two admins who want the digest and one who does not, and a busy week 2026-W27.
pub async fn acme(database: &TestDatabase) {
    let folder = database.folder();
    let orgs = "id,name,timezone\nacme,Acme & Söhne,Europe/Berlin\nidle,Idle,UTC\n";
    fs::write(folder.join("orgs.csv"), orgs).expect("a file");
    let admins = "id,org_id,email,name,locale,weekly_digest\n\
        1,acme,ann@acme.example,Ann,en,true\n\
        2,acme,bert@acme.example,Bert,de,true\n\
        3,acme,cy@acme.example,Cy,en,false\n";
    fs::write(folder.join("admins.csv"), admins).expect("a file");
    let activity = "{\"id\": 1, \"org_id\": \"acme\", \"kind\": \"signup\", \"title\": \"Dora signed up\", \
        \"occurred_at\": \"2026-07-01T10:00:00Z\", \"url\": \"https://acme.example/dora\", \"actor\": \"Dora\"}\n";
    fs::write(folder.join("activity.jsonl"), activity).expect("a file");
    assert_eq!(well(database, &["import", "orgs", "orgs.csv"]).await, "imported 2 orgs (2 new)\n");
    assert_eq!(well(database, &["import", "admins", "admins.csv"]).await, "imported 3 admins (3 new)\n");
    assert_eq!(
        well(database, &["import", "activity", "activity.jsonl"]).await,
        "imported 1 activity row (1 new)\n"
    );
}

pub fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// Without `--config`, `queue pause` said that deliveries were paused: those of a new and empty database that it
/// had just made.
#[tokio::test]
async fn a_command_without_its_configuration_does_not_answer_for_a_new_and_empty_database() {
    let database = TestDatabase::sqlite();
    let folder = database.folder();
    for (n, words) in [&["queue", "pause"][..], &["status"], &["suppress", "list"]].into_iter().enumerate() {
        let ran = finish(Launch::new(folder, &format!("bare-{n}"), words).start()).await;
        assert_eq!(
            (ran.code, ran.out.as_str(), ran.err.as_str()),
            (
                64,
                "",
                "error: there is no database ./digestd.db\n\
                 hint: name the replicas' configuration by --config or DIGESTD_CONFIG; `digestd migrate` makes a new database\n"
            )
        );
        assert!(!folder.join("digestd.db").exists(), "{words:?}");
    }
    let made = finish(Launch::new(folder, "migrate", &["migrate"]).start()).await;
    assert_eq!(made.code, 0, "{made:?}");
    let paused = finish(Launch::new(folder, "pause", &["queue", "pause"]).start()).await;
    assert_eq!((paused.code, paused.out.as_str()), (0, "deliveries are paused\n"), "{paused:?}");
}

both_databases! {
    async fn an_import_is_told_in_words_and_in_json(database: TestDatabase) {
        acme(&database).await;
        let again = well(&database, &["import", "admins", "admins.csv", "--json"]).await;
        assert_eq!(json(&again), serde_json::json!({"table": "admins", "new": 0, "changed": 0, "unchanged": 3}));
        fs::write(database.folder().join("bad.csv"), "id,org_id,email\n4,acme,nobody\n5,nope,e@acme.example\n").expect("a file");
        let refused = digestd(&database, &["import", "admins", "bad.csv"]).await;
        assert_eq!((refused.code, refused.out.as_str()), (65, ""));
        assert_eq!(refused.err,
            "error: nothing was imported: line 2, email: an address has the form local@domain\n\
             hint: correct the file and import it again; nothing of it was kept\n");
        let missing = digestd(&database, &["import", "admins", "missing.csv"]).await;
        assert_eq!(missing.code, 65);
        assert!(missing.err.starts_with("error: cannot read missing.csv\n  caused by: No such file"), "{}", missing.err);
    }

    async fn a_preview_shows_the_mail_and_leaves_no_trace(database: TestDatabase) {
        acme(&database).await;
        let before = well(&database, &["status", "--json"]).await;
        let shown = well(&database, &["preview", "--org", "acme", "--week", "2026-W28"]).await;
        insta::allow_duplicates! { insta::assert_snapshot!("preview_text", shown) };
        let written = well(&database, &["preview", "--org", "acme", "--week", "2026-W28", "--as", "bert@acme.example", "--out", "out"]).await;
        assert_eq!(written, "out/acme-2026-W28.html\nout/acme-2026-W28.txt\nout/acme-2026-W28.eml\n");
        let read = |name: &str| fs::read_to_string(database.folder().join(name)).expect("a file");
        assert!(read("out/acme-2026-W28.txt").contains("Abbestellen"), "Bert reads German");
        assert!(read("out/acme-2026-W28.html").contains("Acme &amp; Söhne"));
        let eml = read("out/acme-2026-W28.eml");
        assert!(eml.contains("bert@acme.example") && eml.contains("X-Digestd-Id: "), "{eml}");
        assert!(!database.folder().join("mail").exists());
        let (before, after) = (json(&before), json(&well(&database, &["status", "--json"]).await));
        for part in ["sends", "resends", "messages", "week_messages", "replicas"] {
            assert_eq!(before[part], after[part], "{part}");
        }
        let nobody = digestd(&database, &["preview", "--org", "idle", "--week", "2026-W28"]).await;
        assert_eq!(nobody.code, 0);
        assert!(nobody.err.starts_with("note: the org has no recipient"), "{}", nobody.err);
    }

    async fn a_resend_of_a_past_week_is_delivered_by_whatever_replica_runs(database: TestDatabase) {
        acme(&database).await;
        let asked = digestd(&database,
            &["resend", "--org", "acme", "--week", "2026-W28", "--to", "Ann@acme.example", "--json"]).await;
        assert_eq!(asked.code, 0, "{asked:?}");
        assert_eq!(asked.err, "note: no replica is running; the first one to start will send it, within a day\n");
        let asked = json(&asked.out);
        assert_eq!((&asked["week"], &asked["first_day"]), (&"2026-W28".into(), &"2026-06-29".into()));

        let port = free_port();
        let listen = format!("127.0.0.1:{port}");
        let mut replica = launch(&database, &["run"])
            .env("DIGESTD__HTTP__LISTEN", &listen)
            .env("DIGESTD__TICK__INTERVAL", "1s")
            .start();
        let mails = || -> Vec<String> {
            let folder = fs::read_dir(database.folder().join("mail"));
            let files = folder.into_iter().flatten().map(|entry| entry.expect("an entry").path());
            let done = files.filter(|path| path.extension().is_some_and(|ending| ending == "eml"));
            done.map(|path| fs::read_to_string(path).expect("a mail")).collect()
        };
        eventually("the resend's mail", SOON, async || (!mails().is_empty()).then_some(())).await;
        let mails = mails();
        assert_eq!(mails.len(), 1);
        assert!(mails[0].contains("ann@acme.example") && mails[0].contains("5 Jul 2026"), "{}", mails[0]);

        let healthy = eventually("a healthy replica", SOON, async || {
            let process = launch(&database, &["healthcheck"]).env("DIGESTD__HTTP__LISTEN", &listen).start();
            let ran = finish(process).await;
            (ran.code == 0).then_some(ran)
        }).await;
        assert_eq!(healthy.err, "");
        let status = json(&well(&database, &["status", "--json"]).await);
        assert_eq!(status["replicas"].as_array().expect("a list").len(), 1);
        assert_eq!(status["resends"][0]["state"], "enqueued");

        replica.signal(Signal::Terminate);
        assert_eq!(replica.exit(SOON).await.code(), Some(0), "{}", replica.log());
        let gone = launch(&database, &["healthcheck"]).env("DIGESTD__HTTP__LISTEN", &listen).start();
        let gone = finish(gone).await;
        assert_eq!(gone.code, 1);
        assert!(gone.err.starts_with(&format!("not healthy: {listen}: connecting: ")), "{}", gone.err);
    }

    async fn a_schema_is_made_by_migrate_and_missed_by_what_leaves_no_trace(database: TestDatabase) {
        let status = digestd(&database, &["status"]).await;
        assert_eq!(status.code, 78, "{status:?}");
        assert!(status.err.ends_with("hint: `digestd migrate` brings the schema up to date\n"), "{}", status.err);
        let script = well(&database, &["migrate", "--print"]).await;
        assert!(script.starts_with("-- 0001_spine\n"), "{script}");
        assert!(well(&database, &["migrate"]).await.starts_with("applied 0001_spine\n"));
        assert!(well(&database, &["migrate"]).await.starts_with("the schema has version "));
        let check = well(&database, &["check"]).await;
        assert!(check.contains("ok      schema     version "), "{check}");
        assert!(check.lines().all(|line| line.starts_with("ok ") || line.contains("hint: ")), "{check}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_names_what_does_not_work_and_why() {
    let database = TestDatabase::sqlite();
    let (nothing, nobody) = (free_port(), free_port());
    let process = launch(&database, &["check"])
        .env("DIGESTD__DATABASE__URL", &format!("postgres://127.0.0.1:{nothing}/digestd"))
        .env("DIGESTD__RELAY__URL", &format!("smtp+plaintext://127.0.0.1:{nobody}"))
        .env("DIGESTD__RELAY__FROM", "digest@acme.example")
        .env("DIGESTD__PUBLIC_URL", "https://digest.acme.example")
        .env("DIGESTD__TEMPLATES__DIR", "nowhere")
        .start();
    let ran = finish(process).await;
    assert_eq!((ran.code, ran.err.as_str()), (1, ""), "{ran:?}");
    let failed: Vec<&str> = ran.out.lines().filter(|line| line.starts_with("failed ")).collect();
    let names: Vec<&str> = failed.iter().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(names, ["database", "templates", "relay"], "{}", ran.out);
    assert!(failed[0].contains("refused"), "{}", ran.out);
    assert_eq!(ran.out.matches("hint: ").count(), 3, "{}", ran.out);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_mistakes_in_the_configuration_are_told_together() {
    let database = TestDatabase::sqlite();
    let text =
        "[schedule]\nweekday = \"moonday\"\n[tikc]\ninterval = \"1s\"\n[relay]\nconnections = \"many\"\n";
    let ran = finish(launch(&database, &["run"]).config(text).start()).await;
    assert_eq!((ran.code, ran.out.as_str()), (78, ""));
    assert!(ran.err.starts_with("error: the configuration has 3 problems\n"), "{}", ran.err);
    for place in [":2: schedule.weekday: ", ":3: [tikc]: ", ":6: relay.connections: "] {
        assert!(ran.err.contains(place), "{place}: {}", ran.err);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_cannot_start_says_why() {
    let database = TestDatabase::sqlite();
    let url = format!("postgres://127.0.0.1:{}/digestd", free_port());
    let away = launch(&database, &["run"])
        .env("DIGESTD__DATABASE__URL", &url)
        .env("DIGESTD__DATABASE__START_TIMEOUT", "1s")
        .env("DIGESTD__LOG__FILTER", "error");
    let away = finish(away.start()).await;
    assert_eq!((away.code, away.out.as_str()), (69, ""), "{away:?}");
    assert!(away.err.starts_with("error: the database could not be reached within 1s\n"), "{}", away.err);
    assert!(away.err.contains("refused") && away.err.contains("hint: start the database"), "{}", away.err);

    let nowhere =
        launch(&database, &["run"]).env("DIGESTD__DATABASE__URL", "sqlite:no/such/folder/digestd.db");
    let nowhere = finish(nowhere.start()).await;
    assert_eq!(nowhere.code, 78, "{nowhere:?}");
    assert!(
        nowhere.err.contains("hint: is the database running, and is database.url right?"),
        "{}",
        nowhere.err
    );

    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = taken.local_addr().expect("its address").to_string();
    let listen =
        launch(&database, &["run"]).env("DIGESTD__HTTP__LISTEN", &addr).env("DIGESTD__LOG__FILTER", "error");
    let listen = finish(listen.start()).await;
    assert_eq!(listen.code, 69, "{listen:?}");
    assert!(listen.err.starts_with(&format!("error: listening on {addr}\n  caused by: ")), "{}", listen.err);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_that_make_no_sense_are_answered_with_what_would() {
    let database = TestDatabase::sqlite();
    acme(&database).await;
    for (arguments, words) in [
        (vec!["preview", "--org", "nope"], "error: there is no active org “nope”\nhint: ids are compared"),
        (
            vec!["preview", "--org", "acme", "--as", "cy@acme.example"],
            "error: “cy@acme.example” is no recipient of acme\nhint: ",
        ),
        (
            vec!["preview", "--org", "acme", "--week", "2026-28"],
            "error: invalid value '2026-28' for '--week <WEEK>': “2026-28” is not an ISO week such as 2026-W28",
        ),
        (
            vec!["resend", "--org", "acme", "--to", "cy@acme.example"],
            "error: no recipient of acme has the address of --to\nhint: ",
        ),
        (vec!["resend", "--org", "acme", "--to", "cy"], "error: --to: an address has the form local@domain"),
        (
            vec!["resend", "--org", "acme", "--week", "2099-W01"],
            "error: the digest of 2099-W01 has not been due yet\nhint: ",
        ),
        (
            vec!["import", "orgs", "orgs.txt"],
            "error: cannot tell the format of orgs.txt from its name\nhint: add --format csv",
        ),
        (vec!["improt"], "error: unrecognized subcommand 'improt'"),
    ] {
        let ran = digestd(&database, &arguments).await;
        assert_eq!((ran.code, ran.out.as_str()), (64, ""), "{arguments:?}: {ran:?}");
        assert!(ran.err.starts_with(words), "{arguments:?}: {}", ran.err);
    }
    let status = json(&well(&database, &["status", "--json"]).await);
    assert_eq!(status["resends"], serde_json::json!([]), "nothing was asked for");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_inbox_says_where_it_listens_and_what_it_got() {
    let database = TestDatabase::sqlite();
    let mut inbox = launch(&database, &["inbox", "--listen", "127.0.0.1:0", "--dir", "got"]).start();
    eventually("the inbox's address", SOON, async || {
        inbox.output().contains("listening for mail on").then_some(())
    })
    .await;
    inbox.signal(Signal::Interrupt);
    assert_eq!(inbox.exit(SOON).await.code(), Some(0), "{}", inbox.log());
    assert!(
        inbox.output().ends_with("accepted 0 mails to 0 recipients, 0 duplicates; see got/index.html\n"),
        "{}",
        inbox.output()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn help_and_versions_are_data() {
    let database = TestDatabase::sqlite();
    let mut help = well(&database, &["--help"]).await;
    for command in [
        "migrate",
        "import",
        "check",
        "preview",
        "resend",
        "suppress",
        "queue",
        "status",
        "explain",
        "audit",
        "plan",
        "schedule",
        "retry",
        "inbox",
        "completions",
    ] {
        let shown = well(&database, &[command, "--help"]).await;
        help.extend(["\n$ digestd ", command, " --help\n", &shown]);
    }
    insta::assert_snapshot!("help", help);
    let version = well(&database, &["--version"]).await;
    let lines: Vec<&str> = version.lines().collect();
    assert_eq!(lines[0], format!("digestd {}", env!("CARGO_PKG_VERSION")));
    assert!(lines[1].starts_with("time zones 20") && lines[2].starts_with("SQLite 3."), "{version}");
    assert!(well(&database, &["completions", "bash"]).await.contains("complete -F _digestd"));
    let nothing = digestd(&database, &[]).await;
    assert_eq!((nothing.code, nothing.out.as_str()), (64, ""));
}

/// A port that is free now. Somebody may take it before we do; the test then fails and says so.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}
