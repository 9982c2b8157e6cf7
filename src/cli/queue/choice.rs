//! Which messages a person means.

use chrono::TimeDelta;
use clap::Args;

use crate::cli::failure::Misuse;
use crate::domain::address::Address;
use crate::domain::ids::MessageId;
use crate::domain::message::MessageState;
use crate::domain::week::SendKey;
use crate::store::Store;
use crate::store::queue::{QueueFilter, Queued};

/// Messages read at once.
const PAGE: u32 = 500;

/// What narrows a choice of messages.
#[derive(Debug, Args)]
pub(super) struct Filter {
    /// In this state; may be given several times
    #[arg(long, value_name = "STATE", value_parser = parse_state)]
    state: Vec<MessageState>,
    /// Of this org
    #[arg(long, value_name = "ID")]
    org: Option<String>,
    /// Of this week, such as 2026-W28, or with a resend's own key
    #[arg(long, value_name = "WEEK", value_parser = parse_key)]
    week: Option<SendKey>,
    /// To this address
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    to: Option<Address>,
    /// Enqueued at least so long ago, such as 90m, 12h or 2d
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    older: Option<TimeDelta>,
}

/// Messages by their ids, or by a filter.
#[derive(Debug, Args)]
pub(super) struct Which {
    /// The messages
    #[arg(value_name = "ID")]
    ids: Vec<i64>,
    #[command(flatten)]
    filter: Filter,
    /// Do it to all that the filter finds, and not only count them
    #[arg(long)]
    yes: bool,
    /// Print what was done as JSON
    #[arg(long)]
    pub(super) json: bool,
}

impl Filter {
    pub(super) fn to_query(&self) -> QueueFilter {
        QueueFilter {
            states: self.state.clone(),
            org: self.org.clone(),
            week: self.week.as_ref().map(ToString::to_string),
            to: self.to.as_ref().map(|to| to.normal().to_owned()),
            older: self.older,
        }
    }

    fn is_empty(&self) -> bool {
        self.state.is_empty()
            && self.org.is_none()
            && self.week.is_none()
            && self.to.is_none()
            && self.older.is_none()
    }
}

impl Which {
    /// The messages meant, of those in `states`; `None` where they were only to be counted.
    pub(super) async fn find(
        &self,
        store: &Store,
        states: &[MessageState],
    ) -> anyhow::Result<Result<Vec<MessageId>, usize>> {
        if !self.ids.is_empty() {
            if !self.filter.is_empty() {
                return Err(Misuse::new("name messages by id or by a filter, not by both").into());
            }
            return Ok(Ok(self.ids.iter().copied().map(MessageId).collect()));
        }
        if self.filter.is_empty() {
            return Err(Misuse::new("no message is named")
                .hint("give ids, or a filter such as --week 2026-W28")
                .into());
        }
        let mut query = self.filter.to_query();
        query.states = if query.states.is_empty() {
            states.to_vec()
        } else {
            query.states.into_iter().filter(|state| states.contains(state)).collect()
        };
        if query.states.is_empty() {
            let fitting: Vec<&str> = states.iter().map(|state| state.as_str()).collect();
            return Err(Misuse::new(format!("this is for messages that are {}", fitting.join(", "))).into());
        }
        let found: Vec<MessageId> = all(store, &query, u32::MAX).await?.iter().map(|m| m.id).collect();
        Ok(if self.yes { Ok(found) } else { Err(found.len()) })
    }
}

/// Every message that a filter lets through, up to a limit.
pub(super) async fn all(store: &Store, query: &QueueFilter, limit: u32) -> anyhow::Result<Vec<Queued>> {
    let mut found: Vec<Queued> = Vec::new();
    loop {
        let left = limit - u32::try_from(found.len()).unwrap_or(limit).min(limit);
        let asked = left.min(PAGE);
        if asked == 0 {
            return Ok(found);
        }
        let page = store.list_queue(query, found.last().map(|message| message.id), asked).await?;
        let complete = page.len() < asked as usize;
        found.extend(page);
        if complete {
            return Ok(found);
        }
    }
}

fn parse_state(text: &str) -> Result<MessageState, String> {
    MessageState::parse(text).ok_or_else(|| {
        let known: Vec<&str> = MessageState::ALL.iter().map(|state| state.as_str()).collect();
        format!("the states are {}", known.join(", "))
    })
}

fn parse_key(text: &str) -> Result<SendKey, String> {
    SendKey::parse(text).map_err(|error| error.to_string())
}

fn parse_address(text: &str) -> Result<Address, String> {
    Address::parse(text).map_err(|error| error.to_string())
}

fn parse_span(text: &str) -> Result<TimeDelta, String> {
    let wrong = || "write a number and s, m, h or d, such as 90m".to_owned();
    let unit = text.chars().last().ok_or_else(wrong)?;
    let count: i64 = text[..text.len() - unit.len_utf8()].parse().map_err(|_| wrong())?;
    let span = match unit {
        's' => TimeDelta::try_seconds(count),
        'm' => TimeDelta::try_minutes(count),
        'h' => TimeDelta::try_hours(count),
        'd' => TimeDelta::try_days(count),
        _ => None,
    };
    // Longer spans than a life can end outside the database's calendar.
    span.filter(|span| *span >= TimeDelta::zero() && *span <= TimeDelta::days(36_500)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_a_number_and_a_unit() {
        assert_eq!(parse_span("90m"), Ok(TimeDelta::minutes(90)));
        assert_eq!(parse_span("2d"), Ok(TimeDelta::days(2)));
        for wrong in ["", "m", "2", "-1h", "2w", "9223372036854775807d", "2ü"] {
            assert!(parse_span(wrong).is_err(), "{wrong}");
        }
    }
}
