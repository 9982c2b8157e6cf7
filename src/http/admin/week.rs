//! One week at a glance: its sends by state and zone, its messages by state and hour.

use std::collections::BTreeMap;

use axum::response::Response;
use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

use super::desk::{Desk, Reply};
use super::paint::Part;
use crate::domain::message::MessageReason;
use crate::domain::send::{SendReason, SendState};
use crate::domain::week::{SendKey, WeekKey};
use crate::ledger::words::span;
use crate::store::overview::{HourCount, ZoneCount};

/// Bars at most. A week's windows are open for three and a half days at the longest usual catch-up.
const MAX_BARS: usize = 7 * 24;
/// The chart has room for a day, so that a single hour is no wall.
const LEAST_BARS: usize = 24;
/// The chart's height, and the width of a bar with its gap, in the chart's own units.
const HEIGHT: u64 = 100;
const STEP: usize = 10;

#[derive(Debug, Serialize)]
struct Glance {
    week: String,
    previous: Option<String>,
    next: Option<String>,
    closed: bool,
    now: DateTime<Utc>,
    sends: Vec<Counted>,
    messages: Vec<Counted>,
    waiting: Vec<Counted>,
    oldest_due: Option<String>,
    states: Vec<&'static str>,
    zones: Vec<Zone>,
    chart: Option<Chart>,
}

#[derive(Debug, Serialize)]
struct Counted {
    state: &'static str,
    reason: Option<&'static str>,
    count: u64,
}

#[derive(Debug, Serialize)]
struct Zone {
    name: String,
    total: u64,
    counts: Vec<u64>,
}

/// Messages that were settled, hour by hour.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Chart {
    width: usize,
    height: u64,
    most: u64,
    bars: Vec<Bar>,
    /// Hours after the last bar that have messages too.
    more: u64,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Bar {
    x: usize,
    at: DateTime<Utc>,
    accepted: u64,
    other: u64,
    /// From the top: where the bars of the two begin, and how tall they are.
    accepted_y: u64,
    accepted_height: u64,
    other_y: u64,
    other_height: u64,
}

pub(super) async fn show(desk: Desk) -> Response {
    desk.answer(view(&desk)).await
}

async fn view(desk: &Desk) -> Reply {
    let store = desk.store();
    let week = match desk.query.week()? {
        Some(week) => week,
        None => desk.office.ledger.fallback.latest_slot(desk.now).week,
    };
    let key = SendKey::Week(week);
    let sends = store.week_sends(key).await?;
    let messages = store.week_messages(key).await?;
    let stats = store.stats().await?;
    let content = Glance {
        week: week.to_string(),
        previous: neighbour(week.previous(), week),
        next: neighbour(week.next(), week),
        closed: store.is_closed(week).await?,
        now: desk.now,
        sends: sends
            .into_iter()
            .map(|tally| Counted {
                state: tally.state.as_str(),
                reason: tally.reason.map(SendReason::as_str),
                count: tally.count,
            })
            .collect(),
        messages: messages
            .into_iter()
            .map(|tally| Counted {
                state: tally.state.as_str(),
                reason: tally.reason.map(MessageReason::as_str),
                count: tally.count,
            })
            .collect(),
        waiting: stats
            .messages
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(state, count)| Counted { state: state.as_str(), reason: None, count: *count })
            .collect(),
        oldest_due: (stats.oldest_due > TimeDelta::zero()).then(|| span(stats.oldest_due)),
        states: SendState::ALL.iter().map(|state| state.as_str()).collect(),
        zones: zones(store.week_zones(week).await?),
        chart: chart(&store.week_hours(week).await?),
    };
    Ok(desk.page(Part::Week, "week.html", &content))
}

/// The week beside one, unless the calendar ends there.
fn neighbour(week: WeekKey, of: WeekKey) -> Option<String> {
    let text = week.to_string();
    (week != of && WeekKey::parse(&text).is_ok()).then_some(text)
}

