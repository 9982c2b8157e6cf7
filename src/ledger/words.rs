//! States, reasons and times in words.

use chrono::{DateTime, TimeDelta, Utc};

use crate::domain::message::MessageReason;
use crate::domain::schedule::{Slot, WeeklySchedule};
use crate::domain::send::SendReason;
use crate::domain::zone::offset_text;

/// `2026-07-06 06:00:00`; UTC, which the heading says.
pub(super) fn time(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M:%S").to_string()
}

/// `Mon 2026-07-06 08:00 +02:00 Europe/Berlin`.
pub(super) fn local(schedule: &WeeklySchedule, slot: Slot) -> String {
    let local = schedule.local_slot(slot);
    let offset = offset_text(local.offset_seconds);
    format!("{} {offset} {}", local.local.format("%a %Y-%m-%d %H:%M"), schedule.zone)
}

/// `2 d 3 h`: the two largest units.
pub(crate) fn span(span: TimeDelta) -> String {
    let seconds = span.num_seconds().unsigned_abs();
    let units = [
        ("d", seconds / 86_400),
        ("h", seconds / 3_600 % 24),
        ("min", seconds / 60 % 60),
        ("s", seconds % 60),
    ];
    let shown: Vec<String> = units
        .iter()
        .skip_while(|(_, n)| *n == 0)
        .take(2)
        .filter(|(_, n)| *n > 0)
        .map(|(unit, n)| format!("{n} {unit}"))
        .collect();
    if shown.is_empty() { "0 s".to_owned() } else { shown.join(" ") }
}

/// `1 recipient`, `2 recipients`.
pub(super) fn counted(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// Why a send ended without messages.
pub(super) const fn send_reason(reason: SendReason) -> &'static str {
    match reason {
        SendReason::EmptyWeek => "nothing happened in the days that it is about",
        SendReason::NoRecipients => "nobody in the org was opted in, active and addressable",
        SendReason::OrgGone => "the org was deactivated or removed after its slot had opened",
        SendReason::BadTimezone => "the org's time zone is not an IANA name",
        SendReason::GatherFailed => "its data could not be gathered within the attempts",
        SendReason::RenderFailed => "it could not be rendered within the attempts",
        SendReason::TooLate => "its time had passed",
    }
}

/// Why a message ended without being accepted.
pub(super) const fn message_reason(reason: MessageReason) -> &'static str {
    match reason {
        MessageReason::OptedOut => "the address is opted out",
        MessageReason::Suppressed => "the address has bounced before",
        MessageReason::Duplicate => "the guard knows this digest for this address already",
        MessageReason::NotAMember => "no longer an active, opted-in admin at this address",
        MessageReason::BadAddress => "the address cannot be parsed",
        MessageReason::RenderFailed => "this recipient's mail could not be rendered",
        MessageReason::Refused => "the relay refused it for good",
        MessageReason::TooManyAttempts => "the attempts are used up",
        MessageReason::Corrupt => "its row or its bytes cannot be read",
        MessageReason::TooOld => "it was older than the age limit",
        MessageReason::Operator => "an operator took it back",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_show_their_two_largest_units() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (3_661, "1 h 1 min"),
            (86_400, "1 d"),
            (86_400 + 60, "1 d"),
            (-7_200, "2 h"),
        ] {
            assert_eq!(span(TimeDelta::seconds(seconds)), text);
        }
    }
}
