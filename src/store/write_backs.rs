//! Choices that have still to be written to the application's database.
//!
//! A choice is stored with its own row first; that an application's database is away keeps nobody from
//! unsubscribing. Here it waits for as long as it takes. A later choice takes an earlier one's place.

use chrono::{DateTime, Utc};

use super::dialect::At;
use super::{Store, StoreError, run};
use crate::domain::address::Address;
use crate::domain::ids::{OrgId, UserId};

/// One of them, taken for a while: whoever takes it and dies is followed by another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingChoice {
    reference: String,
    /// Rises with each choice, so that a note of an earlier one's success does not end a later one.
    turn: i64,
    /// Whose digest.
    pub org: OrgId,
    /// Who has chosen.
    pub user: UserId,
    /// Their address.
    pub address: Address,
    /// Whether they want none any more.
    pub opted_out: bool,
    /// When they said so.
    pub at: DateTime<Utc>,
    /// How often it has been taken.
    pub attempts: u32,
}

/// Only of those who ever got a digest is the user known. In the order of the key, because several choices
/// of one address may be stored at once.
pub(super) const QUEUE: &str = "
    INSERT INTO digestd.write_backs AS w (ref, org_id, user_id, address, opted_out, said_at, due_at)
    SELECT s.ref, s.org_id, s.user_id, s.address, $4, {now}, {now}
    FROM digestd.subscriptions AS s
    WHERE s.address = $2
        AND ($3 = '' OR s.org_id = $3)
        AND EXISTS (SELECT 1 FROM digestd.installation WHERE write_back)
    ORDER BY s.ref
    ON CONFLICT (ref) DO UPDATE
    SET opted_out = excluded.opted_out,
        said_at = excluded.said_at,
        due_at = excluded.due_at,
        attempts = 0,
        turn = w.turn + 1";

/// The application has said something else since.
pub(super) const OVERRULE: &str = "
    DELETE FROM digestd.write_backs AS w
    WHERE w.opted_out
        AND (w.address, w.org_id, w.said_at) IN (
            SELECT p.address, p.org_id, p.said_at
            FROM digestd.write_backs AS p
            JOIN {each}($1) AS u ON p.address = u.value->>'address' AND p.org_id = u.value->>'org'
            WHERE p.said_at < {epoch} + CAST(u.value->>'at' AS BIGINT){ms}
        )";

/// Half a minute after the first try, then twice as long each time, up to an hour.
const TAKE: &str = "
    UPDATE digestd.write_backs
    SET attempts = attempts + 1,
        due_at = {now} + CASE WHEN attempts < 7 THEN 30000 * (1 << attempts) ELSE 3600000 END{ms}
    WHERE ref IN (
        SELECT ref
        FROM digestd.write_backs
        WHERE due_at <= {now}
        ORDER BY due_at
        LIMIT $2
        {skip_locked}
    )
    RETURNING ref, turn, org_id, user_id, address, opted_out, said_at, attempts";

const DONE: &str = "
    DELETE FROM digestd.write_backs
    WHERE ref = $1 AND turn = $2";

const CONFIGURE: &str = "
    UPDATE digestd.installation
    SET write_back = $1
    WHERE write_back <> $1";

const COUNT: &str = "
    SELECT COUNT(*)
    FROM digestd.write_backs";

type Row = (String, i64, String, String, String, bool, At, i32);

impl Store {
    /// Whether choices are kept for the application from now on, by this and all other processes.
    pub async fn set_write_back(&self, wanted: bool) -> Result<(), StoreError> {
        run!(self, write, db => sqlx::query(self.sql(CONFIGURE)).bind(wanted).execute(db).await.map(drop))
            .map_err(StoreError::doing("storing whether opt-outs are written back"))
    }

    /// Takes some of the choices whose time has come. Each comes again later unless it is
    /// [done](Self::choice_written).
    pub async fn take_choices(&self, limit: u32) -> Result<Vec<WaitingChoice>, StoreError> {
        let rows: Vec<Row> = run!(self, write, db => {
            sqlx::query_as(self.sql(TAKE)).bind(self.given()).bind(i64::from(limit)).fetch_all(db).await
        })
        .map_err(StoreError::doing("taking choices that wait to be written back"))?;
        rows.into_iter().map(waiting).collect()
    }

    /// The application has it. A later choice of the same person's stays.
    pub async fn choice_written(&self, choice: &WaitingChoice) -> Result<(), StoreError> {
        run!(self, write, db => {
            sqlx::query(self.sql(DONE)).bind(&choice.reference).bind(choice.turn).execute(db).await.map(drop)
        })
        .map_err(StoreError::doing("noting that a choice was written back"))
    }

    /// How many choices wait.
    pub async fn waiting_choices(&self) -> Result<u64, StoreError> {
        let count: i64 = run!(self, read, db => sqlx::query_scalar(self.sql(COUNT)).fetch_one(db).await)
            .map_err(StoreError::doing("counting choices that wait to be written back"))?;
        Ok(u64::try_from(count).unwrap_or(0))
    }
}

fn waiting(
    (reference, turn, org, user, address, opted_out, at, attempts): Row,
) -> Result<WaitingChoice, StoreError> {
    let unknown = |column| StoreError::inconsistent("write_backs", column, &reference);
    Ok(WaitingChoice {
        org: OrgId::parse(&org).map_err(|_| unknown("org_id"))?,
        user: UserId::parse(&user).map_err(|_| unknown("user_id"))?,
        address: Address::parse(&address).map_err(|_| unknown("address"))?,
        opted_out,
        at: at.0,
        attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
        turn,
        reference,
    })
}
