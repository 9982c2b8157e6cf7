//! Orgs that change their zone, day or time while a week is under way.
//!
//! The ledger here is a set with the database's unique key, `(org, week)`; everything else is the
//! product's own choice.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveTime, TimeDelta, Utc, Weekday};
use digestd::domain::candidate::Candidate;
use digestd::domain::due::{Due, DueRules, due};
use digestd::domain::ids::OrgId;
use digestd::domain::schedule::{PeriodKind, WeeklySchedule};
use digestd::domain::week::WeekKey;
use digestd::domain::zone::{self, Zone};
use proptest::prelude::*;

const RULES: DueRules =
    DueRules { catch_up: TimeDelta::hours(36), not_before: None, period: PeriodKind::PreviousWeek };

fn monday_morning(zone: &str) -> WeeklySchedule {
    let time = NaiveTime::from_hms_opt(8, 0, 0).unwrap();
    WeeklySchedule { weekday: Weekday::Mon, time, zone: Zone::parse(zone).unwrap() }
}

fn utc(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

/// Looks every quarter of an hour, as the re-sweep does, and notes when each week was sent.
/// `moves` are the schedules that the org has had, each with the moment from which it held.
fn run(
    moves: &[(DateTime<Utc>, WeeklySchedule)],
    from: DateTime<Utc>,
    to: DateTime<Utc>,
) -> BTreeMap<WeekKey, DateTime<Utc>> {
    let mut sent = BTreeMap::new();
    let mut now = from;
    while now < to {
        let held = moves.iter().rfind(|(since, _)| *since <= now).map(|(_, schedule)| schedule.clone());
        let candidate = Candidate {
            org: OrgId::parse("acme").unwrap(),
            schedule: Ok(held.unwrap()),
            created_at: None,
            opted_in_at: None,
        };
        if let Due::Yes(due) = due(&candidate, now, &RULES) {
            sent.entry(due.slot.week).or_insert(now);
        }
        now += TimeDelta::minutes(15);
    }
    sent
}

#[track_caller]
fn check(before: &str, after: &str, moved_at: &str, expected: [(&str, &str); 3]) {
    let moves = [(DateTime::<Utc>::MIN_UTC, monday_morning(before)), (utc(moved_at), monday_morning(after))];
    let sent = run(&moves, utc("2026-06-28T00:00:00Z"), utc("2026-07-15T00:00:00Z"));
    let sent: Vec<_> = sent.into_iter().map(|(week, at)| (week.to_string(), at)).collect();
    assert_eq!(sent, expected.map(|(week, at)| (week.to_owned(), utc(at))));
}

#[test]
fn an_org_that_moves_west_after_its_digest_gets_no_second_one() {
    check(
        "Pacific/Auckland",
        "Pacific/Honolulu",
        "2026-07-06T00:00:00Z",
        [
            ("2026-W27", "2026-06-28T20:00:00Z"),
            ("2026-W28", "2026-07-05T20:00:00Z"),
            ("2026-W29", "2026-07-13T18:00:00Z"),
        ],
    );
}

#[test]
fn an_org_that_moves_west_before_its_digest_waits_for_the_later_morning() {
    check(
        "Pacific/Auckland",
        "Pacific/Honolulu",
        "2026-07-05T12:00:00Z",
        [
            ("2026-W27", "2026-06-28T20:00:00Z"),
            ("2026-W28", "2026-07-06T18:00:00Z"),
            ("2026-W29", "2026-07-13T18:00:00Z"),
        ],
    );
}

#[test]
fn an_org_that_moves_east_past_its_new_morning_is_caught_up_at_once() {
    check(
        "Pacific/Honolulu",
        "Pacific/Auckland",
        "2026-07-06T17:50:00Z",
        [
            ("2026-W27", "2026-06-29T18:00:00Z"),
            ("2026-W28", "2026-07-06T18:00:00Z"),
            ("2026-W29", "2026-07-12T20:00:00Z"),
        ],
    );
}

#[test]
fn an_org_whose_new_day_is_longer_past_than_the_window_leaves_that_week_to_be_reported_as_missed() {
    let friday = WeeklySchedule { weekday: Weekday::Fri, ..monday_morning("Europe/Berlin") };
    // On Wednesday of W28 its Friday has not come, and its new Monday is two days past.
    let moves =
        [(DateTime::<Utc>::MIN_UTC, friday), (utc("2026-07-08T12:00:00Z"), monday_morning("Europe/Berlin"))];
    let sent = run(&moves, utc("2026-07-01T00:00:00Z"), utc("2026-07-15T00:00:00Z"));
    let weeks: Vec<String> = sent.keys().map(ToString::to_string).collect();
    assert_eq!(weeks, ["2026-W27", "2026-W29"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    // No two zones are further apart than 26 hours, so a window of 36 spans every move.
    #[test]
    fn an_org_that_keeps_moving_between_zones_gets_every_week_once(
        zones in proptest::collection::vec(proptest::sample::select(zone::names().collect::<Vec<_>>()), 12),
        quarters in proptest::collection::vec(0..8 * 7 * 24 * 4_i64, 11),
        weekday in 0..7_u8,
        minute in 0..24 * 60_u32,
    ) {
        let start = utc("2026-02-23T00:00:00Z");
        let mut moments: Vec<DateTime<Utc>> =
            quarters.iter().map(|quarter| start + TimeDelta::minutes(15 * quarter)).collect();
        moments.push(DateTime::<Utc>::MIN_UTC);
        moments.sort();
        let weekday = Weekday::try_from(weekday).unwrap();
        let time = NaiveTime::from_num_seconds_from_midnight_opt(minute * 60, 0).unwrap();
        let schedules = zones.iter().map(|zone| WeeklySchedule { weekday, time, ..monday_morning(zone) });
        let moves: Vec<_> = moments.into_iter().zip(schedules).collect();

        let sent = run(&moves, start, start + TimeDelta::weeks(8));
        let weeks: Vec<WeekKey> = sent.keys().copied().collect();
        prop_assert!(weeks.len() >= 7, "{:?}", weeks);
        for pair in weeks.windows(2) {
            prop_assert_eq!(pair[0].next(), pair[1]);
        }
        // Never before the easternmost morning, and never later than the westernmost one and a
        // look. The first week may have been under way before the first look.
        for (week, at) in sent.iter().skip(1) {
            let late = *at - week.date(weekday).and_time(time).and_utc();
            prop_assert!(late >= TimeDelta::hours(-14), "{} at {}", week, at);
            prop_assert!(late <= TimeDelta::minutes(12 * 60 + 15), "{} at {}", week, at);
        }
    }
}
