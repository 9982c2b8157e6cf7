//! A query that takes too long ends in time, and costs nobody but its own org.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use digestd::app;
use digestd::domain::due::DueRules;
use digestd::domain::ids::ReplicaId;
use digestd::domain::schedule::PeriodKind;
use digestd::domain::token::KeyRing;
use digestd::metrics::Metrics;
use digestd::progress::Progress;
use digestd::source::SourceError;
use digestd::tick::sweep::Scope;
use digestd::tick::{Limits, Tick};
use tokio_util::sync::CancellationToken;

use super::{App, gather, told};
use crate::support::backend::{Kind, TestDatabase};
use crate::support::fixtures::{store, terms};

const TABLES: &str = "
    CREATE TABLE orgs (id bigint PRIMARY KEY, name text, slow bigint);
    INSERT INTO orgs VALUES (1, 'One', 0), (2, 'Two', 1), (3, 'Three', 0);";

/// A section that takes forever for org 2.
fn config(kind: Kind, on_error: &str) -> String {
    let forever = match kind {
        Kind::Postgres => "CASE WHEN slow = 1 THEN pg_sleep(60)::text ELSE 'quick' END",
        Kind::Sqlite => {
            "CASE WHEN slow = 1 THEN (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) \
             SELECT count(*) FROM n) ELSE 'quick' END"
        }
    };
    format!(
        "[source]\nrecipients = \"SELECT id AS org_id, name AS org_name, id AS user_id, 'a@b.example' AS email FROM orgs\"\n\
         [[section]]\nname = \"s\"\ntitle = \"S\"\ntimeout = \"300ms\"\non_error = \"{on_error}\"\n\
         sql = \"SELECT id AS org_id, {forever} AS title FROM orgs WHERE id = ANY(:org_ids)\""
    )
}

both_databases! {
    async fn a_section_that_sleeps_ends_at_its_timeout_and_leaves_the_others_alone(database: TestDatabase) {
        let toml = config(database.kind, "fail");
        let app = App::new(database, TABLES, &toml).await;
        let source = app.checked().await;
        let started = Instant::now();
        for asked in [["1", "2", "3"].as_slice(), &["2"]] {
            let error = gather(&source, asked).await.expect_err("too slow");
            assert!(matches!(error, SourceError::TimedOut { .. }), "{error:?}");
        }
        assert!(started.elapsed() < Duration::from_secs(20), "the timeout has not ended the query");
        for alone in ["1", "3"] {
            let digests = gather(&source, &[alone]).await.expect("a digest");
            assert!(told(&digests).contains("S of 1: {\"title\":\"quick\"}"));
        }
    }

    async fn a_section_that_may_be_left_out_is_missed_by_its_own_org_alone(database: TestDatabase) {
        let toml = config(database.kind, "omit_with_note");
        let app = App::new(database, TABLES, &toml).await;
        let source = app.checked().await;
        gather(&source, &["1", "2", "3"]).await.expect_err("the batch is taken apart");
        let left_out = gather(&source, &["2"]).await.expect("a digest");
        assert!(told(&left_out).contains("S: omitted"));
        assert!(!left_out[0].is_empty(), "what is not known was taken for nothing");
        assert!(told(&gather(&source, &["1"]).await.expect("a digest")).contains("quick"));
    }

    async fn a_sweep_mails_every_org_but_the_one_whose_query_sleeps(database: TestDatabase) {
        let toml = format!("[schedule]\ntimezone = \"Europe/Berlin\"\n{}", config(database.kind, "fail"));
        let kind = database.kind;
        let app = App::new(database, TABLES, &toml).await;
        let state = match kind {
            Kind::Sqlite => TestDatabase::sqlite(),
            Kind::Postgres => TestDatabase::postgres().await,
        };
        let store = store(&state).await;
        let keys = KeyRing::new(&["a key of more than thirty-two characters".into()]).expect("a key");
        let tick = Tick {
            store: store.clone(),
            source: app.checked().await,
            drafter: Arc::new(app::drafter_of(&app.config, keys).expect("templates")),
            terms: terms(ReplicaId::random()),
            rules: DueRules { catch_up: TimeDelta::hours(36), not_before: None, period: PeriodKind::PreviousWeek },
            fallback: app.config.schedule.default.clone(),
            limits: Limits {
                claim_batch: 200,
                max_attempts: 5,
                retry_delay: TimeDelta::minutes(1),
                gather_timeout: Duration::from_mins(1),
                max_age: TimeDelta::hours(48),
                send_empty: false,
            },
            metrics: Metrics::new(),
            gathering: tokio::sync::Mutex::default(),
        };
        let pulse = Progress::new().watch("tick", Duration::from_mins(1));
        let report = tick.sweep(Scope::Everything, &pulse, &CancellationToken::new()).await.expect("a sweep");
        assert_eq!((report.candidates, report.won, report.enqueued, report.postponed), (3, 3, 2, 1), "{report:?}");
        let again = tick.sweep(Scope::Everything, &pulse, &CancellationToken::new()).await.expect("a sweep");
        assert_eq!((again.won, again.enqueued), (0, 0), "{again:?}");
    }
}
