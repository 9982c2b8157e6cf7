//! Numbers, changes, dates and periods as people write them. Pure functions.

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, Timelike};

use super::strings::{Locale, StringError};
use crate::domain::schedule::Period;
use crate::domain::zone::Zone;

/// A change above this many percent is told as a difference: “99,900 % more” tells nobody anything.
const MAX_PERCENT: f64 = 999.0;

/// How a figure moved against the previous period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Change {
    /// The previous value is not known.
    Unknown,
    /// There was nothing before and there is something now.
    New,
    /// The same value.
    Same,
    /// More than before.
    Up(By),
    /// Less than before.
    Down(By),
}

/// By how much a figure moved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum By {
    /// Whole percent of the previous value, at least one.
    Percent(f64),
    /// The plain difference.
    Difference(f64),
}

impl Change {
    /// Compares two values. Nothing here divides by zero.
    pub fn between(value: f64, previous: Option<f64>) -> Self {
        let Some(previous) = previous else { return Self::Unknown };
        let difference = value - previous;
        if difference == 0.0 {
            return Self::Same;
        }
        if previous == 0.0 {
            return Self::New;
        }
        let exact = (difference / previous * 100.0).abs();
        // 99.7 % less is not “all gone”, 0.2 % more is not “0 %”.
        let percent = if exact < 100.0 { exact.round().clamp(1.0, 99.0) } else { exact.round() };
        let by = if percent > MAX_PERCENT || (previous < 0.0) != (value < 0.0) {
            By::Difference(difference.abs())
        } else {
            By::Percent(percent)
        };
        if difference > 0.0 { Self::Up(by) } else { Self::Down(by) }
    }

    /// The name for templates: `up`, `down`, `same`, `new`, `unknown`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::New => "new",
            Self::Same => "same",
            Self::Up(_) => "up",
            Self::Down(_) => "down",
        }
    }

    /// The change in words, with an arrow: never told by colour alone.
    pub fn words(self, locale: &Locale) -> Result<String, StringError> {
        let id = format!("change-{}", self.name());
        let (Self::Up(by) | Self::Down(by)) = self else { return locale.say_with(&id, &[]) };
        let by = match by {
            By::Percent(n) => percent(&format!("{n}"), locale)?,
            By::Difference(n) => number(&format!("{}", (n * 100.0).round() / 100.0), locale),
        };
        locale.say_with(&id, &[("by", &by)])
    }
}

/// Groups the digits of a plain decimal number; anything else stays as it is.
pub(super) fn number(text: &str, locale: &Locale) -> String {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let plain = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !plain(whole) || !plain(fraction) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + text.len() / 3 + 1);
    out.push_str(sign);
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push_str(&locale.group);
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push_str(&locale.decimal);
        out.push_str(fraction);
    }
    out
}

/// A number of percent with its sign.
pub(super) fn percent(text: &str, locale: &Locale) -> Result<String, StringError> {
    locale.say_with("percent", &[("n", &number(text, locale))])
}

/// A date without its time.
pub(super) fn date(date: NaiveDate, locale: &Locale) -> Result<String, StringError> {
    let args = [("day", &*date.day().to_string()), ("month", locale.month(date.month0()))];
    locale.say_with("date", &[args[0], args[1], ("year", &date.year().to_string())])
}

/// Weekday, date and time of day.
pub(super) fn date_time(at: NaiveDateTime, locale: &Locale) -> Result<String, StringError> {
    locale.say_with(
        "date-time",
        &[
            ("weekday", locale.weekday(at.weekday().num_days_from_monday())),
            ("day", &at.day().to_string()),
            ("month", locale.month(at.month0())),
            ("time", &format!("{:02}:{:02}", at.hour(), at.minute())),
        ],
    )
}

/// A moment as databases and JSON write it, told in a zone; `None` where the text is no date.
///
/// With an offset it is an instant and moves into the zone. Without one it is taken
/// for local time already. A date alone has no time to show.
pub(super) fn moment(text: &str, zone: &Zone, locale: &Locale) -> Option<Result<String, StringError>> {
    let text = text.trim();
    if let Ok(day) = text.parse::<NaiveDate>() {
        return Some(date(day, locale));
    }
    let offset_formats = ["%Y-%m-%d %H:%M:%S%.f%#z", "%Y-%m-%dT%H:%M:%S%.f%#z"];
    let instant = DateTime::parse_from_rfc3339(text)
        .ok()
        .or_else(|| offset_formats.iter().find_map(|format| DateTime::parse_from_str(text, format).ok()));
    let local = match instant {
        Some(at) => zone.local(at.to_utc()),
        None => ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M"]
            .iter()
            .find_map(|format| NaiveDateTime::parse_from_str(text, format).ok())?,
    };
    Some(date_time(local, locale))
}

/// Seconds as the two largest units that matter: `2 d 3 h`, `5 min`, `0 s`.
pub(super) fn duration(seconds: f64, locale: &Locale) -> Result<String, StringError> {
    const UNITS: [(u64, &str); 4] = [
        (86_400, "duration-days"),
        (3_600, "duration-hours"),
        (60, "duration-minutes"),
        (1, "duration-seconds"),
    ];
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; made positive")]
    let mut rest = seconds.abs().round() as u64;
    let largest = UNITS.iter().position(|(size, _)| rest >= *size).unwrap_or(UNITS.len() - 1);
    let mut words = Vec::new();
    for (size, id) in UNITS.iter().skip(largest).take(2) {
        let n = rest / size;
        rest %= size;
        if n > 0 || words.is_empty() {
            words.push(locale.say_with(id, &[("n", &number(&n.to_string(), locale))])?);
        }
    }
    let sign = if seconds < 0.0 { "-" } else { "" };
    Ok(format!("{sign}{}", words.join(" ")))
}

