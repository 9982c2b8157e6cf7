//! The built-in directory: orgs, their admins, and what happened in them.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::types::Json;

use super::dialect::At;
use super::{Store, StoreError, run};

/// An org that may be due, as the table has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CandidateRow {
    /// The org.
    pub org: String,
    /// Its zone, unchecked.
    pub timezone: String,
    /// Its own weekday, unchecked.
    pub weekday: Option<String>,
    /// Its own time, unchecked.
    pub local_time: Option<String>,
    /// When it was created, if known.
    pub created_at: Option<DateTime<Utc>>,
    /// When its first admin of today opted in; `None` if that is not known of one of them.
    pub opted_in_at: Option<DateTime<Utc>>,
}

/// An org as the table has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrgRow {
    /// The org.
    pub org: String,
    /// Its name.
    pub name: String,
    /// Its zone, unchecked.
    pub timezone: String,
    /// The language of admins who have none of their own.
    pub locale: Option<String>,
}

/// An opted-in, active admin as the table has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminRow {
    /// The org.
    pub org: String,
    /// The admin.
    pub user: String,
    /// The address, unchecked.
    pub email: String,
    /// The name.
    pub name: Option<String>,
    /// The admin's own language.
    pub locale: Option<String>,
    /// When the admin opted in, if known.
    pub opted_in_at: Option<DateTime<Utc>>,
}

/// How often one kind of thing happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FigureRow {
    /// The org.
    pub org: String,
    /// The kind of activity.
    pub kind: String,
    /// In the period.
    pub current: i64,
    /// In the period before.
    pub previous: i64,
}

/// One thing that happened, among the first of its org.
#[derive(Debug, Clone, PartialEq)]
pub struct ItemRow {
    /// The org.
    pub org: String,
    /// What happened.
    pub title: String,
    /// Where to look at it.
    pub url: Option<String>,
    /// Who did it.
    pub actor: Option<String>,
    /// When.
    pub occurred_at: DateTime<Utc>,
    /// How many there are in the org's period in all.
    pub total: i64,
}

/// Half-open spans of time for the built-in queries.
#[derive(Debug, Clone, Copy)]
pub struct Spans {
    /// The first instant of the period before.
    pub previous_from: DateTime<Utc>,
    /// The first instant of the period, which ends the one before.
    pub from: DateTime<Utc>,
    /// The first instant after the period.
    pub to: DateTime<Utc>,
}

#[derive(Serialize)]
struct OrgKey<'a> {
    org: &'a str,
}

#[derive(Serialize)]
struct ZoneKey {
    zone: String,
}

/// Keyset pages by primary key; `$2` means all zones. A join with GROUP BY would read the admins of every
/// org before or after the page each time, whichever database it is.
const CANDIDATES: &str = "
    SELECT
        o.id,
        o.timezone,
        o.weekday,
        o.local_time,
        o.created_at,
        (
            SELECT CASE WHEN COUNT(*) = COUNT(a.opted_in_at) THEN MIN(a.opted_in_at) END
            FROM digestd.admins AS a
            WHERE a.org_id = o.id AND a.active AND a.weekly_digest
        )
    FROM digestd.orgs AS o
    WHERE o.id > $1
      AND o.active
      AND EXISTS (
          SELECT 1
          FROM digestd.admins AS a
          -- Said once more, so that a merge of the two indexes begins at the page too.
          WHERE a.org_id = o.id AND a.org_id > $1 AND a.active AND a.weekly_digest
      )
      -- Zones are known by their name in any case, as elsewhere.
      AND ($2 OR LOWER(TRIM(o.timezone)) IN (SELECT u.value->>'zone' FROM {each}($3) AS u))
    ORDER BY o.id
    LIMIT $4";

const SCHEDULE: &str = "
    SELECT o.timezone, o.weekday, o.local_time
    FROM digestd.orgs AS o
    WHERE o.id = $1 AND o.active";

const ORGS: &str = "
    SELECT o.id, o.name, o.timezone, o.locale
    FROM digestd.orgs AS o
    JOIN {each}($1) AS u ON o.id = u.value->>'org'
    WHERE o.active";

const ADMINS: &str = "
    SELECT a.org_id, a.id, a.email, a.name, a.locale, a.opted_in_at
    FROM digestd.admins AS a
    JOIN {each}($1) AS u ON a.org_id = u.value->>'org'
    WHERE a.active AND a.weekly_digest
    ORDER BY a.org_id, a.id";

