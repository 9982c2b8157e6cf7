//! What a commit says: an answer that is a lie, and errors that nobody read.

use std::time::Duration;

use chrono::TimeDelta;
use digestd::domain::address::{Address, AddressFault};
use digestd::domain::fingerprint::Fingerprint;
use digestd::domain::ids::{GuardOwner, MessageId, ReplicaId};
use digestd::domain::week::WeekKey;
use digestd::store::enqueue::Enqueue;
use digestd::store::guard::Wish;
use digestd::store::leases::{LEADER, LeadershipTerms};
use digestd::store::relays::Breaker;
use digestd::store::suppressions::SuppressionTerms;
use digestd::store::{ErrorClass, Store};

use crate::support::backend::{Kind, TestDatabase};
use crate::support::engine::{Engine, Rows};
use crate::support::fixtures::{claim_id, draft, due_orgs, monday, store, terms};
use crate::support::world::{Counts, numbers};

/// Makes the database refuse the outbox's row of one address, at once or only at the commit.
async fn refuse(database: &TestDatabase, address: &str, at_commit: bool) {
    let mut rows = Rows::new(database);
    match (database.kind, at_commit) {
        (Kind::Postgres, _) => {
            rows.statement("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused'; END $$");
            let (kind, late) =
                if at_commit { ("CONSTRAINT ", "DEFERRABLE INITIALLY DEFERRED ") } else { ("", "") };
            rows.statement(&format!(
                "CREATE {kind}TRIGGER refuse AFTER INSERT ON {{}}outbox {late}FOR EACH ROW \
                 WHEN (NEW.address = '{address}') EXECUTE FUNCTION refuse()"
            ));
        }
        (Kind::Sqlite, false) => {
            rows.statement(&format!(
                "CREATE TRIGGER refuse AFTER INSERT ON outbox WHEN NEW.address = '{address}' \
                 BEGIN SELECT RAISE(ABORT, 'refused'); END"
            ));
        }
        (Kind::Sqlite, true) => {
            rows.statement(
                "CREATE TABLE pledge (org TEXT REFERENCES orgs (id) DEFERRABLE INITIALLY DEFERRED)",
            );
            rows.statement(&format!(
                "CREATE TRIGGER refuse AFTER INSERT ON outbox WHEN NEW.address = '{address}' \
                 BEGIN INSERT INTO pledge VALUES ('no such org'); END"
            ));
        }
    }
    rows.write(database).await;
}

/// Makes the database refuse every change of these tables, but only at the commit.
async fn refuse_commits(database: &TestDatabase, tables: &[&str]) {
    let mut rows = Rows::new(database);
    match database.kind {
        Kind::Postgres => {
            rows.statement("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused'; END $$");
        }
        Kind::Sqlite => {
            rows.statement(
                "CREATE TABLE pledge (org TEXT REFERENCES orgs (id) DEFERRABLE INITIALLY DEFERRED)",
            );
        }
    }
    for table in tables {
        match database.kind {
            Kind::Postgres => {
                rows.statement(&format!(
                    "CREATE CONSTRAINT TRIGGER refuse_{table} AFTER INSERT OR UPDATE ON {{}}{table} \
                     DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()"
                ));
            }
            Kind::Sqlite => {
                for event in ["INSERT", "UPDATE"] {
                    rows.statement(&format!(
                        "CREATE TRIGGER refuse_{table}_{event} AFTER {event} ON {table} \
                         BEGIN INSERT INTO pledge VALUES ('no such org'); END"
                    ));
                }
            }
        }
    }
    rows.write(database).await;
}

async fn enqueue_three(store: &Store) -> Result<(), ErrorClass> {
    let claims =
        store.claim(&due_orgs(3, monday()), claim_id(), terms(ReplicaId::random())).await.expect("claims");
    let batch: Vec<Enqueue> = claims
        .into_iter()
        .map(|claim| {
            let drafts =
                ["a", "b"].map(|name| draft(&claim, &format!("{name}@{}.example", claim.org))).into();
            Enqueue { claim, drafts }
        })
        .collect();
    match store.enqueue(batch, TimeDelta::hours(48)).await {
        Ok(_) => Ok(()),
        Err(error) => {
            assert_eq!(error.batch.len(), 3);
            Err(error.source.class())
        }
    }
}

async fn nothing_was_written(database: &TestDatabase, store: &Store) {
    let counts = Counts::read(database).await;
    assert_eq!((counts.sends("claimed"), counts.sends("enqueued"), counts.messages("pending")), (3, 0, 0));
    assert_eq!(numbers(database, "SELECT 'bodies', COUNT(*) FROM {}bodies").await[0].1, 0);
    // The connection that saw the failure is as good as before.
    for n in 0..10 {
        let due = [crate::support::fixtures::due_org(&format!("after-{n}"), monday())];
        assert_eq!(
            store.claim(&due, claim_id(), terms(ReplicaId::random())).await.expect("a claim").len(),
            1
        );
    }
    let seen = numbers(database, "SELECT 'after', COUNT(*) FROM {}sends WHERE org_id LIKE 'after-%'").await;
    assert_eq!(seen[0].1, 10);
}