/// The days of a period, from the first to the last one included.
pub(super) fn period(period: &Period, locale: &Locale) -> Result<String, StringError> {
    let (first, last) = (period.first, period.last);
    let id = if period.within_one_month() {
        "period-same-month"
    } else if first.year() == last.year() {
        "period-same-year"
    } else {
        "period-two-years"
    };
    locale.say_with(
        id,
        &[
            ("first-day", &first.day().to_string()),
            ("first-month", locale.month(first.month0())),
            ("first-year", &first.year().to_string()),
            ("last-day", &last.day().to_string()),
            ("last-month", locale.month(last.month0())),
            ("last-year", &last.year().to_string()),
        ],
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::strings::Strings;
    use super::*;

    fn locale(tag: &str) -> Arc<Locale> {
        let content = std::fs::read_to_string(format!("templates/strings.{tag}.ftl")).unwrap();
        let english = std::fs::read_to_string("templates/strings.en.ftl").unwrap();
        let files = [("en".to_owned(), english), (tag.to_owned(), content)].into();
        Arc::clone(Strings::compile(&files).unwrap().nearest(tag).unwrap())
    }

    #[test]
    fn numbers_are_grouped_without_losing_a_digit() {
        let (en, de) = (locale("en"), locale("de"));
        assert_eq!(number("0", &en), "0");
        assert_eq!(number("999", &en), "999");
        assert_eq!(number("1204", &en), "1,204");
        assert_eq!(number("-1234567.50", &en), "-1,234,567.50");
        assert_eq!(number("1234567.50", &de), "1.234.567,50");
        assert_eq!(number("18446744073709551616123", &en), "18,446,744,073,709,551,616,123");
        assert_eq!(number("1e5", &en), "1e5");
        assert_eq!(number("", &en), "");
    }

    #[test]
    fn changes_never_divide_by_zero() {
        let en = locale("en");
        let words = |value, previous| Change::between(value, previous).words(&en).unwrap();
        assert_eq!(words(5.0, Some(0.0)), "new");
        assert_eq!(words(0.0, Some(0.0)), "no change");
        assert_eq!(words(5.0, None), "n/a");
        assert_eq!(words(0.0, None), "n/a");
        assert_eq!(words(112.0, Some(100.0)), "▲ up 12%");
        assert_eq!(words(0.0, Some(40.0)), "▼ down 100%");
        assert_eq!(words(1.0, Some(1000.0)), "▼ down 99%");
        assert_eq!(words(1001.0, Some(1000.0)), "▲ up 1%");
        assert_eq!(words(5000.0, Some(1.0)), "▲ up 4,999");
        assert_eq!(words(5.0, Some(-5.0)), "▲ up 10");
        assert_eq!(words(-15.0, Some(-10.0)), "▼ down 50%");
    }

    #[test]
    fn periods_name_the_last_day_that_is_included() {
        let days = |y, m, d| Period::seven_days(Zone::utc(), NaiveDate::from_ymd_opt(y, m, d).unwrap());
        let (en, de) = (locale("en"), locale("de"));
        assert_eq!(period(&days(2026, 6, 29), &en).unwrap(), "29 Jun – 5 Jul 2026");
        assert_eq!(period(&days(2026, 7, 6), &en).unwrap(), "6–12 Jul 2026");
        assert_eq!(period(&days(2025, 12, 29), &en).unwrap(), "29 Dec 2025 – 4 Jan 2026");
        assert_eq!(period(&days(2026, 6, 29), &de).unwrap(), "29. Juni – 5. Juli 2026");
        assert_eq!(period(&days(2026, 6, 29), &locale("ar")).unwrap(), "29 يونيو – 5 يوليو 2026");
    }

    #[test]
    fn durations_show_their_two_largest_units() {
        let (en, de) = (locale("en"), locale("de"));
        let told = |seconds| duration(seconds, &en).unwrap();
        assert_eq!(told(0.0), "0 s");
        assert_eq!(told(59.6), "1 min");
        assert_eq!(told(3_600.0), "1 h");
        assert_eq!(told(12_072.0), "3 h 21 min");
        assert_eq!(told(-90_061.0), "-1 d 1 h");
        assert_eq!(told(1e12), "11,574,074 d 1 h");
        assert_eq!(duration(90.0, &de).unwrap(), "1 Min. 30 Sek.");
    }

    #[test]
    fn moments_are_told_in_the_orgs_zone() {
        let (en, zone) = (locale("en"), Zone::parse("Europe/Berlin").unwrap());
        let told = |text| moment(text, &zone, &en).transpose().unwrap();
        assert_eq!(told("2026-06-30T22:30:00Z").unwrap(), "Wed 1 Jul, 00:30");
        assert_eq!(told("2026-06-30 22:30:00.123+00").unwrap(), "Wed 1 Jul, 00:30");
        assert_eq!(told("2026-06-30T22:30:00").unwrap(), "Tue 30 Jun, 22:30");
        assert_eq!(told("2026-06-30").unwrap(), "30 Jun 2026");
        assert_eq!(told("yesterday"), None);
    }
}
