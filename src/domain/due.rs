//! The choice of who is due: pure, so that every hour of every zone can be tried.

use chrono::{DateTime, TimeDelta, Utc};

use super::candidate::Candidate;
use super::schedule::{PeriodKind, Slot, WeeklySchedule};
use super::send::DueOrg;

/// What the configuration says about being due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueRules {
    /// How long a slot stays open. Less than seven days.
    pub catch_up: TimeDelta,
    /// Slots before this moment belong to nobody: the installation's first start, where it is to
    /// wait for the next week instead of mailing everyone at once.
    pub not_before: Option<DateTime<Utc>>,
    /// Which days a digest is about.
    pub period: PeriodKind,
}

/// Whether an org is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// Its slot is open.
    Yes(DueOrg),
    /// Its zone is not an IANA name, so that it has no slots at all.
    BadZone,
    /// Its newest slot has closed; the next has not opened.
    NotOpen,
    /// Its slot is open, but is older than the org, its first opt-in or this installation.
    /// The org waits for the next one.
    TooNew {
        /// The slot that passes the org by.
        slot: Slot,
    },
}

/// What is younger than a slot, so that the slot passes an org by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Younger {
    /// The org itself, made at this moment.
    Org(DateTime<Utc>),
    /// Its first admin's opt-in.
    OptIn(DateTime<Utc>),
    /// This installation.
    Installation(DateTime<Utc>),
}

/// Whether an org is due at `now`, and for which slot.
///
/// Only the newest slot counts. A window that reaches the next slot ends there, since a digest is
/// never sent after its successor. Which weeks were sent already is not asked here: the ledger's
/// unique key answers that, also for an org whose zone, day or time has changed since.
pub fn due(candidate: &Candidate, now: DateTime<Utc>, rules: &DueRules) -> Due {
    let Ok(schedule) = &candidate.schedule else {
        return Due::BadZone;
    };
    due_for(candidate, schedule.latest_slot(now), now, rules)
}

/// Like [`due`], for a slot whose instant is stored: replicas of different releases may know
/// different zone rules, and the instant that was stored first holds for all of them.
pub fn due_for(candidate: &Candidate, slot: Slot, now: DateTime<Utc>, rules: &DueRules) -> Due {
    let Ok(schedule) = &candidate.schedule else {
        return Due::BadZone;
    };
    if !slot.is_open(now, rules.catch_up) {
        return Due::NotOpen;
    }
    match owed(candidate, schedule, slot, rules) {
        Ok(due) => Due::Yes(due),
        Err(_) => Due::TooNew { slot },
    }
}

/// What an org should get, or should have got, in a slot of its schedule, whenever that slot is;
/// or what makes the slot pass it by.
pub fn owed(
    candidate: &Candidate,
    schedule: &WeeklySchedule,
    slot: Slot,
    rules: &DueRules,
) -> Result<DueOrg, Younger> {
    let beginnings = [
        candidate.created_at.map(Younger::Org),
        candidate.opted_in_at.map(Younger::OptIn),
        rules.not_before.map(Younger::Installation),
    ];
    if let Some(younger) = beginnings.into_iter().flatten().find(|younger| younger.since() > slot.at) {
        return Err(younger);
    }
    let period = rules.period.of(schedule, slot.week);
    Ok(DueOrg { org: candidate.org.clone(), slot, period })
}

