//! One SQL text, two dialects.
//!
//! Texts are written with `digestd.` before each table and these words in braces:
//!
//! | word | meaning |
//! |---|---|
//! | `{now}` | the given now (always `$1`), else the database's clock at this very moment |
//! | `{epoch}` | 1970-01-01T00:00:00Z |
//! | `{ms}` | after an integer: that many milliseconds, to add to a time |
//! | `{span}…{end}` | a difference of two times, in milliseconds |
//! | `{each}` | the function that turns a JSON array into rows with a column `value` |
//! | `{for_update_o}` | locks the rows of the table called `o`, in their order |
//! | `{for_update_s}` | the same of the table called `s` |
//! | `{skip_locked}` | locks the rows read, passing over those that somebody else has locked |
//! | `{among}(SELECT …){end_among}` | is one of a few: by the index, however small the table is |
//!
//! Where a partial index is about a state, a condition on that state stands beside `{among}` in a `CASE`: as it is, a
//! plan would read every row of that state. A `CASE` without `ELSE` is null otherwise, and null matches nothing.

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::PgValueFormat;
use sqlx::{Database, Decode, Encode, Postgres, Sqlite, Type};

/// Whose words to use.
#[derive(Debug, Clone, Copy)]
pub(super) enum Dialect<'a> {
    /// PostgreSQL, with the name of our schema.
    Postgres(&'a str),
    /// SQLite.
    Sqlite,
}

/// `{now}` is read at the moment it is needed and not at the transaction's start, because a
/// statement may have waited long for a lock.
const POSTGRES: [(&str, &str); 11] = [
    ("{now}", "COALESCE($1, clock_timestamp())"),
    ("{epoch}", "TIMESTAMPTZ 'epoch'"),
    ("{ms}", " * INTERVAL '1 millisecond'"),
    ("{span}", "(1000 * EXTRACT(EPOCH FROM ("),
    ("{end}", ")))"),
    ("{each}", "jsonb_array_elements"),
    ("{for_update_o}", "FOR UPDATE OF o"),
    ("{for_update_s}", "FOR UPDATE OF s"),
    ("{skip_locked}", "FOR UPDATE SKIP LOCKED"),
    // The planner takes an array for ten rows. For a set of rows, or a LIMIT that is a parameter, it
    // reckons with hundreds and reads the whole table.
    ("{among}", "= ANY (ARRAY"),
    ("{end_among}", ")"),
];

const SQLITE: [(&str, &str); 11] = [
    ("{now}", "COALESCE($1, CAST(unixepoch('subsec') * 1000 AS INTEGER))"),
    ("{epoch}", "0"),
    ("{ms}", ""),
    ("{span}", "("),
    ("{end}", ")"),
    ("{each}", "json_each"),
    ("{for_update_o}", ""),
    ("{for_update_s}", ""),
    ("{skip_locked}", ""),
    ("{among}", "IN "),
    ("{end_among}", ""),
];

/// Spells a text in a dialect.
pub(super) fn expand(text: &str, dialect: Dialect<'_>) -> String {
    let (words, prefix) = match dialect {
        Dialect::Postgres(schema) => (&POSTGRES, format!("\"{schema}\".")),
        Dialect::Sqlite => (&SQLITE, String::new()),
    };
    words.iter().fold(text.replace("digestd.", &prefix), |text, (word, spelt)| text.replace(word, spelt))
}

/// A time as the database keeps it: `TIMESTAMPTZ`, or integer milliseconds on SQLite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At(pub DateTime<Utc>);

/// PostgreSQL counts from 2000-01-01.
const POSTGRES_EPOCH_MS: i64 = 946_684_800_000;

impl At {
    /// A time from milliseconds and the microseconds within. One that the calendar does not reach counts
    /// as its first or last moment: one row of the application's must not make the others unreadable.
    fn within(millis: i64, micros: i64) -> Self {
        let known = DateTime::from_timestamp_millis(millis).map(|at| at + TimeDelta::microseconds(micros));
        let edge = if millis < 0 { DateTime::<Utc>::MIN_UTC } else { DateTime::<Utc>::MAX_UTC };
        Self(known.unwrap_or(edge))
    }
}

impl Type<Postgres> for At {
    fn type_info() -> <Postgres as Database>::TypeInfo {
        <DateTime<Utc> as Type<Postgres>>::type_info()
    }
}

impl Encode<'_, Postgres> for At {
    fn encode_by_ref(&self, buf: &mut <Postgres as Database>::ArgumentBuffer) -> Result<IsNull, BoxDynError> {
        Encode::<Postgres>::encode_by_ref(&self.0, buf)
    }
}

impl Decode<'_, Postgres> for At {
    fn decode(value: <Postgres as Database>::ValueRef<'_>) -> Result<Self, BoxDynError> {
        // Not by way of chrono's own decoding, which panics on `infinity` and on years that it cannot count.
        if value.format() == PgValueFormat::Text {
            return <DateTime<Utc> as Decode<'_, Postgres>>::decode(value).map(Self);
        }
        let micros = <i64 as Decode<'_, Postgres>>::decode(value)?;
        Ok(Self::within(micros.div_euclid(1000).saturating_add(POSTGRES_EPOCH_MS), micros.rem_euclid(1000)))
    }
}

impl Type<Sqlite> for At {
    fn type_info() -> <Sqlite as Database>::TypeInfo {
        <i64 as Type<Sqlite>>::type_info()
    }

    fn compatible(ty: &<Sqlite as Database>::TypeInfo) -> bool {
        <i64 as Type<Sqlite>>::compatible(ty)
    }
}

impl Encode<'_, Sqlite> for At {
    fn encode_by_ref(&self, buf: &mut <Sqlite as Database>::ArgumentBuffer) -> Result<IsNull, BoxDynError> {
        Encode::<Sqlite>::encode_by_ref(&self.0.timestamp_millis(), buf)
    }
}

impl Decode<'_, Sqlite> for At {
    fn decode(value: <Sqlite as Database>::ValueRef<'_>) -> Result<Self, BoxDynError> {
        Ok(Self::within(<i64 as Decode<'_, Sqlite>>::decode(value)?, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_text_is_spelt_for_both_databases() {
        let text = "UPDATE digestd.sends SET lease_until = {now} + $2{ms} {skip_locked}";
        assert_eq!(
            expand(text, Dialect::Postgres("weekly")),
            "UPDATE \"weekly\".sends SET lease_until = COALESCE($1, clock_timestamp()) \
             + $2 * INTERVAL '1 millisecond' FOR UPDATE SKIP LOCKED"
        );
        assert_eq!(
            expand(text, Dialect::Sqlite),
            "UPDATE sends SET lease_until = COALESCE($1, CAST(unixepoch('subsec') * 1000 AS INTEGER)) + $2 "
        );
    }
}