/// The larger first.
fn zones(counts: Vec<ZoneCount>) -> Vec<Zone> {
    let mut zones: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for ZoneCount { timezone, state, count } in counts {
        let row = zones.entry(timezone).or_insert_with(|| vec![0; SendState::ALL.len()]);
        let place = SendState::ALL.iter().position(|known| *known == state);
        if let Some(cell) = place.and_then(|place| row.get_mut(place)) {
            *cell += count;
        }
    }
    let mut zones: Vec<Zone> =
        zones.into_iter().map(|(name, counts)| Zone { name, total: counts.iter().sum(), counts }).collect();
    zones.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| a.name.cmp(&b.name)));
    zones
}

/// A bar for every hour from the first to the last, the empty ones too.
fn chart(hours: &[HourCount]) -> Option<Chart> {
    let (first, last) = (hours.first()?.at, hours.last()?.at);
    let known: BTreeMap<DateTime<Utc>, &HourCount> = hours.iter().map(|hour| (hour.at, hour)).collect();
    let span = usize::try_from((last - first).num_hours()).unwrap_or(0) + 1;
    let shown = span.min(MAX_BARS);
    let most = hours.iter().map(|hour| hour.accepted + hour.other).max().unwrap_or(0).max(1);
    let tall = |count: u64| if count == 0 { 0 } else { (count * HEIGHT / most).max(1) };
    let mut at = first;
    let mut bars = Vec::with_capacity(shown);
    for place in 0..shown {
        let (accepted, other) = known.get(&at).map_or((0, 0), |hour| (hour.accepted, hour.other));
        let (accepted_height, other_height) = (tall(accepted), tall(other));
        let accepted_y = HEIGHT.saturating_sub(accepted_height);
        let other_y = accepted_y.saturating_sub(other_height);
        let x = place * STEP;
        bars.push(Bar { x, at, accepted, other, accepted_y, accepted_height, other_y, other_height });
        at += TimeDelta::hours(1);
    }
    let more = hours.iter().filter(|hour| hour.at >= at).map(|hour| hour.accepted + hour.other).sum();
    Some(Chart { width: shown.max(LEAST_BARS) * STEP, height: HEIGHT, most, bars, more })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hour(at: &str, accepted: u64, other: u64) -> HourCount {
        HourCount { at: at.parse().unwrap(), accepted, other }
    }

    #[test]
    fn every_hour_between_the_first_and_the_last_has_a_bar() {
        let chart =
            chart(&[hour("2026-07-06T06:00:00Z", 90, 10), hour("2026-07-06T09:00:00Z", 1, 0)]).unwrap();
        assert_eq!((chart.bars.len(), chart.most, chart.width, chart.more), (4, 100, 240, 0));
        let first = &chart.bars[0];
        assert_eq!((first.accepted_height, first.accepted_y), (90, 10));
        assert_eq!((first.other_height, first.other_y), (10, 0));
        assert_eq!((chart.bars[1].accepted, chart.bars[1].accepted_height), (0, 0));
        // What is there is seen, however little it is.
        assert_eq!(chart.bars[3].accepted_height, 1);
    }

    #[test]
    fn a_chart_is_bounded_and_says_what_it_leaves_out() {
        let hours = [hour("2026-07-06T06:00:00Z", 1, 0), hour("2026-09-06T06:00:00Z", 3, 4)];
        let chart = chart(&hours).unwrap();
        assert_eq!((chart.bars.len(), chart.more), (MAX_BARS, 7));
        assert_eq!(super::chart(&[]), None);
    }

    #[test]
    fn zones_are_listed_by_their_size() {
        let count = |zone: &str, state, count| ZoneCount { timezone: zone.to_owned(), state, count };
        let zones = zones(vec![
            count("Asia/Tokyo", SendState::Enqueued, 2),
            count("Europe/Berlin", SendState::Enqueued, 5),
            count("Europe/Berlin", SendState::Failed, 1),
        ]);
        assert_eq!(zones[0].name, "Europe/Berlin");
        assert_eq!((zones[0].total, zones[0].counts.iter().sum::<u64>()), (6, 6));
    }
}
