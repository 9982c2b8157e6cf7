//! The calendar against every zone that there is, week by week.

use std::collections::BTreeSet;

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Timelike, Utc, Weekday};
use digestd::domain::schedule::{Slot, WeeklySchedule, everywhere};
use digestd::domain::week::WeekKey;
use digestd::domain::zone::{self, Zone};

const SECOND: TimeDelta = TimeDelta::seconds(1);

fn every_zone() -> impl Iterator<Item = Zone> {
    zone::names().map(|name| Zone::parse(name).unwrap())
}

/// Every week of 2020 to 2032.
fn weeks() -> impl Iterator<Item = WeekKey> {
    let first = WeekKey::of(NaiveDate::from_ymd_opt(2020, 1, 1).unwrap());
    let last = WeekKey::of(NaiveDate::from_ymd_opt(2032, 12, 31).unwrap());
    std::iter::successors(Some(first), |week| Some(week.next())).take_while(move |week| *week <= last)
}

fn schedule(zone: &Zone, weekday: Weekday, hour: u32, minute: u32) -> WeeklySchedule {
    WeeklySchedule { weekday, time: NaiveTime::from_hms_opt(hour, minute, 0).unwrap(), zone: zone.clone() }
}

/// Whether the slot is where the rules say: at its local time, at the earlier one if there are
/// two, and right after the gap if there is none. Says it without the code under test, which
/// starts from the local time; this starts from the instant.
fn stands_where_it_must(schedule: &WeeklySchedule, slot: Slot) -> bool {
    let zone = &schedule.zone;
    let wanted = slot.week.date(schedule.weekday).and_time(schedule.time);
    let local = zone.local(slot.at);
    let jumped_over = || zone.local(slot.at - SECOND) < wanted && wanted < local;
    let earlier_too = || {
        let earlier = wanted.and_utc() - offset(zone, slot.at - TimeDelta::hours(3));
        earlier < slot.at && zone.local(earlier) == wanted
    };
    if local == wanted { !earlier_too() } else { jumped_over() }
}

fn offset(zone: &Zone, at: DateTime<Utc>) -> TimeDelta {
    TimeDelta::seconds(zone.offset_seconds(at).into())
}

#[track_caller]
fn exactly_one_slot_a_week(weekday: Weekday, hour: u32, minute: u32) {
    let weeks: Vec<WeekKey> = weeks().collect();
    for zone in every_zone() {
        let schedule = schedule(&zone, weekday, hour, minute);
        let mut before: Option<Slot> = None;
        for slot in weeks.iter().map(|week| schedule.slot_in(*week)) {
            let context = || format!("{zone} {weekday} {hour:02}:{minute:02} {}", slot.week);
            assert_eq!(WeekKey::of(zone.local(slot.at).date()), slot.week, "{}", context());
            assert!(stands_where_it_must(&schedule, slot), "{}", context());
            assert!(everywhere(slot.week, weekday, schedule.time).contains(&slot.at), "{}", context());
            if let Some(before) = before {
                // A slot right after a gap counts with the offset from before it: it stands in
                // for a time that was still to come then.
                let change = (offset(&zone, slot.at) - offset(&zone, before.at - SECOND)).abs();
                let distance = slot.at - before.at;
                assert!(distance > TimeDelta::zero(), "{}", context());
                assert!((distance - TimeDelta::days(7)).abs() <= change, "{}", context());
            }
            before = Some(slot);
        }
    }
}

// One test for each day and time, so that they run side by side. Clocks change at night, mostly
// on Sundays, and in some zones at midnight or on other days.

#[test]
fn every_zone_has_exactly_one_slot_a_week_on_monday_morning() {
    exactly_one_slot_a_week(Weekday::Mon, 8, 0);
}

#[test]
fn every_zone_has_exactly_one_slot_a_week_at_midnight_before_sunday() {
    exactly_one_slot_a_week(Weekday::Sun, 0, 0);
}

#[test]
fn every_zone_has_exactly_one_slot_a_week_in_the_hour_that_is_skipped_or_repeated() {
    exactly_one_slot_a_week(Weekday::Sun, 2, 30);
}

