//! Three applications that have nothing in common, each adapted by configuration alone.

use super::{App, gather, told};
use crate::support::backend::Kind;
use digestd::domain::candidate::Candidate;
use digestd::source::{Member, Source};

async fn candidates(source: &Source, zones: Option<&[&str]>) -> Vec<String> {
    let zones: Option<Vec<String>> = zones.map(|zones| zones.iter().map(|zone| (*zone).to_owned()).collect());
    let mut listing = source.candidates(zones.as_deref()).await.expect("a list");
    let mut found = Vec::new();
    while let Some(page) = listing.next_page(2).await.expect("a page") {
        assert!((1..=2).contains(&page.len()));
        found.extend(page);
    }
    found.iter().map(told_candidate).collect()
}

fn told_candidate(candidate: &Candidate) -> String {
    let schedule = match &candidate.schedule {
        Ok(schedule) => {
            format!("{} {} {}", schedule.weekday, schedule.time.format("%H:%M"), schedule.zone.name())
        }
        Err(error) => format!("no zone {}", error.name),
    };
    let date = |at: Option<chrono::DateTime<chrono::Utc>>| {
        at.map_or("-".to_owned(), |at| at.date_naive().to_string())
    };
    format!("{} {schedule} {} {}", candidate.org, date(candidate.created_at), date(candidate.opted_in_at))
}

/// A help desk: bigint keys, accounts that are deleted softly, a table of roles, timestamps without zone.
const DESK: &str = "
    CREATE TABLE accounts (id bigint PRIMARY KEY, title text, tz text, created timestamp, deleted timestamp);
    CREATE TABLE people (id bigint PRIMARY KEY, mail text, full_name text, lang text);
    CREATE TABLE roles (account_id bigint, person_id bigint, role text, digest boolean);
    CREATE TABLE tickets (
        id bigint PRIMARY KEY, account_id bigint, subject text, severity {severity}, opened timestamp,
        assignee bigint, minutes numeric
    );
    INSERT INTO accounts VALUES
        (9, 'Nine & Co', 'america/new_york', '2026-01-05 10:00:00', NULL),
        (10, 'Ten', NULL, '2026-01-06 10:00:00', NULL),
        (11, 'Gone', 'Europe/Paris', '2026-01-06 10:00:00', '2026-05-01 00:00:00'),
        (12, 'Lost', 'Atlantis/City', '2026-01-06 10:00:00', NULL);
    INSERT INTO people VALUES
        (1, 'Ana@Nine.example', 'Ana', 'de'), (2, 'bo@nine.example', NULL, NULL), (3, 'cy@ten.example', 'Cy', 'en'),
        (4, 'not an address', 'Di', 'en');
    INSERT INTO roles VALUES
        (9, 1, 'owner', TRUE), (9, 2, 'admin', TRUE), (9, 3, 'member', TRUE), (9, 4, 'admin', FALSE),
        (10, 3, 'admin', TRUE), (10, 4, 'owner', TRUE), (11, 1, 'owner', TRUE), (12, 1, 'owner', TRUE);
    INSERT INTO tickets VALUES
        (1, 9, 'Printer', 'low', '2026-06-30 09:15:00', 1, 12.25),
        (2, 9, 'Server', 'high', '2026-06-30 10:00:00', 2, 30.5),
        (3, 9, 'Network', 'high', '2026-07-01 11:30:00', 1, 1.25),
        (4, 9, 'Before', 'high', '2026-06-25 11:30:00', 1, 7),
        (5, 9, 'After', 'high', '2026-07-06 00:00:00', 1, 7),
        (6, 10, 'Coffee', 'low', '2026-07-01 23:59:59', NULL, NULL);";

