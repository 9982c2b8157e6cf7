//! Second mails: by late data, by typed-in twins, by a schedule that is changed all the time.

use std::collections::BTreeSet;

use chrono::TimeDelta;

use crate::support::engine::{Engine, Rows, mails};
use crate::support::fixtures::{monday, store};
use crate::support::world::numbers;

const PERIODS: &str = "SELECT period_first || ' ' || CAST(period_end AS TEXT), COUNT(*) FROM {}sends GROUP BY period_first, period_end";

both_databases! {
    /// Two reports came hours apart, with different numbers: what arrived late made a second one.
    async fn late_data_makes_no_second_mail_and_moves_no_period(database: TestDatabase) {
        let store = store(&database).await;
        let last_week = monday() - TimeDelta::days(3);
        Rows::new(&database).simple("acme", last_week).write(&database).await;
        let engine = Engine::new(&database, &store).await;
        assert_eq!(engine.sweep().await.messages, 1);
        let periods = numbers(&database, PERIODS).await;
        engine.deliver(&database).await;

        Rows::new(&database).activity("late", "acme", "Late news", last_week).write(&database).await;
        for _ in 0..5 {
            store.clock().advance(TimeDelta::hours(3));
            assert_eq!((engine.sweep().await.won, engine.look().await.won, engine.rescue().await.won), (0, 0, 0));
            engine.deliver(&database).await;
        }
        let mails = mails(&database);
        assert_eq!(mails.len(), 1);
        assert!(!mails[0].contains("Late news"));
        assert_eq!(numbers(&database, PERIODS).await, periods);
    }

    /// One address typed a hundred times received a hundred copies. The rule here: the whole address is
    /// compared without case, and the first admin's spelling is the one that the relay gets.
    async fn an_address_typed_in_many_ways_gets_one_mail(database: TestDatabase) {
        let store = store(&database).await;
        let mut rows = Rows::new(&database);
        rows.simple("acme", monday() - TimeDelta::days(1));
        for (n, email) in ["B@x.io", " b@X.IO ", "b@x.io", "\tb@x.io\r\n"].into_iter().enumerate() {
            rows.admin(&format!("b-{n}"), "acme", email);
        }
        for n in 0..100 {
            rows.admin(&format!("c-{n:03}"), "acme", "same@x.io");
        }
        rows.write(&database).await;
        let engine = Engine::new(&database, &store).await;
        assert_eq!(engine.sweep().await.messages, 3);
        engine.deliver(&database).await;
        let to: BTreeSet<String> = mails(&database)
            .iter()
            .filter_map(|mail| mail.lines().find(|line| line.starts_with("To:")).map(str::to_owned))
            .collect();
        assert_eq!(to.len(), 3, "{to:?}");
        assert!(to.iter().any(|line| line.contains("B@x.io")), "{to:?}");
    }

    /// A key without the org sent only the first of a person's reports, without a word about the others.
    async fn an_admin_of_three_orgs_gets_three_mails(database: TestDatabase) {
        let store = store(&database).await;
        let mut rows = Rows::new(&database);
        for n in 0..3 {
            let org = format!("org-{n}");
            rows.org(&org, "The same name", "Europe/Berlin")
                .admin(&format!("a-{n}"), &org, "same@x.io")
                .activity(&format!("t-{n}"), &org, "The same news", monday() - TimeDelta::days(2));
        }
        rows.write(&database).await;
        let guarded = Engine::with(&database, &store, "[guard]\nbackend = \"sql\"\n").await;
        assert_eq!(guarded.sweep().await.messages, 3);
        guarded.deliver(&database).await;
        assert_eq!(mails(&database).len(), 3);
    }

    /// After a change to the schedule about 140 weekly mails came in two hours. Here an org's schedule, zone
    /// included, says “now” at every minute of an hour and at every hour of three days.
    async fn a_schedule_that_says_now_again_and_again_sends_once_a_week(database: TestDatabase) {
        let store = store(&database).await;
        Rows::new(&database).simple("acme", monday() - TimeDelta::days(2)).write(&database).await;
        let engine = Engine::new(&database, &store).await;
        let minutes = (0..60).chain((1..72).map(|hour| hour * 60));
        for minute in minutes {
            let now = monday() + TimeDelta::minutes(minute);
            store.clock().set(now);
            let zone = if minute % 2 == 0 { "Europe/Berlin" } else { "Asia/Tokyo" };
            let local = digestd::domain::zone::Zone::parse(zone).expect("a zone").local(now);
            let (day, time) = (local.format("%a"), local.format("%H:%M"));
            Rows::new(&database)
                .statement(&format!(
                    "UPDATE {{}}orgs SET timezone = '{zone}', weekday = '{day}', local_time = '{time}'"
                ))
                .write(&database)
                .await;
            engine.sweep().await;
        }
        let sends = numbers(&database, "SELECT week_key, COUNT(*) FROM {}sends GROUP BY week_key").await;
        assert_eq!(sends, [("2026-W28".to_owned(), 1)]);
        let messages = numbers(&database, "SELECT address, COUNT(*) FROM {}outbox GROUP BY address").await;
        assert_eq!(messages, [("a@acme.example".to_owned(), 1)]);
    }

    /// A broken address that is made of the same visible characters as another is another row to the source
    /// and the same row to the outbox: the collision took the whole batch's enqueue with it.
    async fn broken_addresses_that_look_alike_are_one(database: TestDatabase) {
        let store = store(&database).await;
        let mut rows = Rows::new(&database);
        rows.simple("acme", monday() - TimeDelta::days(2)).simple("zeta", monday() - TimeDelta::days(2));
        for (n, email) in ["no address", "no\taddress", "no\u{1}address", "noaddress", ""].into_iter().enumerate() {
            rows.admin(&format!("n-{n}"), "acme", email);
        }
        rows.write(&database).await;
        let report = Engine::new(&database, &store).await.sweep().await;
        assert_eq!((report.enqueued, report.messages), (2, 5), "{report:?}");
    }
}