impl Younger {
    /// Since when it is there.
    pub const fn since(self) -> DateTime<Utc> {
        match self {
            Self::Org(at) | Self::OptIn(at) | Self::Installation(at) => at,
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::{NaiveTime, Weekday};
    use proptest::prelude::*;

    use super::*;
    use crate::domain::ids::OrgId;
    use crate::domain::schedule::{WeeklySchedule, parse_time};
    use crate::domain::week::WeekKey;
    use crate::domain::zone::{self, Zone};

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    fn org(zone: &str, weekday: Weekday, time: &str) -> Candidate {
        let schedule =
            Zone::parse(zone).map(|zone| WeeklySchedule { weekday, time: parse_time(time).unwrap(), zone });
        Candidate { org: OrgId::parse("acme").unwrap(), schedule, created_at: None, opted_in_at: None }
    }

    const RULES: DueRules =
        DueRules { catch_up: TimeDelta::hours(36), not_before: None, period: PeriodKind::PreviousWeek };

    #[track_caller]
    fn check(candidate: &Candidate, now: &str, expected: Option<(&str, &str)>) {
        let found = match due(candidate, at(now), &RULES) {
            Due::Yes(due) => Some((due.slot.week.to_string(), due.slot.at)),
            _ => None,
        };
        assert_eq!(found, expected.map(|(week, slot)| (week.to_owned(), at(slot))));
    }

    #[test]
    fn an_org_is_due_from_its_slot_to_the_end_of_the_window() {
        let berlin = org("Europe/Berlin", Weekday::Mon, "08:00");
        let slot = Some(("2026-W28", "2026-07-06T06:00:00Z"));
        check(&berlin, "2026-07-06T05:59:59.999999Z", None);
        check(&berlin, "2026-07-06T06:00:00Z", slot);
        check(&berlin, "2026-07-06T06:01:01Z", slot);
        check(&berlin, "2026-07-07T17:59:59.999999Z", slot);
        check(&berlin, "2026-07-07T18:00:00Z", None);
    }

    #[test]
    fn the_days_are_those_of_the_slot_however_late_it_is_worked() {
        let berlin = org("Europe/Berlin", Weekday::Mon, "08:00");
        for now in ["2026-07-06T06:00:00Z", "2026-07-07T17:00:00Z"] {
            let Due::Yes(due) = due(&berlin, at(now), &RULES) else { panic!("due at {now}") };
            assert_eq!(due.period.first.to_string(), "2026-06-29");
            assert_eq!(due.period.last.to_string(), "2026-07-05");
            assert_eq!(due.period.start, at("2026-06-28T22:00:00Z"));
            assert_eq!(due.period.end, at("2026-07-05T22:00:00Z"));
        }
    }

    // Weekdays taken in UTC mailed east of it a day late and west of it a day early
    // (dailydotdev, daily-api#1768), and Tokyo's last week was the one before it (Snorby, snorby#298).
    #[test]
    fn the_day_is_the_org_s_own_and_not_utc_s() {
        check(
            &org("Pacific/Kiritimati", Weekday::Mon, "08:00"),
            "2026-07-05T18:00:00Z",
            Some(("2026-W28", "2026-07-05T18:00:00Z")),
        );
        check(
            &org("Asia/Tokyo", Weekday::Mon, "08:00"),
            "2026-07-05T23:00:00Z",
            Some(("2026-W28", "2026-07-05T23:00:00Z")),
        );
        check(
            &org("Pacific/Pago_Pago", Weekday::Sun, "20:00"),
            "2026-07-06T07:00:00Z",
            Some(("2026-W27", "2026-07-06T07:00:00Z")),
        );
    }

    #[test]
    fn whoever_came_after_the_slot_waits_for_the_next() {
        let slot = "2026-07-06T06:00:00Z";
        let later = Some(at("2026-07-06T06:00:00.000001Z"));
        let berlin = org("Europe/Berlin", Weekday::Mon, "08:00");
        let new_org = Candidate { created_at: later, ..berlin.clone() };
        let new_admin = Candidate { opted_in_at: later, ..berlin.clone() };
        let on_time = Candidate { created_at: Some(at(slot)), opted_in_at: Some(at(slot)), ..berlin.clone() };
        let fresh_installation = DueRules { not_before: later, ..RULES };

        let now = at("2026-07-06T09:00:00Z");
        let too_new = |due: Due| matches!(due, Due::TooNew { slot: passed } if passed.at == at(slot));
        assert!(too_new(due(&new_org, now, &RULES)));
        assert!(too_new(due(&new_admin, now, &RULES)));
        assert!(too_new(due(&berlin, now, &fresh_installation)));
        assert!(matches!(due(&on_time, now, &RULES), Due::Yes(_)));

        let next = at("2026-07-13T06:00:00Z");
        for (candidate, rules) in [(&new_org, RULES), (&new_admin, RULES), (&berlin, fresh_installation)] {
            assert!(matches!(due(candidate, next, &rules), Due::Yes(_)));
        }
    }

    #[test]
    fn a_stored_instant_holds_against_the_rules_of_this_replica() {
        // Stored by a replica whose rules still put Vancouver's winter an hour later.
        let vancouver = org("America/Vancouver", Weekday::Mon, "08:00");
        let week = WeekKey::parse("2026-W50").unwrap();
        let stored = Slot { week, at: at("2026-12-07T16:00:00Z") };
        let quarter_to = at("2026-12-07T15:45:00Z");
        assert_eq!(due_for(&vancouver, stored, quarter_to, &RULES), Due::NotOpen);
        let Due::Yes(due) = due_for(&vancouver, stored, stored.at, &RULES) else { panic!("due when stored") };
        assert_eq!(due.slot, stored);
    }

    #[test]
    fn an_org_without_a_zone_is_told_apart_from_one_that_is_not_due() {
        let broken = org("GMT Standard Time", Weekday::Mon, "08:00");
        assert_eq!(due(&broken, at("2026-07-06T06:00:00Z"), &RULES), Due::BadZone);
        let berlin = org("Europe/Berlin", Weekday::Mon, "08:00");
        assert_eq!(due(&berlin, at("2026-07-09T06:00:00Z"), &RULES), Due::NotOpen);
    }

    fn any_schedule() -> impl Strategy<Value = WeeklySchedule> {
        let zones: Vec<&str> = zone::names().collect();
        (proptest::sample::select(zones), 0..7_u8, 0..24 * 60_u32).prop_map(|(zone, day, minute)| {
            WeeklySchedule {
                weekday: Weekday::try_from(day).unwrap(),
                time: NaiveTime::from_num_seconds_from_midnight_opt(minute * 60, 0).unwrap(),
                zone: Zone::parse(zone).unwrap(),
            }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        // From 2012 to 2035, and windows of up to six days: shorter than any two slots' distance.
        #[test]
        fn due_is_yes_for_exactly_the_window(
            schedule in any_schedule(),
            now in 1_325_376_000..2_051_222_400_i64,
            hours in 1..144_i64,
        ) {
            let rules = DueRules { catch_up: TimeDelta::hours(hours), ..RULES };
            let now = DateTime::from_timestamp(now, 0).unwrap();
            let open = {
                let near = schedule.latest_slot(now).week;
                let weeks = [near.previous().previous(), near.previous(), near, near.next(), near.next().next()];
                weeks
                    .map(|week| schedule.slot_in(week))
                    .into_iter()
                    .find(|slot| slot.at <= now && now < slot.at + rules.catch_up)
            };
            let candidate = Candidate { schedule: Ok(schedule.clone()), ..org("UTC", Weekday::Mon, "08:00") };
            match due(&candidate, now, &rules) {
                Due::Yes(due) => {
                    prop_assert_eq!(Some(due.slot), open);
                    // What is told lies in the past when the mail goes out.
                    prop_assert!(due.period.end <= due.slot.at);
                }
                Due::NotOpen => prop_assert_eq!(None, open),
                other => prop_assert!(false, "{:?}", other),
            }
            // And at the window's four edges.
            let slot = schedule.latest_slot(now);
            let second = TimeDelta::seconds(1);
            let yes = |now| matches!(due(&candidate, now, &rules), Due::Yes(due) if due.slot == slot);
            prop_assert!(!yes(slot.at - second));
            prop_assert!(yes(slot.at));
            prop_assert!(yes(slot.at + rules.catch_up - second));
            prop_assert!(!yes(slot.at + rules.catch_up));
        }
    }
}