const FIGURES: &str = "
    SELECT
        a.org_id,
        a.kind,
        SUM(CASE WHEN a.occurred_at >= $3 THEN 1 ELSE 0 END),
        SUM(CASE WHEN a.occurred_at < $3 THEN 1 ELSE 0 END)
    FROM digestd.activity AS a
    JOIN {each}($1) AS u ON a.org_id = u.value->>'org'
    WHERE a.occurred_at >= $2 AND a.occurred_at < $4
    GROUP BY a.org_id, a.kind
    ORDER BY a.org_id, 3 DESC, a.kind";

const ITEMS: &str = "
    SELECT org_id, title, url, actor, occurred_at, total
    FROM (
        SELECT
            a.org_id, a.title, a.url, a.actor, a.occurred_at,
            COUNT(*) OVER (PARTITION BY a.org_id) AS total,
            ROW_NUMBER() OVER (
                PARTITION BY a.org_id
                ORDER BY COALESCE(a.value, 0) DESC, a.occurred_at DESC, a.id
            ) AS place
        FROM digestd.activity AS a
        JOIN {each}($1) AS u ON a.org_id = u.value->>'org'
        WHERE a.occurred_at >= $2 AND a.occurred_at < $3
    ) AS ranked
    WHERE place <= $4
    ORDER BY org_id, place";

const MEMBERS: &str = "
    SELECT a.org_id, a.id, a.email
    FROM digestd.admins AS a
    JOIN {each}($1) AS u ON a.org_id = u.value->>'org'
    JOIN digestd.orgs AS o ON o.id = a.org_id
    WHERE a.active AND a.weekly_digest AND o.active";

impl Store {
    /// One page of the orgs that have an opted-in admin, by id, after `after`.
    pub async fn candidates_page(
        &self,
        after: &str,
        zones: Option<&[String]>,
        limit: u32,
    ) -> Result<Vec<CandidateRow>, StoreError> {
        type Row = (String, String, Option<String>, Option<String>, Option<At>, Option<At>);
        let lower = |zone: &String| ZoneKey { zone: zone.to_ascii_lowercase() };
        let keys: Vec<ZoneKey> = zones.unwrap_or_default().iter().map(lower).collect();
        let rows: Vec<Row> = run!(self, read, db => {
            sqlx::query_as(self.sql(CANDIDATES))
                .bind(after)
                .bind(zones.is_none())
                .bind(Json(&keys))
                .bind(i64::from(limit))
                .fetch_all(db)
                .await
        })
        .map_err(StoreError::doing("reading candidates"))?;
        Ok(rows
            .into_iter()
            .map(|(org, timezone, weekday, local_time, created_at, opted_in_at)| CandidateRow {
                org,
                timezone,
                weekday,
                local_time,
                created_at: created_at.map(|at| at.0),
                opted_in_at: opted_in_at.map(|at| at.0),
            })
            .collect())
    }

    /// An active org's zone, and its own weekday and time where it has them; unchecked.
    pub async fn org_schedule(
        &self,
        org: &str,
    ) -> Result<Option<(String, Option<String>, Option<String>)>, StoreError> {
        run!(self, read, db => {
            sqlx::query_as(self.sql(SCHEDULE)).bind(org).fetch_optional(db).await
        })
        .map_err(StoreError::doing("reading an org's schedule"))
    }

    /// The active ones among these orgs.
    pub async fn org_rows(&self, orgs: &[&str]) -> Result<Vec<OrgRow>, StoreError> {
        let rows: Vec<(String, String, String, Option<String>)> = run!(self, read, db => {
            sqlx::query_as(self.sql(ORGS)).bind(Json(org_keys(orgs))).fetch_all(db).await
        })
        .map_err(StoreError::doing("reading orgs"))?;
        Ok(rows
            .into_iter()
            .map(|(org, name, timezone, locale)| OrgRow { org, name, timezone, locale })
            .collect())
    }

    /// The opted-in, active admins of these orgs.
    pub async fn admin_rows(&self, orgs: &[&str]) -> Result<Vec<AdminRow>, StoreError> {
        type Row = (String, String, String, Option<String>, Option<String>, Option<At>);
        let rows: Vec<Row> = run!(self, read, db => {
            sqlx::query_as(self.sql(ADMINS)).bind(Json(org_keys(orgs))).fetch_all(db).await
        })
        .map_err(StoreError::doing("reading admins"))?;
        Ok(rows
            .into_iter()
            .map(|(org, user, email, name, locale, at)| AdminRow {
                org,
                user,
                email,
                name,
                locale,
                opted_in_at: at.map(|at| at.0),
            })
            .collect())
    }

