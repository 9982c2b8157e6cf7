//! A status in words.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use chrono::{DateTime, TimeDelta, Utc};

use super::{Counted, NextSlot, RelayStatus, ReplicaStatus, Status};
use crate::cli::out;
use crate::domain::zone::offset_text;

/// One paragraph for each part, the most urgent first.
pub(super) fn tell(status: &Status) -> String {
    let Status { now, database, schema_version, .. } = status;
    let mut text = format!("{database}, schema version {schema_version}, {}\n", time(*now));
    paragraph(&mut text, "Replicas", replicas(&status.replicas, *now));
    paragraph(&mut text, "Relay", vec![relay(&status.relay)]);
    paragraph(&mut text, "Messages that wait", waiting(status));
    paragraph(&mut text, "Sends", sends(&status.sends));
    if !status.resends.is_empty() {
        paragraph(&mut text, "Resends of the last 7 days", vec![states(&status.resends)]);
    }
    paragraph(&mut text, &format!("Messages of {}", status.week), week(&status.week_messages));
    paragraph(&mut text, "Next slots", status.next_slots.iter().map(slot).collect());
    text.trim_end().to_owned()
}

fn paragraph(text: &mut String, title: &str, lines: Vec<String>) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "\n{title}");
    for line in lines {
        let _ = writeln!(text, "  {line}");
    }
}

fn replicas(replicas: &[ReplicaStatus], now: DateTime<Utc>) -> Vec<String> {
    if replicas.is_empty() {
        return vec!["none is running".to_owned()];
    }
    let wide = replicas.iter().map(|replica| replica.host.chars().count()).max().unwrap_or(0);
    replicas
        .iter()
        .map(|replica| {
            format!(
                "{:wide$}  {:.8}  {}  up {}  seen {} ago  clock {:+} ms",
                replica.host,
                replica.id,
                replica.version,
                span(now - replica.started_at),
                span(now - replica.seen_at),
                replica.clock_offset_ms
            )
        })
        .collect()
}

fn relay(relay: &RelayStatus) -> String {
    let mut text = format!("{}  ", relay.url);
    text.push_str(match (relay.paused, relay.breaker) {
        (true, _) => "paused by an operator",
        (false, "closed") => "working",
        (false, "half_open") => "being tried again",
        (false, _) => "not working",
    });
    if let Some(reason) = relay.reason.as_ref().filter(|_| relay.breaker != "closed") {
        let said = relay.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
        let _ = write!(text, " ({reason}{said})");
    }
    if let Some(until) = relay.open_until.filter(|_| relay.breaker == "open" && !relay.paused) {
        let _ = write!(text, ", next try {}", time(until));
    }
    if relay.rate_factor < 1.0 {
        let _ = write!(text, ", slowed to {:.0} %", relay.rate_factor * 100.0);
    }
    text
}

fn waiting(status: &Status) -> Vec<String> {
    let some: Vec<&Counted> = status.messages.iter().filter(|counted| counted.count > 0).collect();
    let mut lines = vec![if some.is_empty() { "none".to_owned() } else { states(some) }];
    if status.oldest_due_seconds > 0 {
        lines.push(format!(
            "the oldest has been due for {}",
            span(TimeDelta::seconds(status.oldest_due_seconds))
        ));
    }
    if status.messages.iter().any(|counted| counted.state == "uncertain" && counted.count > 0) {
        lines.push("uncertain: may or may not have been accepted; a person decides".to_owned());
    }
    lines
}

fn sends(counted: &[Counted]) -> Vec<String> {
    let mut weeks: BTreeMap<&str, Vec<&Counted>> = BTreeMap::new();
    for counted in counted {
        weeks.entry(counted.week.as_deref().unwrap_or_default()).or_default().push(counted);
    }
    if weeks.is_empty() {
        return vec!["none in the last days".to_owned()];
    }
    weeks.into_iter().map(|(week, counted)| format!("{week}  {}", states(counted))).collect()
}

fn week(counted: &[Counted]) -> Vec<String> {
    if counted.is_empty() { vec!["none".to_owned()] } else { vec![states(counted)] }
}

