//! Choices that go back to the application's own database, and what the application says later.

use chrono::TimeDelta;
use digestd::cleanup::Cleanup;
use digestd::cleanup::write_back::WrittenBack;
use digestd::config::DatabaseUrl;
use digestd::domain::address::Address;
use digestd::domain::ids::{OrgId, ReplicaId, UserId};
use digestd::domain::token::Scope;
use digestd::progress::Progress;
use digestd::source::operator::write_back::{Choice, WriteBack};
use digestd::store::Store;
use digestd::store::enqueue::Enqueue;
use tokio_util::sync::CancellationToken;

use crate::support::backend::{Kind, TestDatabase};
use crate::support::fixtures::{claim_id, cleanup, draft, due_orgs, monday, store, terms};
use crate::support::web::Web;
use crate::support::world::{execute, number};

const MEMBERS: &str = "
    CREATE TABLE members (org TEXT, person TEXT, weekly_digest BOOLEAN, said_at TEXT);
    INSERT INTO members VALUES
        ('org-0000', 'ann@example.org', TRUE, NULL), ('org-0001', 'ann@example.org', TRUE, NULL),
        ('org-0002', 'ann@example.org', TRUE, NULL), ('org-0000', 'bob@example.org', TRUE, NULL)";
const WRITE: &str =
    "UPDATE members SET weekly_digest = NOT :opted_out WHERE org = :org_id AND person = :user_id";
const ONE_CLICK: &str = "List-Unsubscribe=One-Click";

async fn fresh(kind: Kind) -> TestDatabase {
    match kind {
        Kind::Sqlite => {
            let database = TestDatabase::sqlite();
            let path = database.url.strip_prefix("sqlite:").expect("a file");
            std::fs::write(path, "").expect("an empty file is an empty database");
            database
        }
        Kind::Postgres => TestDatabase::postgres().await,
    }
}

/// An application with members.
async fn application(kind: Kind) -> TestDatabase {
    let app = fresh(kind).await;
    execute(&app, format!("{MEMBERS};")).await;
    app
}

fn url(app: &TestDatabase) -> DatabaseUrl {
    match app.kind {
        Kind::Sqlite => DatabaseUrl::Sqlite(app.url.strip_prefix("sqlite:").expect("a file").into()),
        Kind::Postgres => DatabaseUrl::Postgres(app.url.clone().into()),
    }
}

/// A database that nobody answers for.
fn away(kind: Kind) -> DatabaseUrl {
    match kind {
        Kind::Sqlite => DatabaseUrl::Sqlite("/nowhere/app.db".into()),
        Kind::Postgres => DatabaseUrl::Postgres("postgres://nobody@127.0.0.1:1/app".to_owned().into()),
    }
}

fn ann() -> Address {
    Address::parse("ann@example.org").expect("an address")
}

fn org(name: &str) -> OrgId {
    OrgId::parse(name).expect("an id")
}

/// A store in which Ann has got mail from three orgs and Bob from one, and choices are written back.
async fn world(database: &TestDatabase) -> Store {
    let store = store(database).await;
    let claims =
        store.claim(&due_orgs(3, monday()), claim_id(), terms(ReplicaId::random())).await.expect("claims");
    let batch = claims
        .into_iter()
        .map(|claim| {
            let mut drafts = vec![draft(&claim, "ann@example.org")];
            if claim.org.as_str() == "org-0000" {
                drafts.push(draft(&claim, "bob@example.org"));
            }
            Enqueue { drafts, claim }
        })
        .collect();
    store.enqueue(batch, TimeDelta::hours(48)).await.expect("enqueued");
    store.set_write_back(true).await.expect("noted");
    store
}

/// One round of the housekeeping.
async fn round(store: &Store, url: &DatabaseUrl, sql: &str) -> (u64, u64) {
    let write_back = Some(WriteBack::open(url, sql).expect("a statement of ours"));
    let cleanup = Cleanup { write_back, ..cleanup(store) };
    let pulse = Progress::new().watch("test", std::time::Duration::from_mins(1));
    let WrittenBack { written, waiting } =
        cleanup.write_back(&pulse, &CancellationToken::new()).await.expect("a round");
    (written, waiting)
}