const DESK_CONFIG: &str = r#"
[source]
recipients = """
SELECT a.id AS org_id, a.title AS org_name, p.id AS user_id, p.mail AS email, p.full_name AS name,
       p.lang AS locale, a.tz AS timezone, a.created AS org_created_at
FROM accounts a
JOIN roles r ON r.account_id = a.id
JOIN people p ON p.id = r.person_id
WHERE a.deleted IS NULL AND r.role IN ('owner', 'admin') AND r.digest
"""
[[section]]
name = "tickets"
title = "Tickets"
kind = "figures"
sql = """
SELECT account_id AS org_id, 'opened' AS label,
       count(CASE WHEN opened >= :from THEN 1 END) AS value,
       count(CASE WHEN opened < :previous_to THEN 1 END) AS previous
FROM tickets
WHERE account_id = ANY(:org_ids) AND opened >= :previous_from AND opened < :to
GROUP BY account_id
UNION ALL
SELECT account_id, 'minutes', sum(minutes), NULL
FROM tickets
WHERE account_id = ANY(:org_ids) AND opened >= :from AND opened < :to AND minutes IS NOT NULL
GROUP BY account_id
ORDER BY label DESC
"""
[[section]]
name = "urgent"
title = "Urgent"
limit = 1
sql = """
SELECT account_id AS org_id, subject AS title, opened AS "when", severity -- :to is a parameter elsewhere
FROM tickets
WHERE account_id = ANY(:org_ids) AND opened >= :from AND opened < :to AND severity = 'high'
ORDER BY opened DESC;
"""
[[section]]
name = "yours"
title = "Yours"
personal = true
sql = """
SELECT account_id AS org_id, assignee AS user_id, subject AS title
FROM tickets
WHERE account_id = ANY(:org_ids) AND assignee IS NOT NULL AND opened >= :from AND opened < :to
ORDER BY id
"""
"#;

const DESK_TOLD: &str = r#"10 Ten
  to 3 cy@ten.example Cy en
  to 4 broken not an address Di en
  Tickets: opened 1 (0)
9 Nine & Co
  to 1 ana@nine.example Ana de
  to 2 bo@nine.example - -
  Tickets: opened 3 (1)
  Tickets: minutes 44 (-)
  Urgent of 2: {"severity":"high","title":"Network","when":"2026-07-01 11:30:00"}
  Yours for 1 of 2: {"title":"Printer"}
  Yours for 1 of 2: {"title":"Network"}
  Yours for 2 of 1: {"title":"Server"}
"#;

/// A planner: uuid keys, preferences in JSON, members in a list, instants with a zone.
const PLANNER: &str = "
    CREATE TABLE teams (uid {uuid} PRIMARY KEY, name text, settings {json}, members {list});
    CREATE TABLE users (uid {uuid} PRIMARY KEY, email text, prefs {json}, since {instant});
    CREATE TABLE tasks (team {uuid}, title text, done {instant}, points numeric(30,10), tags {list});
    INSERT INTO teams VALUES
        ('00000000-0000-4000-8000-00000000000a', 'Alpha', '{\"tz\": \"Asia/Tokyo\"}', '{a_b}'),
        ('00000000-0000-4000-8000-00000000000b', 'Beta', '{}', '{b}');
    INSERT INTO users VALUES
        ('10000000-0000-4000-8000-000000000001', 'ann@example.org', '{\"notify\": {\"weekly\": true}, \"lang\": \"ar\"}', '2026-03-01T00:00:00+00:00'),
        ('10000000-0000-4000-8000-000000000002', 'ben@example.org', '{\"notify\": {\"weekly\": false}}', '2026-03-01T00:00:00+00:00'),
        ('10000000-0000-4000-8000-000000000003', 'cat@example.org', '{\"notify\": {\"weekly\": true}}', '2026-07-06T12:00:00+00:00');
    INSERT INTO tasks VALUES
        ('00000000-0000-4000-8000-00000000000a', 'Ship it', '2026-06-30T12:00:00+00:00', {points}, '{tags}'),
        ('00000000-0000-4000-8000-00000000000b', 'Other', '2026-06-30T12:00:00+00:00', 1, '{tags}');";

const PLANNER_CONFIG: &str = r#"
[source]
recipients = """
SELECT t.uid AS org_id, t.name AS org_name, u.uid AS user_id, u.email, {lang} AS locale,
       {tz} AS timezone, u.since AS opted_in_at
FROM teams t {join}
WHERE {weekly}
"""
[[section]]
name = "done"
title = "Done in :week_key"
sql = """
SELECT team AS org_id, title, points, tags, :week_key AS week FROM tasks
WHERE team = ANY(:org_ids) AND done >= {from} AND done < {to}
"""
"#;

