//! What templates see: the contract with their authors.
//!
//! `brand`, `org`, `recipient`, `period`, `sections`, `highlights`, `quiet`, `links`, `lang`,
//! `dir`, `start` and `end`. Every text is cut to a length here; printing makes it harmless.

use std::collections::BTreeMap;
use std::sync::Arc;

use minijinja::context;
use minijinja::value::{Serde, Value};

use super::filters::{self, Here};
use super::format::{self, Change};
use super::links::Http;
use super::strings::{Locale, StringError};
use super::{Brand, Links};
use crate::domain::digest::{Amount, DigestInput, Figure, Recipient, Row, Rows, Section, SectionBody};
use crate::domain::text;

/// No single text of the application's is longer in a mail, whatever a template does.
const MAX_TEXT_CHARS: usize = 1000;
/// The columns that the templates know; absent ones are none.
const KNOWN_COLUMNS: [&str; 5] = ["title", "url", "detail", "when", "actor"];
/// So many figures stand in the preheader.
const HIGHLIGHTS: usize = 3;

/// The context of one recipient's mail, with at most `cap` entries in each section.
pub(super) fn build(
    input: &DigestInput,
    recipient: &Recipient,
    links: &Links,
    brand: &Brand,
    locale: &Arc<Locale>,
    cap: usize,
) -> Result<Value, StringError> {
    let parts: Vec<&Section> = input.sections.iter().collect();
    let quiet = is_quiet(&parts, recipient);
    let sections: Vec<Value> =
        parts.iter().filter_map(|section| section_view(section, recipient, quiet, cap)).collect();
    let zone = input.period.zone.clone();
    let (start, end) = if locale.rtl { ("right", "left") } else { ("left", "right") };
    let period = format::period(&input.period, locale)?;
    let text = |text: &str| Value::from(&*text::truncate(text, MAX_TEXT_CHARS));
    Ok(context! {
        brand => brand_view(brand),
        org => context! { id => input.org.as_str(), name => text(&input.org_name) },
        recipient => context! { name => recipient.name.as_deref().map(text) },
        period => context! {
            text => filters::trusted(period),
            first => input.period.first.to_string(),
            last => input.period.last.to_string(),
            week => input.period.week().to_string(),
            zone => zone.name(),
        },
        sections => sections,
        highlights => highlights(&parts),
        quiet => quiet,
        links => context! {
            unsubscribe => filters::trusted(links.unsubscribe.clone()),
            settings => links.settings.clone().map(filters::trusted),
        },
        lang => locale.tag.as_str(),
        dir => if locale.rtl { "rtl" } else { "ltr" },
        start => start,
        end => end,
        here => Value::from_object(Here { locale: Arc::clone(locale), zone, http: brand.http() }),
    })
}

/// How many entries each section has for this recipient.
pub(super) fn lengths(input: &DigestInput, recipient: &Recipient) -> Vec<usize> {
    let len = |section: &Section| match &section.body {
        SectionBody::Figures(figures) => figures.shown.len(),
        SectionBody::Rows(rows) => rows.shown.len(),
        SectionBody::PersonalRows(by_user) => by_user.get(&recipient.user).map_or(0, |r| r.shown.len()),
        SectionBody::Omitted => 0,
    };
    input.sections.iter().map(len).collect()
}

/// Whether there is nothing to tell this recipient.
fn is_quiet(sections: &[&Section], recipient: &Recipient) -> bool {
    sections.iter().all(|section| match &section.body {
        SectionBody::PersonalRows(by_user) => {
            by_user.get(&recipient.user).is_none_or(|rows| rows.total == 0 && rows.shown.is_empty())
        }
        _ => section.is_empty(),
    })
}

fn brand_view(brand: &Brand) -> Value {
    let own = |text: &str| filters::trusted(text::clean(text).into_owned());
    let address = brand.postal_address.as_deref().unwrap_or_default();
    context! {
        product => own(&brand.product),
        accent => brand.accent.as_str(),
        accent_dark => brand.accent.for_dark(),
        logo => brand.logo_url.as_ref().map(filters::link),
        address => address.lines().map(own).collect::<Vec<_>>(),
        url => brand.public_url.clone().map(|url| filters::link(&url)),
    }
}

