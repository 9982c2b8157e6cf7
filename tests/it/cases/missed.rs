//! Weeks that were lost, merged, or told with the numbers of another.

use chrono::{DateTime, TimeDelta, Utc};
use digestd::tick::TickReport;

use crate::support::engine::{Engine, Rows, mails};
use crate::support::fixtures::{monday, store};
use crate::support::world::{Counts, numbers};

/// An org to whom one thing happened in each of three weeks: `Week 26`, `Week 27`, `Week 28`.
fn three_weeks(rows: &mut Rows, first: DateTime<Utc>) {
    rows.org("acme", "Acme", "Europe/Berlin").admin("a", "acme", "a@acme.example");
    for week in 0..3 {
        let (id, title) = (format!("t-{week}"), format!("Week {}", 26 + week));
        rows.activity(&id, "acme", &title, first + TimeDelta::weeks(week) + TimeDelta::days(1));
    }
}

both_databases! {
    /// A digest that caught up told today's numbers, and the next run told the same days again.
    async fn a_late_digest_tells_the_week_of_its_key(database: TestDatabase) {
        let store = store(&database).await;
        // Monday 22 June, 29 June, 6 July: what the digests of 29 June, 6 July and 13 July are about.
        let mut rows = Rows::new(&database);
        three_weeks(&mut rows, monday() - TimeDelta::weeks(2));
        rows.write(&database).await;
        let engine = Engine::new(&database, &store).await;

        store.clock().set(monday() + TimeDelta::hours(35));
        assert_eq!(engine.sweep().await.enqueued, 1);
        engine.deliver(&database).await;
        store.clock().set(monday() + TimeDelta::weeks(1));
        assert_eq!(engine.sweep().await.enqueued, 1);
        engine.deliver(&database).await;
        let mails = mails(&database);
        let with = |title: &str| mails.iter().filter(|mail| mail.contains(title)).count();
        assert_eq!((with("Week 26"), with("Week 27"), with("Week 28")), (0, 1, 1));
        for mail in &mails {
            // The heading and what stands below it are about the same days.
            let june = mail.contains("29 Jun") || mail.contains("June 29") || mail.contains("Jun 29");
            assert_eq!(june, mail.contains("Week 27"), "{mail}");
        }
    }

    /// Headings were right and the figures below them one period late. Each week has a figure of its own here.
    async fn the_figure_under_a_heading_is_that_of_its_days(database: TestDatabase) {
        let store = store(&database).await;
        let mut rows = Rows::new(&database);
        rows.org("acme", "Acme", "Asia/Tokyo").admin("a", "acme", "a@acme.example");
        // Both ends of the week in Tokyo, which begins while it is still Sunday in UTC.
        let first: DateTime<Utc> = "2026-06-21T15:00:00Z".parse().expect("a time");
        for (week, commits) in [(0, 1), (1, 3), (2, 7)] {
            for n in 0..commits {
                let from = first + TimeDelta::weeks(week);
                let at = if n == 0 { from } else { from + TimeDelta::weeks(1) - TimeDelta::seconds(n) };
                rows.activity(&format!("{week}-{n}"), "acme", "A change", at);
            }
        }
        rows.write(&database).await;
        let engine = Engine::new(&database, &store).await;
        for week in 0..2 {
            store.clock().set("2026-07-05T23:00:00Z".parse::<DateTime<Utc>>().expect("a time") + TimeDelta::weeks(week));
            assert_eq!(engine.sweep().await.enqueued, 1);
            engine.deliver(&database).await;
        }
        let mails = mails(&database);
        let with = |heading: &str, figure: &str| mails.iter().filter(|mail| mail.contains(heading) && mail.contains(figure)).count();
        assert_eq!((mails.len(), with("29 Jun", "commit: 3 ("), with("6=E2=80=9312 Jul 2026", "commit: 7 (")), (2, 1, 1), "{mails:?}");
    }

    /// Rendering failed for weeks; then one digest told two months. Here two weeks cannot be gathered,
    /// and the third tells its own days alone.
    async fn weeks_that_failed_are_never_merged_into_a_later_one(database: TestDatabase) {
        let store = store(&database).await;
        let mut rows = Rows::new(&database);
        three_weeks(&mut rows, monday() - TimeDelta::weeks(2));
        rows.write(&database).await;
        let engine = Engine::new(&database, &store).await;
        let rename = |from: &str, to: &str| format!("ALTER TABLE {{}}{from} RENAME TO {to}");
        Rows::new(&database).statement(&rename("activity", "activity_away")).write(&database).await;
        for week in [-1, 0] {
            store.clock().set(monday() + TimeDelta::weeks(week));
            assert_eq!(engine.sweep().await.postponed, 1);
            let mut ended = TickReport::default();
            while ended.failed == 0 {
                store.clock().advance(TimeDelta::hours(2));
                ended = engine.rescue().await;
            }
        }
        Rows::new(&database).statement(&rename("activity_away", "activity")).write(&database).await;
        store.clock().set(monday() + TimeDelta::weeks(1));
        assert_eq!(engine.sweep().await.enqueued, 1);
        engine.deliver(&database).await;
        let mails = mails(&database);
        assert_eq!(mails.len(), 1);
        assert!(mails[0].contains("Week 28") && !mails[0].contains("Week 27") && !mails[0].contains("Week 26"));
        let sends = numbers(&database, "SELECT week_key || state || reason, COUNT(*) FROM {}sends WHERE state = 'failed' GROUP BY 1 ORDER BY 1").await;
        assert_eq!(sends.len(), 2, "{sends:?}");
        assert!(sends.iter().all(|(text, _)| text.ends_with("failedgather_failed")), "{sends:?}");
    }

    /// A row said “pending”, the process restarted, and the newsletter never went: only a boot looked for
    /// such rows. Here whoever lives finds it, without a restart.
    async fn a_claim_whose_owner_died_is_worked_by_one_that_runs_already(database: TestDatabase) {
        let store = store(&database).await;
        Rows::new(&database).simple("acme", monday() - TimeDelta::days(2)).write(&database).await;
        let (dead, alive) = (Engine::new(&database, &store).await, Engine::new(&database, &store).await);
        let due = crate::support::fixtures::due_org("acme", monday());
        let claims = store.claim(&[due], crate::support::fixtures::claim_id(), dead.tick.terms).await.expect("claims");
        drop(claims);
        assert_eq!(alive.rescue().await.won, 0);
        store.clock().advance(dead.tick.terms.lease);
        assert_eq!(alive.rescue().await.enqueued, 1);
        alive.deliver(&database).await;
        assert_eq!(mails(&database).len(), 1);
    }

    /// Eligible people were skipped, and nobody could say why. Every kind of reason is a row here.
    async fn whoever_gets_no_mail_has_a_row_that_says_why(database: TestDatabase) {
        let store = store(&database).await;
        let last_week = monday() - TimeDelta::days(2);
        let mut rows = Rows::new(&database);
        rows.org("quiet", "Quiet", "Europe/Berlin").admin("q", "quiet", "q@x.io");
        rows.org("zoned", "Zoned", "GMT Standard Time").admin("z", "zoned", "z@x.io");
        rows.simple("broken", last_week).admin("b", "broken", "no address");
        rows.simple("left", last_week);
        let at = rows.time(monday());
        rows.statement(&format!(
            "INSERT INTO {{}}opt_outs (address, org_id, at, source) VALUES ('a@left.example', 'left', {at}, 'test')"
        ));
        rows.write(&database).await;
        // Ten o'clock in UTC, so that the configured schedule has come there too.
        store.clock().set(monday() + TimeDelta::hours(4));
        Engine::new(&database, &store).await.sweep().await;
        let sends = numbers(&database, "SELECT org_id || ' ' || state || ' ' || COALESCE(reason, ''), COUNT(*) FROM {}sends GROUP BY 1 ORDER BY 1").await;
        let sends: Vec<&str> = sends.iter().map(|(text, _)| text.trim()).collect();
        assert_eq!(sends, ["broken enqueued", "left enqueued", "quiet skipped empty_week", "zoned failed bad_timezone"]);
        let rows = numbers(&database, "SELECT address || ' ' || state || ' ' || COALESCE(reason, ''), COUNT(*) FROM {}outbox GROUP BY 1 ORDER BY 1").await;
        let rows: Vec<&str> = rows.iter().map(|(text, _)| text.trim()).collect();
        assert_eq!(rows, ["a@broken.example pending", "a@left.example suppressed opted_out", "no address failed bad_address"]);
    }

    /// A saved schedule with a name that is no zone broke the scheduler's run for everybody.
    async fn zones_that_are_none_fail_their_own_orgs_alone(database: TestDatabase) {
        let store = store(&database).await;
        let last_week = monday() - TimeDelta::days(2);
        let mut rows = Rows::new(&database);
        let broken = ["GMT Standard Time", "", "UTC+5.5", "Mars/Base", "../etc/passwd", "Factory", "<-03>3"];
        for (n, zone) in broken.into_iter().enumerate() {
            let org = format!("broken-{n}");
            rows.org(&org, "Broken", zone).admin(&org, &org, "a@x.io").activity(&org, &org, "News", last_week);
        }
        rows.simple("acme", last_week);
        rows.write(&database).await;
        // Ten o'clock in UTC, so that the configured schedule has come there too.
        store.clock().set(monday() + TimeDelta::hours(4));
        let engine = Engine::new(&database, &store).await;
        let report = engine.sweep().await;
        assert_eq!((report.enqueued, report.failed), (1, broken.len() as u64), "{report:?}");
        assert_eq!(Counts::read(&database).await.sends("failed"), i64::try_from(broken.len()).expect("a count"));
    }

    /// A zone in another spelling is the same zone, and its orgs do not wait for the next full look.
    async fn a_zone_in_another_spelling_is_found_by_the_first_tick(database: TestDatabase) {
        let store = store(&database).await;
        let last_week = monday() - TimeDelta::days(2);
        store.clock().set(monday() - TimeDelta::hours(1));
        let mut rows = Rows::new(&database);
        for (n, zone) in ["Europe/Berlin", "europe/berlin", " Europe/Berlin ", "EUROPE/BERLIN"].into_iter().enumerate() {
            let org = format!("org-{n}");
            rows.org(&org, "Spelt", zone).admin(&org, &org, &format!("a@{org}.example")).activity(&org, &org, "News", last_week);
        }
        rows.write(&database).await;
        let engine = Engine::new(&database, &store).await;
        assert_eq!(engine.sweep().await.won, 0);
        store.clock().set(monday());
        assert_eq!(engine.look().await.enqueued, 4);
    }
}
