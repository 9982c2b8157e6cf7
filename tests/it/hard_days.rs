//! The days on which calendars elsewhere went wrong.

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, TimeDelta, Utc};
use digestd::domain::schedule::{Period, PeriodKind, WeeklySchedule};
use digestd::domain::zone::{Zone, offset_text};

fn zone(name: &str) -> Zone {
    Zone::parse(name).unwrap()
}

fn utc(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

/// The slot of the week that holds `scheduled`, for whoever wants that day and time of the week.
#[track_caller]
fn check(name: &str, scheduled: &str, week: &str, at: &str, clocks_show: &str) {
    let local = NaiveDateTime::parse_from_str(scheduled, "%Y-%m-%d %H:%M").unwrap();
    let schedule = WeeklySchedule { weekday: local.weekday(), time: local.time(), zone: zone(name) };
    let slot = schedule.latest_slot(utc(at));
    let shown = schedule.local_slot(slot);
    let clocks = shown.local.format("%Y-%m-%d %H:%M").to_string();
    assert_eq!(shown.moved, clocks != scheduled);
    let clocks = clocks + &offset_text(shown.offset_seconds);
    assert_eq!((slot.week.to_string(), slot.at, clocks), (week.to_owned(), utc(at), clocks_show.to_owned()));
    // A moment earlier it is still the week before's turn.
    let before = schedule.latest_slot(slot.at - TimeDelta::seconds(1));
    assert_eq!(before.week, slot.week.previous());
}

// Times in the gap made croner panic (croner-rust#16) and librefang skip the day without a word
// (librefang#3831): a weekly digest would be silent for two weeks.
#[test]
fn a_time_that_the_clocks_skip_means_the_first_moment_after_it() {
    let gap = check;
    gap("America/New_York", "2025-03-09 02:30", "2025-W10", "2025-03-09T07:00:00Z", "2025-03-09 03:00-04:00");
    gap("America/New_York", "2026-03-08 02:30", "2026-W10", "2026-03-08T07:00:00Z", "2026-03-08 03:00-04:00");
    gap("Europe/Berlin", "2026-03-29 02:00", "2026-W13", "2026-03-29T01:00:00Z", "2026-03-29 03:00+02:00");
    gap("Europe/Berlin", "2026-03-29 02:59", "2026-W13", "2026-03-29T01:00:00Z", "2026-03-29 03:00+02:00");
    gap("Pacific/Chatham", "2026-09-27 02:50", "2026-W39", "2026-09-26T14:00:00Z", "2026-09-27 03:45+13:45");
    gap(
        "Australia/Lord_Howe",
        "2026-10-04 02:15",
        "2026-W40",
        "2026-10-03T15:30:00Z",
        "2026-10-04 02:30+11:00",
    );
}

// Code that took for granted that every day has a midnight threw, or picked the day before (druid#8711).
#[test]
fn a_day_without_midnight_begins_at_its_first_moment() {
    let gap = check;
    gap("Asia/Beirut", "2026-03-29 00:00", "2026-W13", "2026-03-28T22:00:00Z", "2026-03-29 01:00+03:00");
    gap("Africa/Cairo", "2026-04-24 00:00", "2026-W17", "2026-04-23T22:00:00Z", "2026-04-24 01:00+03:00");
    gap("America/Santiago", "2026-09-06 00:00", "2026-W36", "2026-09-06T04:00:00Z", "2026-09-06 01:00-03:00");
    gap("America/Havana", "2026-03-08 00:30", "2026-W10", "2026-03-08T05:00:00Z", "2026-03-08 01:00-04:00");
    for (name, date, first) in [
        ("Asia/Beirut", "2026-03-29", "2026-03-28T22:00:00Z"),
        ("Africa/Cairo", "2026-04-24", "2026-04-23T22:00:00Z"),
        ("America/Santiago", "2026-09-06", "2026-09-06T04:00:00Z"),
        ("Pacific/Apia", "2011-12-30", "2011-12-30T10:00:00Z"),
    ] {
        assert_eq!(zone(name).start_of_day(date.parse().unwrap()), utc(first), "{name}");
    }
}

#[test]
fn a_time_that_comes_twice_means_the_earlier() {
    let twice = check;
    twice(
        "America/New_York",
        "2026-11-01 01:30",
        "2026-W44",
        "2026-11-01T05:30:00Z",
        "2026-11-01 01:30-04:00",
    );
    twice("Europe/Berlin", "2026-10-25 02:30", "2026-W43", "2026-10-25T00:30:00Z", "2026-10-25 02:30+02:00");
    twice(
        "America/Santiago",
        "2026-04-04 23:30",
        "2026-W14",
        "2026-04-05T02:30:00Z",
        "2026-04-04 23:30-03:00",
    );
    twice("America/Havana", "2026-11-01 00:00", "2026-W44", "2026-11-01T04:00:00Z", "2026-11-01 00:00-04:00");
    twice(
        "Australia/Lord_Howe",
        "2026-04-05 01:45",
        "2026-W14",
        "2026-04-04T14:45:00Z",
        "2026-04-05 01:45+11:00",
    );
    twice(
        "Pacific/Chatham",
        "2026-04-05 03:00",
        "2026-W14",
        "2026-04-04T13:15:00Z",
        "2026-04-05 03:00+13:45",
    );
}

#[test]
fn a_change_in_the_night_moves_the_morning_by_the_clocks_alone() {
    check(
        "America/New_York",
        "2026-03-08 08:00",
        "2026-W10",
        "2026-03-08T12:00:00Z",
        "2026-03-08 08:00-04:00",
    );
    check(
        "America/New_York",
        "2026-11-01 08:00",
        "2026-W44",
        "2026-11-01T13:00:00Z",
        "2026-11-01 08:00-05:00",
    );
    check("Europe/Berlin", "2026-03-29 08:00", "2026-W13", "2026-03-29T06:00:00Z", "2026-03-29 08:00+02:00");
    check("Asia/Beirut", "2026-03-29 08:00", "2026-W13", "2026-03-29T05:00:00Z", "2026-03-29 08:00+03:00");
    check("Africa/Cairo", "2026-04-24 08:00", "2026-W17", "2026-04-24T05:00:00Z", "2026-04-24 08:00+03:00");
    check(
        "America/Santiago",
        "2026-09-06 08:00",
        "2026-W36",
        "2026-09-06T11:00:00Z",
        "2026-09-06 08:00-03:00",
    );
}

// Offsets in whole hours had India's mails half an hour off (metabase#4398).
#[test]
fn zones_off_the_whole_hour_and_at_the_edges_of_the_date_line_keep_their_own_day() {
    check("Asia/Kathmandu", "2026-07-06 08:00", "2026-W28", "2026-07-06T02:15:00Z", "2026-07-06 08:00+05:45");
    check("Asia/Kolkata", "2026-07-06 23:00", "2026-W28", "2026-07-06T17:30:00Z", "2026-07-06 23:00+05:30");
    check(
        "Pacific/Chatham",
        "2026-09-28 08:00",
        "2026-W40",
        "2026-09-27T18:15:00Z",
        "2026-09-28 08:00+13:45",
    );
    check(
        "Pacific/Kiritimati",
        "2026-07-06 08:00",
        "2026-W28",
        "2026-07-05T18:00:00Z",
        "2026-07-06 08:00+14:00",
    );
    check(
        "Pacific/Pago_Pago",
        "2026-07-06 08:00",
        "2026-W28",
        "2026-07-06T19:00:00Z",
        "2026-07-06 08:00-11:00",
    );
    check(
        "Australia/Brisbane",
        "2026-07-06 08:00",
        "2026-W28",
        "2026-07-05T22:00:00Z",
        "2026-07-06 08:00+10:00",
    );
}

// British Columbia keeps daylight saving time from March 2026 on. Rules from before that say 16:00.
#[test]
fn vancouver_stays_on_summer_time_as_the_newest_rules_say() {
    check(
        "America/Vancouver",
        "2026-03-02 08:00",
        "2026-W10",
        "2026-03-02T16:00:00Z",
        "2026-03-02 08:00-08:00",
    );
    check(
        "America/Vancouver",
        "2026-12-07 08:00",
        "2026-W50",
        "2026-12-07T15:00:00Z",
        "2026-12-07 08:00-07:00",
    );
}

#[test]
fn the_turn_of_the_year_belongs_to_the_iso_week() {
    let berlin = |day, week, at: &str, shows| check("Europe/Berlin", day, week, at, shows);
    berlin("2024-12-30 08:00", "2025-W01", "2024-12-30T07:00:00Z", "2024-12-30 08:00+01:00");
    berlin("2026-12-28 08:00", "2026-W53", "2026-12-28T07:00:00Z", "2026-12-28 08:00+01:00");
    berlin("2027-01-01 08:00", "2026-W53", "2027-01-01T07:00:00Z", "2027-01-01 08:00+01:00");
    berlin("2027-01-03 08:00", "2026-W53", "2027-01-03T07:00:00Z", "2027-01-03 08:00+01:00");
    berlin("2027-01-04 08:00", "2027-W01", "2027-01-04T07:00:00Z", "2027-01-04 08:00+01:00");
}

#[test]
fn samoa_s_skipped_friday_is_served_as_saturday_begins() {
    let apia = |day, at: &str, shows| check("Pacific/Apia", day, "2011-W52", at, shows);
    apia("2011-12-29 08:00", "2011-12-29T18:00:00Z", "2011-12-29 08:00-10:00");
    apia("2011-12-30 08:00", "2011-12-30T10:00:00Z", "2011-12-31 00:00+14:00");
    apia("2011-12-31 08:00", "2011-12-30T18:00:00Z", "2011-12-31 08:00+14:00");
}

#[test]
fn troll_changes_by_two_hours() {
    let troll = |day, week, at: &str, shows| check("Antarctica/Troll", day, week, at, shows);
    troll("2026-03-29 01:30", "2026-W13", "2026-03-29T01:00:00Z", "2026-03-29 03:00+02:00");
    troll("2026-03-29 02:59", "2026-W13", "2026-03-29T01:00:00Z", "2026-03-29 03:00+02:00");
    troll("2026-10-25 01:00", "2026-W43", "2026-10-24T23:00:00Z", "2026-10-25 01:00+02:00");
    troll("2026-10-25 02:30", "2026-W43", "2026-10-25T00:30:00Z", "2026-10-25 02:30+02:00");
    troll("2026-10-26 08:00", "2026-W44", "2026-10-26T08:00:00Z", "2026-10-26 08:00+00:00");
}

#[test]
fn weeks_with_a_change_are_longer_or_shorter_and_follow_each_other_without_a_seam() {
    for (name, monday, minutes) in [
        ("Asia/Kathmandu", "2026-07-06", 168 * 60),
        ("America/New_York", "2026-03-02", 167 * 60),
        ("America/New_York", "2026-10-26", 169 * 60),
        ("Europe/Berlin", "2026-03-23", 167 * 60),
        ("Europe/Berlin", "2026-10-19", 169 * 60),
        ("Asia/Beirut", "2026-03-23", 167 * 60),
        ("Africa/Cairo", "2026-04-20", 167 * 60),
        ("America/Santiago", "2026-08-31", 167 * 60),
        ("America/Santiago", "2026-03-30", 169 * 60),
        ("America/Vancouver", "2026-10-26", 168 * 60),
        ("Pacific/Chatham", "2026-09-21", 167 * 60),
        ("Australia/Lord_Howe", "2026-09-28", 167 * 60 + 30),
        ("Australia/Lord_Howe", "2026-03-30", 168 * 60 + 30),
        ("Antarctica/Troll", "2026-03-23", 166 * 60),
        ("Antarctica/Troll", "2026-10-19", 170 * 60),
        ("Pacific/Apia", "2011-12-26", 144 * 60),
    ] {
        let first: NaiveDate = monday.parse().unwrap();
        let period = Period::seven_days(zone(name), first);
        assert_eq!((period.end - period.start).num_minutes(), minutes, "{name} {monday}");
        assert_eq!(zone(name).local(period.start).date(), first, "{name} {monday}");
        assert_eq!(period.previous().end, period.start, "{name} {monday}");
    }
}

// A title named an end that the figures did not cover (sentry#71458): the last day is one that
// belongs to the week, and the mail never leaves before that day has passed.
#[test]
fn the_week_told_is_the_one_before_the_slot_s_and_is_over_by_then() {
    let schedule = WeeklySchedule {
        weekday: chrono::Weekday::Mon,
        time: chrono::NaiveTime::MIN,
        zone: zone("Asia/Tokyo"),
    };
    for (now, first, last, told) in [
        ("2026-07-05T15:00:00Z", "2026-06-29", "2026-07-05", "2026-W27"),
        ("2026-12-28T00:00:00Z", "2026-12-21", "2026-12-27", "2026-W52"),
        ("2027-01-04T00:00:00Z", "2026-12-28", "2027-01-03", "2026-W53"),
        ("2024-12-30T00:00:00Z", "2024-12-23", "2024-12-29", "2024-W52"),
    ] {
        let slot = schedule.latest_slot(utc(now));
        let period = PeriodKind::PreviousWeek.of(&schedule, slot.week);
        let days = (period.first.to_string(), period.last.to_string(), period.week().to_string());
        assert_eq!(days, (first.to_owned(), last.to_owned(), told.to_owned()));
        assert!(period.end <= slot.at);
    }
}
