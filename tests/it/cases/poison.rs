//! One row that cannot be read, among many that can.

use chrono::TimeDelta;

use crate::support::backend::Kind;
use crate::support::engine::{Engine, Rows, mails};
use crate::support::fixtures::{claim_id, due_orgs, lease_terms, monday, store, terms};
use crate::support::scale;
use crate::support::world::{Counts, numbers};
use digestd::domain::ids::ReplicaId;

both_databases! {
    /// One unique conflict blocked a whole stage; one unreadable row ended a whole query. Here most of what an
    /// application can write past every check stands among orgs that are well.
    async fn orgs_and_admins_with_odd_values_keep_no_mail_from_the_others(database: TestDatabase) {
        let store = store(&database).await;
        let last_week = monday() - TimeDelta::days(2);
        let mut rows = Rows::new(&database);
        for n in 0..20 {
            rows.simple(&format!("org-{n:02}"), last_week);
        }
        let odd_ids = ["", " ", "a\nb", "\u{7f}", "tab\tin"].map(str::to_owned);
        for id in odd_ids.into_iter().chain([format!("long-{}", "x".repeat(300))]) {
            rows.org(&id, "Odd", "Europe/Berlin").admin(&format!("of-{id}"), &id, "a@odd.example");
        }
        let huge = "W".repeat(10_000_000);
        rows.org("huge", &huge, "Europe/Berlin").admin("huge", "huge", "a@huge.example");
        rows.activity("huge", "huge", &huge, last_week);
        rows.simple("admins", last_week);
        for (n, id) in ["", "line\nbreak", "\u{9}", &"y".repeat(500)].into_iter().enumerate() {
            rows.admin(id, "admins", &format!("odd-{n}@admins.example"));
        }
        rows.admin("huge-email", "admins", &format!("{huge}@x.io"));
        rows.simple("day", last_week).statement("UPDATE {}orgs SET weekday = 'Blursday', local_time = '25:61', locale = 'x_!' WHERE id = 'day'");
        rows.simple("control", last_week).statement("UPDATE {}orgs SET name = 'a' || CHR(13) || CHR(10) || 'Bcc: b@x.io' WHERE id = 'control'".replace("CHR", if database.kind == Kind::Sqlite { "CHAR" } else { "CHR" }).as_str());
        rows.write(&database).await;

        let engine = Engine::new(&database, &store).await;
        let report = engine.sweep().await;
        assert_eq!((report.enqueued, report.postponed, report.failed), (24, 0, 0), "{report:?}");
        engine.deliver(&database).await;
        let mails = mails(&database);
        // Twenty, `huge`, five of `admins`, `day` and `control`.
        assert_eq!(mails.len(), 28);
        assert!(mails.iter().all(|mail| mail.len() < 300_000));
        assert!(mails.iter().all(|mail| !mail.lines().any(|line| line.starts_with("Bcc:"))));
        let failed = numbers(&database, "SELECT reason, COUNT(*) FROM {}outbox WHERE state = 'failed' GROUP BY reason").await;
        assert_eq!(failed, [("bad_address".to_owned(), 1)]);
    }

    /// A list of thousands of ids in one statement was killed by its host, and nobody got anything any more.
    async fn an_org_with_thousands_of_admins_is_mailed_whole_and_beside_others(database: TestDatabase) {
        let admins = scale(1_000, 10_000);
        let store = store(&database).await;
        let last_week = monday() - TimeDelta::days(2);
        let mut rows = Rows::new(&database);
        rows.simple("large", last_week).simple("a-small", last_week).simple("z-small", last_week);
        for n in 1..admins {
            rows.admin(&format!("admin-{n}"), "large", &format!("admin-{n}@large.example"));
        }
        rows.write(&database).await;
        let engine = Engine::new(&database, &store).await;
        let report = engine.sweep().await;
        assert_eq!((report.enqueued, report.messages), (3, admins as u64 + 2), "{report:?}");
        engine.deliver(&database).await;
        assert_eq!(mails(&database).len(), admins + 2);
    }

    /// A time that the driver cannot count ended the program's loop: `infinity` is a value that PostgreSQL
    /// people use for “never”.
    async fn times_beyond_the_calendar_are_its_edges(database: TestDatabase) {
        let store = store(&database).await;
        let last_week = monday() - TimeDelta::days(2);
        let mut rows = Rows::new(&database);
        let times = match database.kind {
            Kind::Postgres => ["'-infinity'", "'4713-01-02 BC'", "'infinity'", "'294276-12-31'"],
            Kind::Sqlite => ["-9223372036854775808", "-9007199254740993000", "9223372036854775807", "1783317600000000000"],
        };
        for (n, time) in times.into_iter().enumerate() {
            let org = format!("org-{n}");
            rows.simple(&org, last_week);
            rows.statement(&format!("UPDATE {{}}orgs SET created_at = {time} WHERE id = '{org}'"));
            rows.simple(&format!("{org}-in"), last_week);
            rows.statement(&format!("UPDATE {{}}admins SET opted_in_at = {time} WHERE org_id = '{org}-in'"));
        }
        rows.write(&database).await;
        let report = Engine::new(&database, &store).await.sweep().await;
        // Made before all time: due. Made after all time: not yet.
        assert_eq!((report.candidates, report.enqueued), (8, 4), "{report:?}");
    }

    /// A claim that cannot be read came back with every take-over and took its neighbours' with it.
    async fn a_claimed_send_that_cannot_be_read_holds_up_no_other_and_is_failed_in_the_end(database: TestDatabase) {
        let store = store(&database).await;
        let mut rows = Rows::new(&database);
        for n in 0..6 {
            rows.simple(&format!("org-{n:04}"), monday() - TimeDelta::days(2));
        }
        rows.write(&database).await;
        let lost = store.claim(&due_orgs(6, monday()), claim_id(), terms(ReplicaId::random())).await.expect("claims");
        drop(lost);
        Rows::new(&database)
            .statement("UPDATE {}sends SET timezone = 'Nowhere/Yet' WHERE org_id = 'org-0000'")
            .statement("UPDATE {}sends SET week_key = '2026-W99' WHERE org_id = 'org-0001'")
            .statement("UPDATE {}sends SET only_address = 'nobody' WHERE org_id = 'org-0002'")
            .write(&database)
            .await;
        store.clock().advance(TimeDelta::minutes(2));
        let engine = Engine::new(&database, &store).await;
        let report = engine.rescue().await;
        assert_eq!(report.enqueued, 3, "{report:?}");
        assert_eq!(Counts::read(&database).await.sends("claimed"), 3);
        store.clock().advance(TimeDelta::days(4));
        engine.rescue().await;
        let failed = numbers(&database, "SELECT reason, COUNT(*) FROM {}sends WHERE state = 'failed' GROUP BY reason").await;
        assert_eq!(failed, [("too_late".to_owned(), 3)]);
    }

    /// One message that cannot be read is failed by itself, and a marker is set for the rest.
    async fn an_unreadable_message_is_failed_and_the_rest_of_its_lease_goes_out(database: TestDatabase) {
        let store = store(&database).await;
        let mut rows = Rows::new(&database);
        for n in 0..5 {
            rows.simple(&format!("org-{n}"), monday() - TimeDelta::days(2));
        }
        rows.write(&database).await;
        let engine = Engine::new(&database, &store).await;
        assert_eq!(engine.sweep().await.messages, 5);
        Rows::new(&database)
            .statement("UPDATE {}outbox SET mailbox = 'not an address' WHERE org_id = 'org-0'")
            .statement("UPDATE {}outbox SET fingerprint = NULL WHERE org_id = 'org-1'")
            .statement("DELETE FROM {}bodies WHERE message_id IN (SELECT id FROM {}outbox WHERE org_id = 'org-2')")
            .write(&database)
            .await;
        engine.deliver(&database).await;
        let counts = Counts::read(&database).await;
        assert_eq!((counts.messages("accepted"), counts.messages("failed")), (2, 3), "{counts:?}");
        let left = store.lease_messages(10, lease_terms(ReplicaId::random())).await.expect("a lease");
        assert!(left.messages.is_empty() && left.broken.is_empty());
    }

    /// A slot that a later release has written in its own way stops no tick of this one.
    async fn a_slot_that_cannot_be_read_stops_no_tick(database: TestDatabase) {
        let store = store(&database).await;
        let mut rows = Rows::new(&database);
        rows.simple("acme", monday() - TimeDelta::days(2));
        let at = rows.time(monday());
        rows.statement(&format!("INSERT INTO {{}}slots (timezone, weekday, local_time, week_key, slot_at) VALUES ('Europe/Berlin', 'Mon', '08:00', '2026-28', {at})"));
        rows.write(&database).await;
        let engine = Engine::new(&database, &store).await;
        assert_eq!(engine.sweep().await.enqueued, 1);
        engine.look().await;
    }
}
