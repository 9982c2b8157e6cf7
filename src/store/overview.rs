//! A week at a glance, and the search for an org: what the admin pages show beyond what commands print.

use chrono::{DateTime, TimeDelta, Utc};

use super::{Store, StoreError, run};
use crate::domain::ids::MessageId;
use crate::domain::send::SendState;
use crate::domain::week::WeekKey;

/// How many of a week's sends in one zone are in a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneCount {
    /// The zone, as the sends have it.
    pub timezone: String,
    /// The state.
    pub state: SendState,
    /// How many.
    pub count: u64,
}

/// The messages of a week that came to a final state within one hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HourCount {
    /// The hour's beginning.
    pub at: DateTime<Utc>,
    /// Accepted by the relay.
    pub accepted: u64,
    /// Ended otherwise.
    pub other: u64,
}

/// Which orgs. Every part narrows the choice.
#[derive(Debug, Clone, Default)]
pub struct OrgFilter {
    /// A part of the id or of the name, in any case.
    pub text: Option<String>,
    /// The week's send is in this state.
    pub state: Option<SendState>,
}

/// An org, and its send of a week.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundOrg {
    /// The org.
    pub org: String,
    /// Its name, where the built-in directory has it.
    pub name: Option<String>,
    /// Its zone.
    pub timezone: String,
    /// Whether it is to get digests at all.
    pub active: bool,
    /// The state of its send, if there is one.
    pub state: Option<String>,
    /// Why that ended without messages.
    pub reason: Option<String>,
    /// Messages enqueued.
    pub messages: i32,
}

const ZONES: &str = "
    SELECT timezone, state, COUNT(*)
    FROM digestd.sends
    WHERE week_key = $1
    GROUP BY timezone, state
    ORDER BY timezone, state";

/// Whole hours since the epoch; both databases cut the quotient of two integers.
const HOURS: &str = "
    SELECT
        CAST({span}o.settled_at - {epoch}{end} AS BIGINT) / 3600000 AS hour,
        SUM(CASE WHEN o.state = 'accepted' THEN 1 ELSE 0 END),
        COUNT(*)
    FROM digestd.sends AS s
    JOIN digestd.outbox AS o ON o.send_id = s.id
    WHERE s.week_key = $1 AND o.settled_at IS NOT NULL
    GROUP BY 1
    ORDER BY 1";

/// Keyset pages by id. A name is looked for as it is written, too: not every database knows the small
/// letters of every script.
const DIRECTORY: &str = "
    SELECT o.id, o.name, o.timezone, o.active, s.state, s.reason, COALESCE(s.messages, 0)
    FROM digestd.orgs AS o
    LEFT JOIN digestd.sends AS s ON s.org_id = o.id AND s.week_key = $1
    WHERE o.id > $2
      AND (CAST($3 AS TEXT) IS NULL
        OR LOWER(o.id) LIKE $3 ESCAPE '!'
        OR LOWER(o.name) LIKE $3 ESCAPE '!'
        OR o.name LIKE $4 ESCAPE '!')
      AND (CAST($5 AS TEXT) IS NULL OR s.state = $5)
    ORDER BY o.id
    LIMIT $6";

/// Where orgs live in the application's database: those that have a send in the week.
const SENT: &str = "
    SELECT s.org_id, CAST(NULL AS TEXT), s.timezone, TRUE, s.state, s.reason, s.messages
    FROM digestd.sends AS s
    WHERE s.week_key = $1
      AND s.org_id > $2
      AND (CAST($3 AS TEXT) IS NULL OR LOWER(s.org_id) LIKE $3 ESCAPE '!' OR s.org_id LIKE $4 ESCAPE '!')
      AND (CAST($5 AS TEXT) IS NULL OR s.state = $5)
    ORDER BY s.org_id
    LIMIT $6";

const BODY: &str = "
    SELECT bytes
    FROM digestd.bodies
    WHERE message_id = $1";

impl Store {
    /// A week's sends by zone and state.
    pub async fn week_zones(&self, week: WeekKey) -> Result<Vec<ZoneCount>, StoreError> {
        let rows: Vec<(String, String, i64)> = run!(self, read, db => {
            sqlx::query_as(self.sql(ZONES)).bind(week.to_string()).fetch_all(db).await
        })
        .map_err(StoreError::doing("counting a week by zone"))?;
        rows.into_iter()
            .map(|(timezone, state, count)| {
                let known = SendState::parse(&state);
                let state = known.ok_or_else(|| StoreError::inconsistent("sends", "state", &state))?;
                Ok(ZoneCount { timezone, state, count: unsigned(count) })
            })
            .collect()
    }

    /// A week's settled messages by hour, in the order of time; hours without any are not among them.
    /// Reads each of the week's messages: for a person who asks.
    pub async fn week_hours(&self, week: WeekKey) -> Result<Vec<HourCount>, StoreError> {
        let rows: Vec<(i64, i64, i64)> = run!(self, read, db => {
            sqlx::query_as(self.sql(HOURS)).bind(week.to_string()).fetch_all(db).await
        })
        .map_err(StoreError::doing("counting a week by hour"))?;
        Ok(rows
            .into_iter()
            .map(|(hour, accepted, all)| HourCount {
                at: DateTime::UNIX_EPOCH + TimeDelta::try_hours(hour).unwrap_or_default(),
                accepted: unsigned(accepted),
                other: unsigned(all - accepted),
            })
            .collect())
    }

    /// One page of the orgs that a filter lets through, by id, after `after`: of the built-in `directory`,
    /// or else of those that have a send in the week.
    pub async fn find_orgs(
        &self,
        directory: bool,
        week: WeekKey,
        filter: &OrgFilter,
        after: &str,
        limit: u32,
    ) -> Result<Vec<FoundOrg>, StoreError> {
        type Row = (String, Option<String>, String, bool, Option<String>, Option<String>, i32);
        let text = if directory { DIRECTORY } else { SENT };
        let rows: Vec<Row> = run!(self, read, db => {
            sqlx::query_as(self.sql(text))
                .bind(week.to_string())
                .bind(after)
                .bind(filter.text.as_ref().map(|text| pattern(&text.to_lowercase())))
                .bind(filter.text.as_ref().map(|text| pattern(text)))
                .bind(filter.state.map(SendState::as_str))
                .bind(i64::from(limit))
                .fetch_all(db)
                .await
        })
        .map_err(StoreError::doing("looking for orgs"))?;
        Ok(rows
            .into_iter()
            .map(|(org, name, timezone, active, state, reason, messages)| FoundOrg {
                org,
                name,
                timezone,
                active,
                state,
                reason,
                messages,
            })
            .collect())
    }

    /// A message's bytes, while they are kept.
    pub async fn message_bytes(&self, id: MessageId) -> Result<Option<Vec<u8>>, StoreError> {
        run!(self, read, db => {
            sqlx::query_scalar(self.sql(BODY)).bind(id.0).fetch_optional(db).await
        })
        .map_err(StoreError::doing("reading a message's bytes"))
    }
}

/// A text anywhere, with nothing in it that means more than itself.
fn pattern(text: &str) -> String {
    let mut pattern = String::from("%");
    for c in text.chars() {
        if matches!(c, '%' | '_' | '!') {
            pattern.push('!');
        }
        pattern.push(c);
    }
    pattern.push('%');
    pattern
}

fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}
