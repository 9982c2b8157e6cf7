//! Periodic runs that were lost or came twice: by restarts, by early and late timers, by leaders in
//! transit, by clocks that differ.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use digestd::clock::Clock;
use futures_util::future::join_all;
use tokio::sync::Barrier;

use crate::support::backend::TestDatabase;
use crate::support::engine::{Engine, Rows, mails};
use crate::support::fixtures::{monday, open, store};
use crate::support::world::numbers;

/// Orgs of these tests.
const ORGS: usize = 12;

async fn fill(database: &TestDatabase, happened: &[DateTime<Utc>]) {
    let mut rows = Rows::new(database);
    for n in 0..ORGS {
        let org = format!("org-{n:02}");
        rows.org(&org, &org, "Europe/Berlin").admin(&org, &org, &format!("a@{org}.example"));
        for (m, at) in happened.iter().enumerate() {
            rows.activity(&format!("{org}-{m}"), &org, "News", *at);
        }
    }
    rows.write(database).await;
}

/// How many sends there are of each week.
async fn sends(database: &TestDatabase) -> Vec<(String, i64)> {
    numbers(database, "SELECT week_key, COUNT(*) FROM {}sends GROUP BY week_key ORDER BY week_key").await
}

fn each(weeks: &[&str]) -> Vec<(String, i64)> {
    weeks.iter().map(|week| ((*week).to_owned(), i64::try_from(ORGS).expect("a count"))).collect()
}