/// Who gets digests, in the application's eyes.
async fn subscribed(app: &TestDatabase) -> Vec<String> {
    let query = "SELECT org || ' ' || person, CAST(1 AS BIGINT) FROM members WHERE weekly_digest ORDER BY 1";
    let rows = crate::support::world::numbers(app, query).await;
    rows.into_iter().map(|(who, _)| who.replace("@example.org", "")).collect()
}

both_databases! {
    async fn an_opt_out_is_stored_at_once_and_waits_for_an_application_that_is_away(database: TestDatabase) {
        let store = world(&database).await;
        let app = application(database.kind).await;
        let web = Web::start(&store).await;
        let link = web.path("org-0000", "ann@example.org", Scope::Org);
        assert_eq!(web.post(&link, ONE_CLICK).await.status, 200);
        assert_eq!(round(&store, &away(database.kind), WRITE).await, (0, 1));
        // Not before its time, and then again.
        assert_eq!(round(&store, &away(database.kind), WRITE).await, (0, 0));
        store.clock().advance(TimeDelta::seconds(31));
        assert_eq!(round(&store, &away(database.kind), WRITE).await, (0, 1));
        store.clock().advance(TimeDelta::days(30));
        assert_eq!(store.stats().await.expect("numbers").write_backs, 1);
        assert_eq!(round(&store, &url(&app), WRITE).await, (1, 0));
        assert_eq!(subscribed(&app).await, ["org-0000 bob", "org-0001 ann", "org-0002 ann"]);
        assert_eq!(store.stats().await.expect("numbers").write_backs, 0);
    }

    async fn an_opt_out_of_everything_is_written_for_each_org_and_one_org_s_is_taken_back(database: TestDatabase) {
        let store = world(&database).await;
        let app = application(database.kind).await;
        let web = Web::start(&store).await;
        let link = web.path("org-0001", "ann@example.org", Scope::Org);
        web.post(&link, "action=all").await;
        assert_eq!(round(&store, &url(&app), WRITE).await, (3, 0));
        assert_eq!(subscribed(&app).await, ["org-0000 bob"]);
        web.post(&link, "action=resubscribe").await;
        assert_eq!(round(&store, &url(&app), WRITE).await, (1, 0));
        // Whether Ann had the others before is the application's to know.
        assert_eq!(subscribed(&app).await, ["org-0000 bob", "org-0001 ann"]);
    }

    /// A note that an earlier choice was written must not end a later one.
    async fn a_choice_that_is_made_while_another_is_written_is_written_too(database: TestDatabase) {
        let store = world(&database).await;
        let app = application(database.kind).await;
        store.opt_out(&ann(), Some(&org("org-0000")), "link").await.expect("stored");
        let taken = store.take_choices(10).await.expect("choices");
        store.resubscribe(&ann(), &org("org-0000")).await.expect("stored");
        for choice in &taken {
            store.choice_written(choice).await.expect("noted");
        }
        assert_eq!(store.waiting_choices().await.expect("a count"), 1);
        assert_eq!(round(&store, &url(&app), WRITE).await, (1, 0));
        assert_eq!(subscribed(&app).await.len(), 4);
    }

    async fn a_statement_that_only_knows_opt_outs_is_run_for_them_alone(database: TestDatabase) {
        let store = world(&database).await;
        let app = application(database.kind).await;
        let sql = "UPDATE members SET weekly_digest = FALSE, said_at = :at WHERE person = :email";
        store.opt_out(&ann(), Some(&org("org-0000")), "link").await.expect("stored");
        assert_eq!(round(&store, &url(&app), sql).await, (1, 0));
        store.resubscribe(&ann(), &org("org-0000")).await.expect("stored");
        assert_eq!(round(&store, &url(&app), sql).await, (1, 0));
        assert_eq!(subscribed(&app).await, ["org-0000 bob"]);
        assert_eq!(number(&app, "SELECT COUNT(*) FROM members WHERE said_at LIKE '2026-07-06%'").await, 3);
    }

    async fn one_choice_that_the_application_refuses_holds_up_no_other(database: TestDatabase) {
        let store = world(&database).await;
        let app = application(database.kind).await;
        execute(&app, "CREATE UNIQUE INDEX one ON members (org) WHERE NOT weekly_digest; \
            UPDATE members SET weekly_digest = FALSE WHERE org = 'org-0000' AND person LIKE 'bob%';".to_owned()).await;
        store.opt_out(&ann(), None, "link").await.expect("stored");
        assert_eq!(round(&store, &url(&app), WRITE).await, (2, 1));
        assert_eq!(subscribed(&app).await, ["org-0000 ann"]);
        assert_eq!(store.waiting_choices().await.expect("a count"), 1);
    }

    async fn nothing_waits_where_nothing_is_written_back(database: TestDatabase) {
        let store = world(&database).await;
        store.set_write_back(false).await.expect("noted");
        store.opt_out(&ann(), None, "link").await.expect("stored");
        assert_eq!(store.waiting_choices().await.expect("a count"), 0);
    }

    async fn a_statement_that_cannot_work_is_found_before_the_first_opt_out(database: TestDatabase) {
        let app = application(database.kind).await;
        let good = WriteBack::open(&url(&app), WRITE).expect("a statement");
        good.check().await.expect("it fits");
        let wrong = WriteBack::open(&url(&app), "UPDATE members SET nothing = :opted_out").expect("a statement");
        let told = wrong.check().await.expect_err("no such column").to_string();
        assert!(told.starts_with("opt_out.sql failed: ") && told.contains("nothing"), "{told}");
        let error = WriteBack::open(&url(&app), "UPDATE members SET x = :org_ids").expect_err("no such parameter");
        let told = std::error::Error::source(&error).expect("a cause").to_string();
        assert_eq!(told, "line 1: unknown parameter :org_ids; did you mean :org_id?");
        let several = "UPDATE members SET weekly_digest = FALSE; DELETE FROM members";
        assert!(WriteBack::open(&url(&app), several).is_err());
        assert_eq!(subscribed(&app).await.len(), 4, "nothing was written");
    }
}