/// One section, or none where it has nothing to say to this recipient.
fn section_view(section: &Section, recipient: &Recipient, quiet: bool, cap: usize) -> Option<Value> {
    let (kind, entries, total) = match &section.body {
        _ if quiet => return None,
        SectionBody::Omitted => ("omitted", Vec::new(), 0),
        SectionBody::Figures(figures) if figures.total == 0 => return None,
        SectionBody::Figures(figures) => ("figures", figure_views(&figures.shown, cap), figures.total),
        SectionBody::Rows(rows) => ("rows", row_views(rows, cap)?, rows.total),
        SectionBody::PersonalRows(by_user) => {
            let rows = by_user.get(&recipient.user)?;
            ("rows", row_views(rows, cap)?, rows.total)
        }
    };
    let more = total.max(entries.len() as u64) - entries.len() as u64;
    Some(context! {
        name => section.name.as_str(),
        title => &*text::truncate(&section.title, MAX_TEXT_CHARS),
        kind => kind,
        entries => entries,
        total => total,
        more => more,
    })
}

fn figure_views(figures: &[Figure], cap: usize) -> Vec<Value> {
    let magnitude = |figure: &Figure| figure.value.value().abs();
    let most = figures.iter().map(magnitude).fold(0.0, f64::max);
    figures
        .iter()
        .take(cap)
        .map(|figure| {
            let previous = figure.previous.as_ref();
            let (now, before) = (magnitude(figure), previous.map_or(0.0, |p| p.value().abs()));
            let higher = now.max(before);
            context! {
                label => &*text::truncate(&figure.label, MAX_TEXT_CHARS),
                value => figure.value.text(),
                previous => previous.map(Amount::text),
                trend => Change::between(figure.value.value(), previous.map(Amount::value)).name(),
                share => share(now, most),
                bar => share(now, higher),
                bar_before => share(before, higher),
            }
        })
        .collect()
}

/// Whole percent of the largest; what is not zero shows at least a trace.
fn share(value: f64, most: f64) -> u8 {
    if most <= 0.0 || value <= 0.0 {
        return 0;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 1..=100")]
    let percent = (value / most * 100.0).round().clamp(1.0, 100.0) as u8;
    percent
}

fn row_views(rows: &Rows, cap: usize) -> Option<Vec<Value>> {
    let empty = rows.total == 0 && rows.shown.is_empty();
    (!empty).then(|| rows.shown.iter().take(cap).map(row_view).collect())
}

fn row_view(row: &Row) -> Value {
    let mut columns: BTreeMap<&str, Value> =
        KNOWN_COLUMNS.iter().map(|name| (*name, Value::from(()))).collect();
    for (name, value) in row {
        let value = match value {
            serde_json::Value::String(text) => Value::from(&*text::truncate(text, MAX_TEXT_CHARS)),
            other => Value::from(Serde(other)),
        };
        columns.insert(name, value);
    }
    Value::from_pairs(columns)
}

/// The first figures that are not zero, for the preheader.
fn highlights(sections: &[&Section]) -> Vec<Value> {
    let figures = sections.iter().flat_map(|section| match &section.body {
        SectionBody::Figures(figures) => figures.shown.as_slice(),
        _ => &[],
    });
    figures
        .filter(|figure| figure.value.value() != 0.0)
        .take(HIGHLIGHTS)
        .map(|figure| {
            context! {
                label => &*text::truncate(&figure.label, MAX_TEXT_CHARS),
                value => figure.value.text(),
            }
        })
        .collect()
}

impl Brand {
    /// Whether plain `http` links may stand in the mail.
    fn http(&self) -> Http {
        match &self.public_url {
            Some(url) if url.as_str().starts_with("http:") => Http::Allowed,
            _ => Http::Refused,
        }
    }
}