both_databases! {
    /// A weekly interval never fired because restarts were more frequent than the interval, and the
    /// schedule lived in memory. Here every hour of three weeks sees a new replica and one tick.
    async fn a_restart_every_hour_loses_no_week_and_doubles_none(database: TestDatabase) {
        let store = store(&database).await;
        let happened: Vec<_> = (-1..3).map(|week| monday() + TimeDelta::weeks(week) + TimeDelta::days(1)).collect();
        fill(&database, &happened).await;
        // From Tuesday on, after the window of that week is over.
        let start = monday() - TimeDelta::days(5);
        for hour in 0..3 * 7 * 24 {
            store.clock().set(start + TimeDelta::hours(hour) + TimeDelta::minutes(hour * 7 % 60));
            let engine = Engine::new(&database, &store).await;
            engine.look().await;
            // The first tick of a process looks at everything; most processes here live that long only.
            if hour % 2 == 0 {
                engine.sweep().await;
            }
        }
        assert_eq!(sends(&database).await, each(&["2026-W28", "2026-W29", "2026-W30"]));
    }

    /// A tick fell between the old leader's goodbye and the new one's hello; that day's job was lost. Here
    /// all replicas of the minute before are gone at the very instant of the slot.
    async fn replicas_that_are_all_replaced_at_the_slot_miss_nothing(database: TestDatabase) {
        let store = store(&database).await;
        fill(&database, &[monday() - TimeDelta::days(1)]).await;
        store.clock().set(monday() - TimeDelta::milliseconds(1));
        let old = [Engine::new(&database, &store).await, Engine::new(&database, &store).await];
        for engine in &old {
            assert_eq!(engine.sweep().await.won, 0);
        }
        drop(old);
        store.clock().set(monday());
        let new = Engine::new(&database, &store).await;
        assert_eq!(new.look().await.enqueued, ORGS as u64);
        assert_eq!(sends(&database).await, each(&["2026-W28"]));
    }

    /// A timer fired a few milliseconds early, ran, and fired again for the same minute.
    async fn a_timer_that_is_early_does_nothing_and_the_next_one_everything(database: TestDatabase) {
        let store = store(&database).await;
        fill(&database, &[monday() - TimeDelta::days(1)]).await;
        let engine = Engine::new(&database, &store).await;
        for (millis, won) in [(-5, 0), (-1, 0), (0, ORGS as u64), (1, 0), (59_999, 0), (60_000, 0)] {
            store.clock().set(monday() + TimeDelta::milliseconds(millis));
            assert_eq!(engine.look().await.won + engine.sweep().await.won, won, "at {millis} ms");
        }
    }

    /// A daily job was missed because its loop drifted past the minute.
    async fn a_tick_that_is_late_finds_the_slot(database: TestDatabase) {
        let store = store(&database).await;
        fill(&database, &[monday() - TimeDelta::days(1)]).await;
        let engine = Engine::new(&database, &store).await;
        store.clock().set(monday() - TimeDelta::seconds(1));
        engine.sweep().await;
        store.clock().set(monday() + TimeDelta::seconds(61));
        assert_eq!(engine.look().await.enqueued, ORGS as u64);
    }

    /// The host was off over the weekend; on Monday both the missed trigger and the regular one fired.
    async fn a_boot_before_the_slot_catches_up_nothing_that_the_slot_sends_again(database: TestDatabase) {
        let store = store(&database).await;
        fill(&database, &[monday() - TimeDelta::days(9), monday() - TimeDelta::days(2)]).await;
        store.clock().set(monday() - TimeDelta::weeks(1));
        Engine::new(&database, &store).await.sweep().await;
        store.clock().set(monday() - TimeDelta::minutes(1));
        let booted = Engine::new(&database, &store).await;
        assert_eq!(booted.sweep().await.won, 0);
        store.clock().set(monday());
        assert_eq!(booted.look().await.won, ORGS as u64);
        assert_eq!(booted.sweep().await.won, 0);
        assert_eq!(sends(&database).await, each(&["2026-W27", "2026-W28"]));
    }

    /// Four nodes whose clocks differed by a minute fired one minute's job four times. On PostgreSQL nobody's
    /// own clock decides (`flow::clocks`); here each of four has a clock of its own, as the processes of a host
    /// with SQLite would if its time jumped.
    async fn nodes_whose_clocks_differ_by_a_minute_send_a_slot_once(database: TestDatabase) {
        let first = store(&database).await;
        fill(&database, &[monday() - TimeDelta::days(1)]).await;
        let mut nodes = Vec::new();
        for seconds in [-60, -20, 20, 60] {
            let store = open(&database, Clock::manual(monday() + TimeDelta::seconds(seconds - 120)));
            nodes.push((Engine::new(&database, &store).await, store));
        }
        let mut enqueued = 0;
        for _ in 0..24 {
            let ticks = nodes.iter().map(|(engine, _)| async { engine.look().await.enqueued + engine.sweep().await.enqueued });
            enqueued += join_all(ticks).await.into_iter().sum::<u64>();
            for (_, store) in &nodes {
                store.clock().advance(TimeDelta::seconds(10));
            }
        }
        assert_eq!((enqueued, sends(&database).await), (ORGS as u64, each(&["2026-W28"])));
        first.clock().set(monday() + TimeDelta::minutes(5));
        Engine::new(&database, &first).await.deliver(&database).await;
        assert_eq!(mails(&database).len(), ORGS);
    }

    /// Two runs of one process overlapped, and both passed the look that came before the write.
    async fn ticks_that_overlap_in_one_process_share_the_work(database: TestDatabase) {
        let store = store(&database).await;
        fill(&database, &[monday() - TimeDelta::days(1)]).await;
        let engine = Arc::new(Engine::new(&database, &store).await);
        let barrier = Arc::new(Barrier::new(8));
        let ticks: Vec<_> = (0..8)
            .map(|_| {
                let (engine, barrier) = (Arc::clone(&engine), Arc::clone(&barrier));
                tokio::spawn(async move {
                    barrier.wait().await;
                    engine.sweep().await
                })
            })
            .collect();
        let (mut won, mut messages) = (0, 0);
        for tick in ticks {
            let report = tick.await.expect("no panic");
            (won, messages) = (won + report.won, messages + report.messages);
        }
        assert_eq!((won, messages), (ORGS as u64, ORGS as u64));
        engine.deliver(&database).await;
        assert_eq!(mails(&database).len(), ORGS);
    }

    /// One slot was run twice, the cadence advanced twice, and the week after was silent.
    async fn a_slot_that_was_worked_twice_leaves_the_next_one_alone(database: TestDatabase) {
        let store = store(&database).await;
        fill(&database, &[monday() - TimeDelta::days(1), monday() + TimeDelta::days(1)]).await;
        let engine = Engine::new(&database, &store).await;
        for _ in 0..3 {
            engine.sweep().await;
            store.clock().advance(TimeDelta::minutes(1));
        }
        store.clock().set(monday() + TimeDelta::weeks(1));
        assert_eq!(engine.look().await.won, ORGS as u64);
        assert_eq!(sends(&database).await, each(&["2026-W28", "2026-W29"]));
    }

    /// Old timestamps were enqueued again by a second leader. Here a replica comes back from a stale moment,
    /// and an org that had its W29 is not given W28 again.
    async fn a_clock_that_goes_back_repeats_no_week(database: TestDatabase) {
        let store = store(&database).await;
        fill(&database, &[monday() - TimeDelta::days(1), monday() + TimeDelta::days(1)]).await;
        let engine = Engine::new(&database, &store).await;
        for days in [0, 7, 0, 7, 1, 8] {
            store.clock().set(monday() + TimeDelta::days(days));
            engine.sweep().await;
            engine.look().await;
        }
        assert_eq!(sends(&database).await, each(&["2026-W28", "2026-W29"]));
    }

    /// Users with nothing to send were worked again every half hour. A skipped week is a row here, so that
    /// the costly queries run once for each org.
    async fn a_thousand_empty_orgs_are_gathered_a_thousand_times_in_ten_ticks(database: TestDatabase) {
        let store = store(&database).await;
        let mut rows = Rows::new(&database);
        for n in 0..1_000 {
            let org = format!("org-{n:04}");
            rows.org(&org, &org, "Europe/Berlin").admin(&org, &org, &format!("a@{org}.example"));
        }
        rows.write(&database).await;
        let engine = Engine::new(&database, &store).await;
        let (mut gathered, mut skipped) = (0, 0);
        for _ in 0..10 {
            for report in [engine.sweep().await, engine.look().await, engine.rescue().await] {
                (gathered, skipped) = (gathered + report.won, skipped + report.skipped);
            }
            store.clock().advance(TimeDelta::minutes(30));
        }
        assert_eq!((gathered, skipped), (1_000, 1_000));
    }
}