    /// Counts by kind for these orgs, the larger first.
    pub async fn figure_rows(&self, orgs: &[&str], spans: Spans) -> Result<Vec<FigureRow>, StoreError> {
        let rows: Vec<(String, String, i64, i64)> = run!(self, read, db => {
            sqlx::query_as(self.sql(FIGURES))
                .bind(Json(org_keys(orgs)))
                .bind(At(spans.previous_from))
                .bind(At(spans.from))
                .bind(At(spans.to))
                .fetch_all(db)
                .await
        })
        .map_err(StoreError::doing("counting activity"))?;
        Ok(rows
            .into_iter()
            .map(|(org, kind, current, previous)| FigureRow { org, kind, current, previous })
            .collect())
    }

    /// The first `limit` items of each of these orgs: by value, then the newest.
    pub async fn item_rows(
        &self,
        orgs: &[&str],
        spans: Spans,
        limit: u32,
    ) -> Result<Vec<ItemRow>, StoreError> {
        type Row = (String, String, Option<String>, Option<String>, At, i64);
        let rows: Vec<Row> = run!(self, read, db => {
            sqlx::query_as(self.sql(ITEMS))
                .bind(Json(org_keys(orgs)))
                .bind(At(spans.from))
                .bind(At(spans.to))
                .bind(i64::from(limit))
                .fetch_all(db)
                .await
        })
        .map_err(StoreError::doing("reading activity"))?;
        Ok(rows
            .into_iter()
            .map(|(org, title, url, actor, at, total)| ItemRow {
                org,
                title,
                url,
                actor,
                occurred_at: at.0,
                total,
            })
            .collect())
    }

    /// Who of these orgs is an active, opted-in admin right now: org, admin and address.
    pub async fn members(&self, orgs: &[&str]) -> Result<Vec<(String, String, String)>, StoreError> {
        run!(self, read, db => {
            sqlx::query_as(self.sql(MEMBERS)).bind(Json(org_keys(orgs))).fetch_all(db).await
        })
        .map_err(StoreError::doing("reading members"))
    }
}

fn org_keys<'a>(orgs: &[&'a str]) -> Vec<OrgKey<'a>> {
    orgs.iter().map(|org| OrgKey { org }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::connect::Target;
    use super::super::migrate::MigrateMode;
    use super::super::{ConnectOptions, audit};
    use super::*;
    use crate::clock::Clock;

    // SQLite joined admins to orgs the wrong way round and sorted what was left of a million of them for every
    // page of five hundred: a plan, an audit or a sweep over them would have taken hours. Seen by running
    // `digestd plan` on a million orgs. What it means to do is asked here; how much it reads follows.
    #[tokio::test]
    async fn a_page_of_orgs_and_its_sends_are_searched_and_never_scanned() {
        let folder = tempfile::tempdir().unwrap();
        let options = ConnectOptions {
            target: Target::Sqlite(folder.path().join("digestd.db")),
            pool: 1,
            schema: "digestd".to_owned(),
            pgbouncer: false,
            clock: Clock::Database,
        };
        let store = Store::open(&options).unwrap();
        store.migrate(MigrateMode::Auto).await.unwrap();
        let Store::Sqlite(inner) = &store else { unreachable!("SQLite was asked for") };
        for text in [CANDIDATES, audit::STATES, MEMBERS] {
            let sql = format!("EXPLAIN QUERY PLAN {}", store.sql(text).0);
            let steps: Vec<(i64, i64, i64, String)> =
                sqlx::query_as(sqlx::AssertSqlSafe(sql)).fetch_all(&inner.read).await.unwrap();
            // The bound JSON array, `u`, is all that is read from one end to the other.
            let costly = |step: &str| {
                step.contains("TEMP B-TREE") || step.starts_with("SCAN") && !step.starts_with("SCAN u ")
            };
            let steps: Vec<String> = steps.into_iter().map(|step| step.3).collect();
            assert!(!steps.iter().any(|step| costly(step)), "{text}\n{steps:#?}");
        }
    }
}