#[test]
fn every_zone_has_exactly_one_slot_a_week_at_midnight_before_friday() {
    exactly_one_slot_a_week(Weekday::Fri, 0, 0);
}

#[test]
fn the_first_and_the_last_zone_of_a_week_are_where_everywhere_says() {
    for week in weeks().step_by(7) {
        let opens = |zone: Zone| schedule(&zone, Weekday::Mon, 8, 0).slot_in(week).at;
        let (first, last) = (every_zone().map(opens).min(), every_zone().map(opens).max());
        let span = everywhere(week, Weekday::Mon, NaiveTime::from_hms_opt(8, 0, 0).unwrap());
        assert_eq!((first, last), (Some(*span.start()), Some(*span.end())));
    }
}

/// Each moment of 2020 to 2032 at which the zone's clocks jump.
fn changes(zone: &Zone) -> Vec<DateTime<Utc>> {
    let mondays: Vec<DateTime<Utc>> = weeks().map(|week| zone.start_of_day(week.monday())).collect();
    let jump = |pair: &[DateTime<Utc>]| {
        let (mut before, mut after) = (pair[0], pair[1]);
        let old = zone.offset_seconds(before);
        if zone.offset_seconds(after) == old {
            return None;
        }
        while after - before > SECOND {
            let middle = before + TimeDelta::seconds((after - before).num_seconds() / 2);
            if zone.offset_seconds(middle) == old { before = middle } else { after = middle }
        }
        Some(after)
    };
    mondays.windows(2).filter_map(jump).collect()
}

/// Local times that are worth scheduling at a jump: just before, at, within and after it, and midnight.
fn times_near(zone: &Zone, change: DateTime<Utc>) -> BTreeSet<NaiveDateTime> {
    let minute = |local: NaiveDateTime| local.with_second(0).unwrap();
    let sides = [zone.local(change - SECOND), zone.local(change)];
    sides
        .into_iter()
        .flat_map(|side| [-30, 0, 30].map(|minutes| minute(side + TimeDelta::minutes(minutes))))
        .chain([zone.local(change).date().and_time(NaiveTime::MIN)])
        .collect()
}

#[test]
fn around_every_change_of_every_zone_s_clocks_the_newest_slot_is_the_greatest_not_after_now() {
    let mut checked = 0;
    for zone in every_zone() {
        // Three years hold every kind of change that a zone still makes; the rest repeats them.
        for change in changes(&zone).into_iter().filter(|change| change.to_string().as_str() > "2024").take(6)
        {
            for local in times_near(&zone, change) {
                let weekday = local.weekday();
                let schedule = WeeklySchedule { weekday, time: local.time(), zone: zone.clone() };
                let near = WeekKey::of(local.date());
                let slots = [near.previous().previous(), near.previous(), near, near.next()]
                    .map(|week| schedule.slot_in(week));
                let offsets = [-7_200, -1_800, -1, 0, 1, 1_800, 7_200];
                for now in offsets.map(|seconds| change + TimeDelta::seconds(seconds)) {
                    let greatest = slots.iter().rfind(|slot| slot.at <= now).copied();
                    assert_eq!(Some(schedule.latest_slot(now)), greatest, "{zone} {local} at {now}");
                    assert_eq!(schedule.upcoming(now).next().map(|slot| slot.at > now), Some(true));
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 10_000, "{checked}");
}

#[test]
fn a_slot_opens_at_its_instant_and_closes_with_its_window() {
    let window = TimeDelta::hours(36);
    for zone in every_zone() {
        let schedule = schedule(&zone, Weekday::Sun, 2, 30);
        for slot in weeks().step_by(13).map(|week| schedule.slot_in(week)) {
            let open = [slot.at - SECOND, slot.at, slot.at + window - SECOND, slot.at + window]
                .map(|now| slot.is_open(now, window));
            assert_eq!(open, [false, true, true, false], "{zone} {}", slot.week);
            assert_eq!(schedule.latest_slot(slot.at), slot, "{zone}");
            assert_eq!(schedule.latest_slot(slot.at - SECOND).week, slot.week.previous(), "{zone}");
        }
    }
}
