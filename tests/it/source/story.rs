//! What `explain` tells of orgs and admins that stand in the operator's own database.

use digestd::config::Config;
use digestd::domain::ids::ReplicaId;
use digestd::ledger::Ledger;
use digestd::ledger::story::Story;
use digestd::ledger::whom::Whom;
use digestd::source::Source;
use digestd::source::operator::Operator;
use digestd::store::enqueue::Enqueue;

use super::{App, execute, orgs};
use crate::support::fixtures::{claim_id, draft, due_org, ledger, monday, store, terms};

const SHOP: &str = "
    CREATE TABLE shops (id text PRIMARY KEY, title text, tz text, opened timestamp);
    CREATE TABLE keepers (id text PRIMARY KEY, shop text, mail text);
    INSERT INTO shops VALUES
        ('old', 'Old & Sons', 'Europe/Berlin', '2026-01-05 10:00:00'),
        ('new', 'Brand New', 'Europe/Berlin', '2026-07-06 06:30:00');
    INSERT INTO keepers VALUES
        ('k1', 'old', 'Ann@old.example'), ('k2', 'old', 'not an address'), ('k3', 'new', 'cid@new.example');";

const CONFIG: &str = r#"
[source]
recipients = """
SELECT s.id AS org_id, s.title AS org_name, k.id AS user_id, k.mail AS email, s.tz AS timezone,
       s.opened AS org_created_at
FROM shops s
JOIN keepers k ON k.shop = s.id
"""
[[section]]
name = "shops"
title = "Shops"
sql = "SELECT id AS org_id, title FROM shops WHERE id = ANY(:org_ids)"
"#;

/// It waited for half a minute and said that a pool had timed out.
#[tokio::test]
async fn a_server_that_is_away_is_told_by_what_went_wrong() {
    let nobody =
        std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let url = format!("postgres://app:secret@{nobody}/app?sslmode=disable");
    let text = format!(
        "public_url = \"http://127.0.0.1:8080\"\n{}",
        CONFIG.replace("[source]", &format!("[source]\nurl = \"{url}\""))
    );
    let config = Config::parse(&text, []).unwrap_or_else(|error| panic!("{error}"));
    let source = config.source.as_ref().expect("a source");
    let source = Operator::open(source, &config.sections, &config.schedule.default).expect("queries of ours");
    let error = Source::Operator(source).listed(&orgs(&["old"]).remove(0)).await.expect_err("nobody listens");
    assert!(error.is_transient());
    assert!(error.to_string().contains("Connection refused"), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
}

both_databases! {
    /// It asked our own tables only, so that every admin was a stranger and every new org was due.
    async fn recipients_are_known_and_an_org_younger_than_its_slot_is_told(database: TestDatabase) {
        let app = App::new(database, SHOP, CONFIG).await;
        let store = store(&app.database).await;
        store.clock().set(monday() + chrono::TimeDelta::hours(1));
        let ledger = Ledger { source: app.checked().await, ..ledger(&store) };
        let explain = async |org: &str, whom: &str| -> Story {
            let org = orgs(&[org]).remove(0);
            ledger.explain(&org, None, Some(&Whom::new(whom))).await.expect("a story")
        };
        for whom in ["ann@OLD.example", "k1", "not an address", "k2"] {
            let told = explain("old", whom).await;
            assert_eq!(told.name.as_deref(), Some("Old & Sons"));
            assert_eq!(told.left_out, [], "{whom}");
            assert!(told.outcome.starts_with("Due for 1 h"), "{}", told.outcome);
        }
        let stranger = explain("old", "zoe@old.example").await;
        let why = "is no recipient of this org: the recipients query has no row with this address or user_id";
        assert_eq!(stranger.left_out[0].why, why);
        let young = explain("new", "cid@new.example").await;
        assert_eq!(
            young.outcome,
            "No digest: the org was created at 2026-07-06 06:30:00 UTC, after the slot."
        );
        assert_eq!(young.left_out, []);
        let gone = explain("gone", "cid@new.example").await;
        assert_eq!(gone.outcome, "No digest: the recipients query lists no org “gone”.");
    }

    /// It failed as a whole, just when somebody asked what had been sent.
    async fn what_was_sent_is_told_while_the_applications_database_is_away(database: TestDatabase) {
        let app = App::new(database, SHOP, CONFIG).await;
        let store = store(&app.database).await;
        store.clock().set(monday() + chrono::TimeDelta::hours(1));
        let due = due_org("old", monday());
        let week = due.slot.week;
        let claims = store.claim(&[due], claim_id(), terms(ReplicaId::random())).await.expect("a claim");
        let claim = claims.into_iter().next().expect("ours");
        let drafts = vec![draft(&claim, "ann@old.example")];
        let enqueued = store.enqueue(vec![Enqueue { claim, drafts }], chrono::TimeDelta::days(2)).await;
        assert_eq!(enqueued.expect("enqueued").messages, 1);
        let ledger = Ledger { source: app.checked().await, ..ledger(&store) };
        execute(&app.database, "DROP TABLE keepers").await;
        // A week later, and no week is named: the newest that is known is told.
        ledger.store.clock().set(monday() + chrono::TimeDelta::days(8));
        let explain = async |org: &str, to: Option<&Whom>| -> Story {
            ledger.explain(&orgs(&[org]).remove(0), None, to).await.expect("a story")
        };
        let told = explain("old", Some(&Whom::new("ann@old.example"))).await;
        assert_eq!((told.week, told.sends.len()), (week.to_string(), 1));
        assert!(told.outcome.starts_with("Enqueued for 1 recipient"), "{}", told.outcome);
        let silent = format!("whether a digest after {week} is due is not known. The application's database could not");
        assert!(told.next.iter().any(|next| next.starts_with(&silent)), "{:?}", told.next);
        let never = explain("new", None).await;
        let unknown = "No digest of 2026-W29 is on record, and whether one is due is not known. The application's";
        assert!(never.outcome.starts_with(unknown), "{}", never.outcome);
        assert_eq!(never.next, ["unknown until the application's database answers"]);
    }
}
