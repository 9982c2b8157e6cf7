//! People who left by a link in a mail and came back in the application.

use chrono::{DateTime, TimeDelta, Utc};
use digestd::domain::address::Address;
use digestd::domain::ids::OrgId;

use crate::support::backend::TestDatabase;
use crate::support::engine::{Engine, Rows};
use crate::support::fixtures::{monday, store};
use crate::support::world::numbers;

/// The same directory, read as an application's own database.
const OPERATOR: &str = r#"
[source]
recipients = "SELECT o.id AS org_id, o.name AS org_name, o.timezone, a.id AS user_id, a.email, a.opted_in_at FROM orgs AS o JOIN admins AS a ON a.org_id = o.id"
[[section]]
name = "news"
title = "News"
kind = "rows"
sql = "SELECT org_id, title FROM activity WHERE org_id = ANY(:org_ids)"
"#;

async fn ends_of(database: &TestDatabase, lines: &str) -> Vec<String> {
    let store = store(database).await;
    let last_week = monday() - TimeDelta::days(2);
    let mut rows = Rows::new(database);
    rows.org("acme", "Acme", "Europe/Berlin").activity("1", "acme", "News", last_week);
    let hours = |hours: i64| monday() - TimeDelta::hours(hours);
    // All of them left 48 hours before the slot, the last one from everything.
    let opted_in: [(&str, Option<DateTime<Utc>>); 4] =
        [("back", Some(hours(24))), ("before", Some(hours(72))), ("never", None), ("all", Some(hours(24)))];
    for (name, at) in opted_in {
        rows.admin(name, "acme", &format!("{name}@acme.example"));
        if let Some(at) = at {
            let at = rows.time(at);
            rows.statement(&format!("UPDATE {{}}admins SET opted_in_at = {at} WHERE id = '{name}'"));
        }
    }
    rows.write(database).await;
    store.clock().set(hours(48));
    let acme = OrgId::parse("acme").expect("an id");
    for (name, org) in [("back", Some(&acme)), ("before", Some(&acme)), ("never", Some(&acme)), ("all", None)]
    {
        let address = Address::parse(&format!("{name}@acme.example")).expect("an address");
        store.opt_out(&address, org, "link").await.expect("an opt-out");
    }
    store.clock().set(monday());
    assert_eq!(Engine::with(database, &store, lines).await.sweep().await.enqueued, 1);
    let query = "SELECT user_id || ' ' || state || ' ' || COALESCE(reason, ''), COUNT(*) FROM {}outbox GROUP BY 1 ORDER BY 1";
    numbers(database, query).await.into_iter().map(|(text, _)| text.trim().to_owned()).collect()
}

const ENDS: [&str; 4] =
    ["all suppressed opted_out", "back pending", "before suppressed opted_out", "never suppressed opted_out"];

both_databases! {
    /// Whoever had once followed the link in a mail got nothing any more, also after they had asked for the
    /// digest again in the application: nobody compared the two moments.
    async fn a_later_opt_in_in_the_directory_counts_more_than_a_link(database: TestDatabase) {
        assert_eq!(ends_of(&database, "").await, ENDS);
    }

    /// The same with an application's own database, whose query tells `opted_in_at`.
    async fn a_later_opt_in_in_an_application_counts_more_than_a_link(database: TestDatabase) {
        let (url, postgres) = (&database.url, database.url.starts_with("postgres"));
        let lines = OPERATOR.replace("[source]", &format!("[source]\nurl = \"{url}\""));
        let lines = if postgres {
            lines.replace("orgs AS o", "digestd.orgs AS o").replace("JOIN admins", "JOIN digestd.admins").replace("FROM activity", "FROM digestd.activity")
        } else {
            lines.replace("= ANY(:org_ids)", "IN (:org_ids)")
        };
        assert_eq!(ends_of(&database, &lines).await, ENDS);
    }
}
