//! Made-up digests to try templates on: an ordinary week, a quiet one, and the worst there is.

use chrono::NaiveDate;
use serde_json::json;

use super::{Brand, Links, RenderError, Templates};
use crate::domain::address::{Address, AddressError};
use crate::domain::digest::{
    Amount, BrokenAddress, DigestInput, Figure, Recipient, Row, Rows, Section, SectionBody,
};
use crate::domain::ids::{OrgId, UserId};
use crate::domain::schedule::Period;
use crate::domain::week::{SendKey, WeekKey};
use crate::domain::zone::Zone;

/// A section of the worst org has so many entries.
const WORST_ENTRIES: u64 = 1000;

/// A template failed on made-up data.
#[derive(Debug, thiserror::Error)]
#[error("trying the templates on the {sample} digest in language {language}")]
pub struct CheckError {
    /// Which digest: `ordinary`, `quiet` or `worst`.
    pub sample: &'static str,
    /// Which language.
    pub language: String,
    /// What went wrong.
    pub source: RenderError,
}

impl Templates {
    /// Renders every sample in every language, so that a fault shows before the first Monday does it.
    pub fn check(&self, brand: &Brand) -> Result<(), CheckError> {
        let links = Links { unsubscribe: "https://digest.example/u/sample".to_owned(), settings: None };
        for (sample, input) in samples() {
            for language in self.languages() {
                for name in [Some("Ana"), None] {
                    let recipient = recipient(name, language);
                    self.render(&input, &recipient, &links, brand).map_err(|source| CheckError {
                        sample,
                        language: language.to_owned(),
                        source,
                    })?;
                }
            }
        }
        Ok(())
    }
}

/// The samples by name.
pub fn samples() -> [(&'static str, DigestInput); 3] {
    [("ordinary", ordinary()), ("quiet", quiet()), ("worst", worst())]
}

/// A recipient of the samples.
pub fn recipient(name: Option<&str>, language: &str) -> Recipient {
    Recipient {
        user: sample_id(UserId::parse),
        address: Address::parse("ana@example.org")
            .map_err(|error: AddressError| BrokenAddress { raw: String::new(), error }),
        name: name.map(str::to_owned),
        locale: Some(language.to_owned()),
        opted_in_at: None,
    }
}

fn ordinary() -> DigestInput {
    let overview = vec![
        figure("Orders", 1204, Some(1075)),
        figure("Returns", 31, Some(40)),
        figure("New customers", 12, Some(0)),
        figure("Reviews", 4, None),
    ];
    let regions = ["North", "East", "South", "West", "Islands", "Mountains", "Elsewhere"];
    let regions: Vec<_> =
        regions.iter().zip(1..).map(|(name, n)| figure(name, 900 / n, Some(100 * n))).collect();
    let top = vec![
        row(json!({
            "title": "Order 10042", "url": "https://app.example/orders/10042", "detail": "42 items",
            "when": "2026-06-30T09:15:00Z", "actor": "Jörg Müller",
        })),
        row(json!({ "title": "Order 10043", "when": "2026-07-01" })),
    ];
    let mine = Rows { shown: vec![row(json!({ "title": "Approve the budget" }))], total: 1 };
    let personal = std::iter::once((sample_id(UserId::parse), mine)).collect();
    input(
        "Example Ltd",
        vec![
            section("Overview", SectionBody::Figures(overview.into())),
            section("By region", SectionBody::Figures(regions.into())),
            section("Largest orders", SectionBody::Rows(Rows { shown: top, total: 40 })),
            section("Waiting for you", SectionBody::PersonalRows(personal)),
            section("Not to be had", SectionBody::Omitted),
        ],
    )
}

fn quiet() -> DigestInput {
    let overview = vec![figure("Orders", 0, Some(0))];
    input("Example Ltd", vec![section("Overview", SectionBody::Figures(overview.into()))])
}

fn worst() -> DigestInput {
    let text = "<b>Wörst</b> & {{ evil }} http://evil.example \u{202e}مرحبا 👩\u{200d}💻 \r\n".repeat(100);
    let bare = row(json!({}));
    let odd = row(json!({ "title": ["a", "list"], "url": 7, "detail": { "a": null }, "when": true }));
    let full = row(json!({ "title": text, "url": text, "detail": text, "when": text, "actor": text }));
    let rows = (0..WORST_ENTRIES).map(|_| full.clone()).chain([bare, odd]).rev().collect();
    let figures: Vec<Figure> = (0..WORST_ENTRIES).map(|n| figure(&text, n * n, Some(n))).collect();
    input(
        &text,
        vec![
            section(&text, SectionBody::Figures(figures.into())),
            section(&text, SectionBody::Rows(Rows { shown: rows, total: u64::MAX })),
        ],
    )
}

fn input(org_name: &str, sections: Vec<Section>) -> DigestInput {
    let monday = NaiveDate::from_ymd_opt(2026, 6, 29).unwrap_or_default();
    let period = Period::seven_days(Zone::utc(), monday);
    let key = SendKey::Week(WeekKey::of(monday).next());
    let org = sample_id(OrgId::parse);
    DigestInput { org, org_name: org_name.to_owned(), key, period, sections, recipients: Vec::new() }
}

#[expect(clippy::expect_used, reason = "the text below is an id")]
fn sample_id<T, E: std::fmt::Debug>(parse: fn(&str) -> Result<T, E>) -> T {
    parse("sample").expect("“sample” is an id: short, printable, not empty")
}

fn section(title: &str, body: SectionBody) -> Section {
    Section { name: "sample".to_owned(), title: title.to_owned(), body }
}

fn figure(label: &str, value: u64, previous: Option<u64>) -> Figure {
    Figure { label: label.to_owned(), value: Amount::count(value), previous: previous.map(Amount::count) }
}

fn row(columns: serde_json::Value) -> Row {
    match columns {
        serde_json::Value::Object(columns) => columns,
        _ => Row::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Accent;
    use super::*;

    fn brand() -> Brand {
        let product = "Example".to_owned();
        Brand { product, accent: Accent::default(), logo_url: None, postal_address: None, public_url: None }
    }

    #[test]
    fn the_templates_of_the_program_pass_their_own_check() {
        let templates = Templates::embedded().unwrap();
        assert_eq!(templates.languages(), ["ar", "de", "en"]);
        templates.check(&brand()).unwrap();
    }

    #[test]
    fn a_fault_that_only_some_data_shows_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let subject = "x{% if quiet %}{{ org.nonsense }}{% endif %}";
        std::fs::write(dir.path().join("digest.subject.txt"), subject).unwrap();
        let error = Templates::load(Some(dir.path())).unwrap().check(&brand()).unwrap_err();
        assert_eq!((error.sample, error.language.as_str()), ("quiet", "ar"));
    }

    #[test]
    fn templates_are_shared_between_threads() {
        fn shared<T: Send + Sync>() {}
        shared::<Templates>();
    }
}