/// A shop: keys that are words, a weekday and a time of its own, no zone, a query with a CTE and grouping.
const SHOP: &str = "
    CREATE TABLE shop (slug varchar(40) PRIMARY KEY, label text, digest_day text, digest_time {time}, paused integer);
    CREATE TABLE staff (shop varchar(40), login text, contact text, boss integer);
    CREATE TABLE sales (shop varchar(40), region text, cents bigint, day date);
    INSERT INTO shop VALUES ('bakery-1', 'Bakery', 'fri', '16:30:00', 0), ('café', 'Café “Süd”', NULL, NULL, 0),
        ('closed', 'Closed', 'mon', '08:00:00', 1), ('odd', 'Odd', 'someday', '08:00:00', 0);
    INSERT INTO staff VALUES ('bakery-1', 'eve', 'eve@bakery.example', 1), ('bakery-1', 'eve', 'eve@bakery.example', 1),
        ('café', 'fay', 'fay@café.example', 1), ('closed', 'gus', 'gus@closed.example', 1), ('odd', 'hal', 'hal@odd.example', 1),
        ('bakery-1', 'ivo', 'ivo@bakery.example', 0);
    INSERT INTO sales VALUES ('bakery-1', 'North', 1250, '2026-06-29'), ('bakery-1', 'North', 50, '2026-07-05'),
        ('bakery-1', 'South', 7, '2026-06-30'), ('bakery-1', 'South', 100, '2026-06-22'), ('bakery-1', 'South', 1, '2026-07-06');";

const SHOP_CONFIG: &str = r#"
[schedule]
timezone = "Europe/Berlin"
weekday = "tuesday"
time = "07:15"
[source]
recipients = """
WITH bosses AS (SELECT shop, login, contact FROM staff WHERE boss = 1)
SELECT s.slug AS org_id, s.label AS org_name, b.login AS user_id, b.contact AS email,
       s.digest_day AS weekday, s.digest_time AS time
FROM shop s JOIN bosses b ON b.shop = s.slug
WHERE s.paused = 0
"""
[[section]]
name = "sales"
title = "Sales"
kind = "figures"
limit = 2
sql = """
WITH days AS (
    SELECT shop, region, cents, CASE WHEN day >= {from_day} THEN 1 ELSE 0 END AS current
    FROM sales WHERE shop = ANY(:org_ids) AND day >= {previous_day} AND day < {to_day}
)
SELECT shop AS org_id, region AS label, sum(cents * current) AS value, sum(cents * (1 - current)) AS previous
FROM days GROUP BY shop, region ORDER BY value DESC
"""
"#;

fn spelt(text: &str, kind: Kind, words: &[(&str, &str, &str)]) -> String {
    words.iter().fold(text.to_owned(), |text, (word, postgres, sqlite)| {
        text.replace(word, if kind == Kind::Postgres { postgres } else { sqlite })
    })
}

