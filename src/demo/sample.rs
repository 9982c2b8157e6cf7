//! Made-up organisations for the demo. The same every time, but for the dates.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Map, Value, json};

use crate::store::import::{ImportRow, ImportTable};
use crate::store::{Store, StoreError};

/// Zones that share their offset all year, so that Monday 08:00 comes to all of them at once.
const ZONES: [&str; 6] =
    ["Europe/Berlin", "Europe/Paris", "Europe/Madrid", "Europe/Rome", "Europe/Warsaw", "Europe/Vienna"];
const FIRST: [&str; 12] = [
    "Amber", "Birch", "Cobalt", "Dune", "Ember", "Fjord", "Granite", "Harbour", "Indigo", "Juniper", "Krill",
    "Lumen",
];
const SECOND: [&str; 10] =
    ["Bakery", "Robotics", "Studio", "Logistics", "Energy", "Press", "Clinic", "Brewery", "Optics", "Games"];
const PEOPLE: [&str; 8] = ["Ada", "Bruno", "Chiara", "Dmitri", "Elif", "Farid", "Greta", "Hiroko"];
const KINDS: [(&str, &[&str]); 4] = [
    (
        "deployments",
        &["Checkout rewritten", "Search index rebuilt", "New pricing page", "Login with passkeys"],
    ),
    ("incidents", &["Payment latency above 2 s", "Queue backlog after the release"]),
    ("sign-ups", &["Team of 12 from Lisbon", "First customer in Osaka", "Trial turned into a plan"]),
    ("comments", &["On the roadmap for autumn", "On the March invoice", "On the onboarding mail"]),
];

/// The sample's size: what the demo waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Organisations.
    pub orgs: usize,
    /// Admins who want their digest.
    pub recipients: usize,
    /// Admins who do not.
    pub opted_out: usize,
}

/// Fills the built-in directory with `orgs` organisations of one to four admins each, and with what
/// happened in them in the two weeks before `monday`.
pub async fn fill(store: &Store, orgs: usize, monday: DateTime<Utc>) -> Result<Sample, StoreError> {
    let mut sample = Sample { orgs, recipients: 0, opted_out: 0 };
    let (mut org_rows, mut admin_rows, mut activity_rows) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..orgs {
        org_rows.push(row(json!({
            "id": org_id(n),
            "name": format!("{} {}", FIRST[n % FIRST.len()], SECOND[n / FIRST.len() % SECOND.len()]),
            "timezone": ZONES[n % ZONES.len()],
        })));
        for admin in 0..=(n % 4) {
            admin_rows.push(admin_row(n, admin, true));
            sample.recipients += 1;
        }
        if n % 5 == 0 {
            admin_rows.push(admin_row(n, 9, false));
            sample.opted_out += 1;
        }
        activity_rows.extend((0..12 + n % 9).map(|k| activity_row(n, k, monday)));
    }
    let mut import = store.begin_import().await?;
    import.write(ImportTable::Orgs, &org_rows).await?;
    import.write(ImportTable::Admins, &admin_rows).await?;
    for chunk in activity_rows.chunks(500) {
        import.write(ImportTable::Activity, chunk).await?;
    }
    import.commit().await?;
    Ok(sample)
}

fn org_id(n: usize) -> String {
    format!("org-{n:03}")
}

fn admin_row(org: usize, admin: usize, wants: bool) -> ImportRow {
    let name = PEOPLE[(org + admin) % PEOPLE.len()];
    row(json!({
        "id": format!("{}-{admin}", org_id(org)),
        "org_id": org_id(org),
        "email": format!("{}@{}.example", name.to_lowercase(), org_id(org)),
        "name": name,
        "weekly_digest": wants,
    }))
}

fn activity_row(org: usize, k: usize, monday: DateTime<Utc>) -> ImportRow {
    let (kind, titles) = KINDS[(org + k * k) % KINDS.len()];
    // Two in three lie in the week before, the others in the week before that.
    let hours = 2 + (org * 37 + k * 29) % 150 + if k % 3 == 2 { 168 } else { 0 };
    let at = monday - TimeDelta::hours(i64::try_from(hours).unwrap_or(24));
    row(json!({
        "id": format!("{}-{k}", org_id(org)),
        "org_id": org_id(org),
        "kind": kind,
        "title": titles[(org + k) % titles.len()],
        "occurred_at": at.timestamp_millis(),
        "actor": PEOPLE[(org + k) % PEOPLE.len()],
        "url": format!("https://app.example.com/{}/{kind}/{k}", org_id(org)),
        "value": (org * 7 + k * 13) % 90,
    }))
}

fn row(value: Value) -> ImportRow {
    match value {
        Value::Object(columns) => ImportRow(columns),
        _ => ImportRow(Map::new()),
    }
}
