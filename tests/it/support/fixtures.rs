//! Small worlds for tests: a store with a manual clock, due orgs, drafts.

use chrono::{DateTime, TimeDelta, Utc};
use digestd::cleanup::Cleanup;
use digestd::cleanup::retention::Keep;
use digestd::clock::Clock;
use digestd::domain::address::Address;
use digestd::domain::due::DueRules;
use digestd::domain::fingerprint::Fingerprint;
use digestd::domain::ids::{ClaimId, OrgId, ReplicaId, UserId};
use digestd::domain::message::{Disposition, Draft, DraftContent, Fence, Finished, MessageUid};
use digestd::domain::schedule::{PeriodKind, WeeklySchedule};
use digestd::domain::send::{Claim, DueOrg};
use digestd::domain::zone::Zone;
use digestd::ledger::Ledger;
use digestd::metrics::Metrics;
use digestd::source::Source;
use digestd::source::builtin::BuiltIn;
use digestd::store::connect::Target;
use digestd::store::migrate::MigrateMode;
use digestd::store::outbox::LeaseTerms;
use digestd::store::sends::ClaimTerms;
use digestd::store::{ConnectOptions, Store};

use super::backend::{Kind, TestDatabase};
use super::world::execute;

/// Monday 2026-07-06 08:00 in Berlin: the slot of 2026-W28 that most tests are about.
pub fn monday() -> DateTime<Utc> {
    "2026-07-06T06:00:00Z".parse().expect("a time")
}

/// Opens a store without touching its schema.
pub fn open(database: &TestDatabase, clock: Clock) -> Store {
    open_with_pool(database, clock, 8)
}

/// Opens a store with this many connections.
pub fn open_with_pool(database: &TestDatabase, clock: Clock, pool: u32) -> Store {
    let target = match database.url.strip_prefix("sqlite:") {
        Some(path) => Target::Sqlite(path.into()),
        None => Target::Postgres(database.url.clone().into()),
    };
    let options = ConnectOptions { target, pool, schema: "digestd".to_owned(), pgbouncer: false, clock };
    Store::open(&options).expect("a URL of ours")
}

/// A migrated store whose clock stands at [`monday`].
pub async fn store(database: &TestDatabase) -> Store {
    let store = open(database, Clock::manual(monday()));
    store.migrate(MigrateMode::Auto).await.expect("a fresh schema");
    store
}

/// Terms with a lease of two minutes and a window of 36 hours.
pub fn terms(replica: ReplicaId) -> ClaimTerms {
    ClaimTerms {
        replica,
        lease: TimeDelta::minutes(2),
        catch_up: TimeDelta::hours(36),
        give_up: TimeDelta::hours(24),
    }
}

/// Leases of one minute, eight attempts.
pub fn lease_terms(replica: ReplicaId) -> LeaseTerms {
    LeaseTerms { replica, lease: std::time::Duration::from_mins(1), max_attempts: 8 }
}

/// An org due at the Berlin slot that opened last.
pub fn due_org(name: &str, now: DateTime<Utc>) -> DueOrg {
    let schedule = berlin();
    let slot = schedule.latest_slot(now);
    let period = PeriodKind::PreviousWeek.of(&schedule, slot.week);
    DueOrg { org: OrgId::parse(name).expect("an id"), slot, period }
}

/// `count` due orgs, `org-0000` and so on.
pub fn due_orgs(count: usize, now: DateTime<Utc>) -> Vec<DueOrg> {
    (0..count).map(|n| due_org(&format!("org-{n:04}"), now)).collect()
}

/// Puts orgs into the built-in directory, each with one opted-in admin: id, zone, and further columns of
/// `orgs` as SQL, such as `weekday = 'sunday'`.
pub async fn directory(database: &TestDatabase, orgs: &[(&str, &str, &str)]) {
    let prefix = if database.kind == Kind::Postgres { "digestd." } else { "" };
    let statements = orgs.iter().map(|(id, zone, more)| {
        let change = match *more {
            "" => String::new(),
            more => format!("UPDATE {prefix}orgs SET {more} WHERE id = '{id}';"),
        };
        format!(
            "INSERT INTO {prefix}orgs (id, name, timezone) VALUES ('{id}', 'Org {id}', '{zone}');
             INSERT INTO {prefix}admins (id, org_id, email) VALUES ('{id}-ann', '{id}', 'ann@{id}.example');
             {change}"
        )
    });
    let script = statements.collect::<String>();
    execute(database, script).await;
}