both_databases! {
    async fn a_help_desk_with_roles_and_soft_deletion_is_adapted(database: TestDatabase) {
        let words = [("{severity}", "severity", "text")];
        let script = spelt(DESK, database.kind, &words);
        let script = match database.kind {
            Kind::Postgres => format!("CREATE TYPE severity AS ENUM ('low', 'high'); {script}"),
            Kind::Sqlite => script,
        };
        let app = App::new(database, &script, DESK_CONFIG).await;
        let source = app.checked().await;
        assert_eq!(
            candidates(&source, None).await,
            [
                "10 Mon 08:00 UTC 2026-01-06 -",
                "12 no zone Atlantis/City 2026-01-06 -",
                "9 Mon 08:00 America/New_York 2026-01-05 -"
            ]
        );
        assert_eq!(candidates(&source, Some(&["America/New_York"])).await.len(), 1);
        let digests = gather(&source, &["10", "11", "9"]).await.expect("digests");
        assert_eq!(told(&digests).replace("44.00", "44"), DESK_TOLD);
        let members = source.members(&super::orgs(&["9", "11"]).iter().collect::<Vec<_>>()).await.expect("members");
        let named = |member: &Member| {
            format!("{}/{} {}", member.org, member.user, member.address.as_deref().unwrap_or("no address"))
        };
        let members: Vec<String> = members.iter().map(named).collect();
        assert_eq!(members, ["9/1 ana@nine.example", "9/2 bo@nine.example"]);
        assert_eq!(source.schedule(&super::orgs(&["11"])[0]).await.expect("an answer"), None);
        assert_eq!(source.schedule(&super::orgs(&["no-number"])[0]).await.expect("an answer"), None);
        assert!(source.schedule(&super::orgs(&["12"])[0]).await.expect("an answer").is_some_and(|s| s.is_err()));
    }

    async fn a_planner_with_uuids_and_preferences_in_json_is_adapted(database: TestDatabase) {
        let words = [
            ("{uuid}", "uuid", "text"),
            ("{json}", "jsonb", "text"),
            ("{instant}", "timestamptz", "text"),
            ("members {list}", "members uuid[]", "members text"),
            ("{list}", "text[]", "text"),
            ("{points}", "12345678901234567890.0123456789", "'12345678901234567890.0123456789 '"),
            ("{tags}", "{x,\"y z\"}", "[\"x\",\"y z\"]"),
            ("{a_b}", "{10000000-0000-4000-8000-000000000001,10000000-0000-4000-8000-000000000002,10000000-0000-4000-8000-000000000003}",
                "[\"10000000-0000-4000-8000-000000000001\",\"10000000-0000-4000-8000-000000000002\",\"10000000-0000-4000-8000-000000000003\"]"),
            ("'{b}'", "'{10000000-0000-4000-8000-000000000002}'", "'[\"10000000-0000-4000-8000-000000000002\"]'"),
            ("numeric(30,10)", "numeric(30,10)", "text"),
            ("{lang}", "u.prefs->>'lang'", "u.prefs->>'$.lang'"),
            ("{tz}", "t.settings->>'tz'", "t.settings->>'$.tz'"),
            ("{join}", "JOIN users u ON u.uid = ANY(t.members)", "JOIN users u ON u.uid IN (SELECT value FROM json_each(t.members))"),
            ("{weekly}", "(u.prefs#>>'{notify,weekly}')::boolean", "u.prefs->'$.notify.weekly' = 'true'"),
            ("{from}", ":from", "strftime('%Y-%m-%dT%H:%M:%S+00:00', :from)"),
            ("{to}", ":to", "strftime('%Y-%m-%dT%H:%M:%S+00:00', :to)"),
        ];
        let kind = database.kind;
        let app = App::new(database, &spelt(PLANNER, kind, &words), &spelt(PLANNER_CONFIG, kind, &words)).await;
        let source = app.checked().await;
        assert_eq!(
            candidates(&source, None).await,
            ["00000000-0000-4000-8000-00000000000a Mon 08:00 Asia/Tokyo - 2026-03-01"]
        );
        let alpha = "00000000-0000-4000-8000-00000000000a";
        let digests = gather(&source, &[alpha]).await.expect("digests");
        let tags = if kind == Kind::Postgres { r#"["x","y z"]"# } else { r#""[\"x\",\"y z\"]""# };
        let points = if kind == Kind::Postgres { "" } else { " " };
        // Whoever opted in after the slot waits for next week.
        assert_eq!(
            told(&digests),
            format!(
                "{alpha} Alpha\n  to 10000000-0000-4000-8000-000000000001 ann@example.org - ar\n  \
                 Done in :week_key of 1: {{\"points\":\"12345678901234567890.0123456789{points}\",\"tags\":{tags},\
                 \"title\":\"Ship it\",\"week\":\"2026-W28\"}}\n"
            )
        );
    }

    async fn a_shop_with_words_for_keys_and_its_own_days_is_adapted(database: TestDatabase) {
        let words = [
            ("{time}", "time", "text"),
            ("{from_day}", "(:from AT TIME ZONE 'Europe/Berlin')::date", "date(:from, '+2 hours')"),
            ("{previous_day}", "(:previous_from AT TIME ZONE 'Europe/Berlin')::date", "date(:previous_from, '+2 hours')"),
            ("{to_day}", "(:to AT TIME ZONE 'Europe/Berlin')::date", "date(:to, '+2 hours')"),
        ];
        let kind = database.kind;
        let app = App::new(database, &spelt(SHOP, kind, &words), &spelt(SHOP_CONFIG, kind, &words)).await;
        let source = app.checked().await;
        assert_eq!(
            candidates(&source, None).await,
            [
                "bakery-1 Fri 16:30 Europe/Berlin - -",
                "café Tue 07:15 Europe/Berlin - -",
                "odd Tue 08:00 Europe/Berlin - -"
            ]
        );
        let digests = gather(&source, &["bakery-1", "café"]).await.expect("digests");
        assert_eq!(
            told(&digests),
            "bakery-1 Bakery\n  to eve eve@bakery.example - -\n  Sales: North 1300 (0)\n  Sales: South 7 (100)\n\
             café Café “Süd”\n  to fay fay@xn--caf-dma.example - -\n"
        );
    }
}