both_databases! {
    /// An error after the first rows of an answer was never read, and the commit “succeeded”. Here the
    /// second row of an insert that returns rows is refused.
    async fn a_statement_that_fails_on_its_second_row_commits_nothing(database: TestDatabase) {
        let store = store(&database).await;
        refuse(&database, "b@org-0000.example", false).await;
        assert_eq!(enqueue_three(&store).await, Err(ErrorClass::Permanent));
        nothing_was_written(&database, &store).await;
    }

    /// A commit that the database turned into a rollback was reported as a success.
    async fn a_commit_that_is_refused_is_an_error_and_leaves_nothing(database: TestDatabase) {
        let store = store(&database).await;
        refuse(&database, "b@org-0001.example", true).await;
        assert_eq!(enqueue_three(&store).await, Err(ErrorClass::Permanent));
        nothing_was_written(&database, &store).await;
    }

    /// A statement gave its row and failed at its own commit. Nobody had read on, so a body left whose fingerprint
    /// was never kept, and two replicas could have led.
    async fn a_row_is_no_proof_of_its_commit(database: TestDatabase) {
        let store = store(&database).await;
        let me = ReplicaId::random();
        let spans = (Duration::from_mins(1), Duration::from_mins(10));
        store.relay("relay").await.expect("a row");
        let claim = store.claim(&due_orgs(1, monday()), claim_id(), terms(me)).await.expect("a claim").remove(0);
        refuse_commits(&database, &["fingerprints", "leases", "weeks", "relays", "suppressions", "sends"]).await;

        let to = Address::parse("a@x.org").expect("an address");
        let wish = Wish {
            fingerprint: Fingerprint::derive(to.normal(), "digest", "acme 2026-W28"),
            owner: GuardOwner::random(),
            message: MessageId(1),
            resend: false,
            ttl: Duration::from_hours(1),
        };
        assert!(store.take_fingerprint(&wish).await.is_err(), "a fingerprint");
        let leadership = LeadershipTerms { ttl: Duration::from_mins(1), margin: Duration::from_secs(5) };
        assert!(store.acquire_lease(LEADER, me, leadership).await.is_err(), "a lease");
        let week = WeekKey::parse("2026-W28").expect("a week");
        assert!(store.close_week(week).await.is_err(), "a week");
        assert!(store.relay_failing("relay", 1, spans, "").await.is_err(), "a failure of the relay");
        assert!(store.relay_open("relay", "auth", spans, "").await.is_err(), "a breaker");
        assert!(store.relay_throttled("relay", spans.0).await.is_err(), "a rate");
        let soon = SuppressionTerms { hard_after: 1, soft_after: 1, soft_decay: TimeDelta::days(1) };
        assert!(store.note_address_failure(&to, AddressFault::Hard, soon, "relay", "").await.is_err(), "a failure of an address");
        assert!(store.charge(&claim).await.is_err(), "an attempt");

        for table in ["fingerprints", "leases", "weeks", "suppressions"] {
            let kept = numbers(&database, &format!("SELECT 'kept', COUNT(*) FROM {{}}{table}")).await[0].1;
            assert_eq!(kept, 0, "{table}");
        }
        assert_eq!(store.relay("relay").await.expect("a state").breaker, Breaker::Closed);
    }

    /// One conflicting row blocked a whole stage. The org that the database refuses is the only one that
    /// waits; it is tried again a bounded number of times and then failed, with the reason.
    async fn one_org_that_cannot_be_enqueued_holds_up_no_other(database: TestDatabase) {
        let store = store(&database).await;
        let mut rows = Rows::new(&database);
        for n in 0..40 {
            rows.simple(&format!("org-{n:02}"), monday() - TimeDelta::days(2));
        }
        rows.write(&database).await;
        refuse(&database, "a@org-17.example", false).await;
        let engine = Engine::new(&database, &store).await;
        let report = engine.sweep().await;
        assert_eq!((report.enqueued, report.postponed), (39, 1), "{report:?}");
        let mut tries = 0;
        while Counts::read(&database).await.sends("failed") == 0 {
            store.clock().advance(TimeDelta::hours(1));
            engine.rescue().await;
            tries += 1;
            assert!(tries < 20, "bounded");
        }
        let failed = numbers(&database, "SELECT org_id || ' ' || detail, COUNT(*) FROM {}sends WHERE state = 'failed' GROUP BY 1").await;
        assert!(failed.len() == 1 && failed[0].0.starts_with("org-17 ") && failed[0].0.contains("enqueueing"), "{failed:?}");
    }
}