fn states<'a>(counted: impl IntoIterator<Item = &'a Counted>) -> String {
    let word = |counted: &Counted| {
        let reason = counted.reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        format!("{} {}{reason}", out::grouped(counted.count), counted.state)
    };
    counted.into_iter().map(word).collect::<Vec<_>>().join(", ")
}

fn slot(slot: &NextSlot) -> String {
    format!("{}  {} {} ({})", slot.week, slot.local, offset_text(slot.offset_seconds), slot.timezone)
}

fn time(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// The two largest units: `2 h 3 min`.
fn span(span: TimeDelta) -> String {
    let seconds = span.num_seconds().max(0);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    fn counted(week: Option<&str>, state: &'static str, reason: Option<&'static str>, count: u64) -> Counted {
        Counted { week: week.map(str::to_owned), state, reason, count }
    }

    fn replica(host: &str, started: &str, clock_offset_ms: i64) -> ReplicaStatus {
        ReplicaStatus {
            id: "8f14e45f".to_owned(),
            host: host.to_owned(),
            version: "0.1.0".to_owned(),
            started_at: at(started),
            seen_at: at("2026-07-06T06:00:03Z"),
            clock_offset_ms,
        }
    }

    fn busy() -> Status {
        Status {
            now: at("2026-07-06T06:00:05Z"),
            database: "PostgreSQL".to_owned(),
            schema_version: 1,
            replicas: vec![
                replica("web-1", "2026-07-06T03:57:02Z", 12),
                replica("web-two", "2026-07-02T05:00:00Z", -3),
            ],
            week: "2026-W28".to_owned(),
            sends: vec![
                counted(Some("2026-W28"), "claimed", None, 250),
                counted(Some("2026-W28"), "enqueued", None, 12_040),
                counted(Some("2026-W27"), "missed", None, 1),
            ],
            resends: vec![counted(None, "enqueued", None, 1)],
            messages: vec![
                counted(None, "pending", None, 1_204),
                counted(None, "leased", None, 0),
                counted(None, "uncertain", None, 2),
            ],
            week_messages: vec![
                counted(None, "accepted", None, 30_000),
                counted(None, "failed", Some("refused"), 3),
            ],
            oldest_due_seconds: 75,
            relay: RelayStatus {
                url: "smtps://smtp.example.org:465".to_owned(),
                breaker: "open",
                paused: false,
                reason: Some("failing".to_owned()),
                note: Some("connection refused".to_owned()),
                open_until: Some(at("2026-07-06T06:01:00Z")),
                rate_factor: 0.5,
            },
            next_slots: vec![NextSlot {
                week: "2026-W29".to_owned(),
                at: at("2026-07-13T06:00:00Z"),
                local: "Mon 2026-07-13 08:00".to_owned(),
                offset_seconds: 7_200,
                timezone: "Europe/Berlin".to_owned(),
            }],
        }
    }

    #[test]
    fn a_busy_morning_is_told_in_words() {
        insta::assert_snapshot!(tell(&busy()), @"
        PostgreSQL, schema version 1, 2026-07-06 06:00:05 UTC

        Replicas
          web-1    8f14e45f  0.1.0  up 2 h 3 min  seen 2 s ago  clock +12 ms
          web-two  8f14e45f  0.1.0  up 4 d 1 h  seen 2 s ago  clock -3 ms

        Relay
          smtps://smtp.example.org:465  not working (failing: connection refused), next try 2026-07-06 06:01:00 UTC, slowed to 50 %

        Messages that wait
          1,204 pending, 2 uncertain
          the oldest has been due for 1 min 15 s
          uncertain: may or may not have been accepted; a person decides

        Sends
          2026-W27  1 missed
          2026-W28  250 claimed, 12,040 enqueued

        Resends of the last 7 days
          1 enqueued

        Messages of 2026-W28
          30,000 accepted, 3 failed (refused)

        Next slots
          2026-W29  Mon 2026-07-13 08:00 +02:00 (Europe/Berlin)
        ");
    }
}
