//! Messages, changed by hand.

use serde::Serialize;

use super::choice::Which;
use crate::cli::out;
use crate::config::Config;
use crate::domain::ids::MessageId;
use crate::domain::message::MessageState;
use crate::lifecycle::Exit;
use crate::store::Store;
use crate::store::queue::QueueAct;

/// Messages changed in one transaction.
const BATCH: usize = 500;

#[derive(Debug, Serialize)]
struct Change {
    act: &'static str,
    done: Vec<i64>,
    left_alone: Vec<i64>,
}

pub(super) async fn retry(config: &Config, store: &Store, which: &Which) -> anyhow::Result<Exit> {
    let act = QueueAct::Retry { live_for: config.delivery.max_age };
    let states = [MessageState::Failed, MessageState::Expired, MessageState::Cancelled];
    let why = "not failed, expired or cancelled, or older than 6 days, or without its body, or to an address that has \
               opted out or is suppressed, as `digestd explain --to` tells; `digestd resend` makes a digest anew";
    act_on(store, which, act, &states, ("will be tried again", why)).await
}

pub(super) async fn cancel(store: &Store, which: &Which) -> anyhow::Result<Exit> {
    let states = [MessageState::Pending, MessageState::Leased];
    let why = "not waiting: it has left or ended already, or is being handed over just now";
    act_on(store, which, QueueAct::Cancel, &states, ("cancelled", why)).await
}

pub(super) async fn resolve(
    config: &Config,
    store: &Store,
    resend: bool,
    which: &Which,
) -> anyhow::Result<Exit> {
    let states = [MessageState::Uncertain];
    if !resend {
        let told = ("settled as accepted", "not uncertain");
        return act_on(store, which, QueueAct::ResolveAccepted, &states, told).await;
    }
    let act = QueueAct::ResolveResend { max_attempts: config.delivery.max_attempts };
    let why = "not uncertain, or handed over less than 30 minutes ago, or past delivery.max_age or \
               delivery.max_attempts";
    act_on(store, which, act, &states, ("will be sent again", why)).await
}

async fn act_on(
    store: &Store,
    which: &Which,
    act: QueueAct,
    states: &[MessageState],
    (did, why_not): (&str, &str),
) -> anyhow::Result<Exit> {
    let ids = match which.find(store, states).await? {
        Ok(ids) => ids,
        Err(0) => {
            out::note("0 messages found");
            return Ok(Exit::Ok);
        }
        Err(count) => {
            let count = u64::try_from(count).unwrap_or(u64::MAX);
            out::note(format_args!(
                "{} found; nothing was changed\nhint: the same with --yes changes them",
                out::counted(count, "message")
            ));
            return Ok(Exit::ProblemFound);
        }
    };
    let mut done: Vec<MessageId> = Vec::new();
    for batch in ids.chunks(BATCH) {
        done.extend(store.act_on_queue(act, batch).await?);
    }
    done.sort_unstable();
    let left: Vec<i64> = ids.iter().filter(|id| done.binary_search(id).is_err()).map(|id| id.0).collect();
    let counted = |count: usize| out::counted(u64::try_from(count).unwrap_or(u64::MAX), "message");
    if which.json {
        let done = done.iter().map(|id| id.0).collect();
        out::json(&Change { act: act.as_str(), done, left_alone: left.clone() })?;
    } else {
        out::data(format_args!("{} {did}", counted(done.len())));
    }
    if left.is_empty() {
        return Ok(Exit::Ok);
    }
    out::note(format_args!("{} left alone: {why_not}", counted(left.len())));
    Ok(Exit::ProblemFound)
}