/// An application's ids are of its own types, and a text is none of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_of_every_type_are_written_in_their_own_type() {
    let app = TestDatabase::postgres().await;
    execute(
        &app,
        "CREATE SCHEMA app; CREATE TYPE app.\"Kind Of\" AS ENUM ('k-1', 'k-2');
         CREATE TABLE a (org BIGINT, person UUID, off BOOLEAN);
         INSERT INTO a VALUES (7, '00000000-0000-4000-8000-000000000001', FALSE);
         CREATE TABLE b (org app.\"Kind Of\", person NUMERIC, off INTEGER);
         INSERT INTO b VALUES ('k-2', 12.5, 0);"
            .to_owned(),
    )
    .await;
    for (sql, org, user, table) in [
        (
            "UPDATE a SET off = :opted_out WHERE org = :org_id AND person = :user_id",
            "7",
            "00000000-0000-4000-8000-000000000001",
            "a",
        ),
        (
            "UPDATE b SET off = :opted_out::int WHERE org = :org_id AND person = :user_id AND :email LIKE '%@%'",
            "k-2",
            "12.50",
            "b",
        ),
    ] {
        let write_back = WriteBack::open(&url(&app), sql).expect("a statement");
        let (org, user) = (self::org(org), UserId::parse(user).expect("an id"));
        let choice = Choice { org: &org, user: &user, address: &ann(), opted_out: true, at: monday() };
        write_back.write(&choice).await.expect("written");
        let off = format!("SELECT COUNT(*) FROM {table} WHERE off::int = 1");
        assert_eq!(number(&app, &off).await, 1, "{sql}");
        write_back.write(&Choice { opted_out: false, ..choice }).await.expect("written");
        assert_eq!(number(&app, &off).await, 0, "{sql}");
    }
}