/// An instant as SQL text for the database's kind.
pub fn instant(database: &TestDatabase, at: DateTime<Utc>) -> String {
    match database.kind {
        Kind::Postgres => format!("'{}'", at.to_rfc3339()),
        Kind::Sqlite => at.timestamp_millis().to_string(),
    }
}

/// The configured schedule of most tests: Monday 08:00 in Berlin.
pub fn berlin() -> WeeklySchedule {
    WeeklySchedule {
        weekday: chrono::Weekday::Mon,
        time: chrono::NaiveTime::from_hms_opt(8, 0, 0).expect("a time"),
        zone: Zone::parse("Europe/Berlin").expect("a zone"),
    }
}

/// The built-in directory as a source.
pub fn source(store: &Store) -> Source {
    let schedule = berlin();
    Source::BuiltIn(BuiltIn::new(store.clone(), schedule.weekday, schedule.time))
}

/// Housekeeping for an installation that has been there since the week before [`monday`].
pub fn cleanup(store: &Store) -> Cleanup {
    Cleanup {
        store: store.clone(),
        source: source(store),
        rules: rules(),
        fallback: berlin(),
        late_alarm: TimeDelta::hours(2),
        count_every: std::time::Duration::from_mins(15),
        keep: Keep {
            bodies: TimeDelta::days(7),
            attempts: TimeDelta::days(90),
            sends: TimeDelta::days(35),
            replicas: TimeDelta::days(7),
        },
        write_back: None,
        metrics: Metrics::new(),
    }
}

/// The relay whose state the ledger looks at.
pub const RELAY: &str = "relay.example:587";

/// A ledger over the built-in directory.
pub fn ledger(store: &Store) -> Ledger {
    Ledger {
        store: store.clone(),
        source: source(store),
        rules: rules(),
        fallback: berlin(),
        relay: RELAY.to_owned(),
        max_attempts: 5,
    }
}

/// A window of 36 hours, for an installation that has been there since the week before [`monday`].
pub fn rules() -> DueRules {
    DueRules {
        catch_up: TimeDelta::hours(36),
        not_before: Some(monday() - TimeDelta::days(5)),
        period: PeriodKind::PreviousWeek,
    }
}

/// A draft with a small body.
pub fn draft(claim: &Claim, address: &str) -> Draft {
    let to = Address::parse(address).expect("an address");
    let uid = MessageUid::derive(&claim.org, claim.key, to.normal());
    Draft {
        user: UserId::parse(address).expect("an id"),
        org_name: format!("The {}", claim.org),
        address: to.normal().to_owned(),
        content: DraftContent::Message {
            fingerprint: Fingerprint::derive(to.normal(), "digest", &format!("{} {}", claim.org, claim.key)),
            bytes: format!("X-Digestd-Id: {uid}\r\n\r\nhello\r\n").into_bytes(),
            to,
        },
        uid,
    }
}

/// A fresh claim identity.
pub fn claim_id() -> ClaimId {
    ClaimId::random()
}

/// Puts leased messages back untried, not to be leased again before `after`.
pub async fn give_back(store: &Store, fences: &[Fence], after: TimeDelta) {
    let results: Vec<_> = fences
        .iter()
        .map(|fence| Finished {
            fence: *fence,
            disposition: Disposition::Retry { after, charge: false },
            phase: "lease",
            note: "given back untried".to_owned(),
            guard: None,
        })
        .collect();
    let back = store.record_results(&results, ReplicaId::random()).await.expect("given back");
    assert_eq!(back.len(), fences.len(), "each was leased");
}
