//! Mails as a reader sees them, in a real browser: in every language, light and dark, on a large screen and on a
//! phone, of a quiet week, a normal one, and the worst there is.
//!
//! `scripts/screenshots` runs this and keeps the pictures.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use chrono::NaiveDate;
use digestd::domain::digest::{Amount, DigestInput, Figure, Row, Rows, Section, SectionBody};
use digestd::domain::ids::{OrgId, UserId};
use digestd::domain::schedule::Period;
use digestd::domain::week::SendKey;
use digestd::domain::zone::Zone;
use digestd::render::{Accent, Brand, Http, Links, SafeUrl, Templates, sample};
use serde_json::json;

use crate::support::browser::Browser;
use crate::support::variable;

/// An application's own words, in the reader's language.
struct Words {
    language: &'static str,
    org: &'static str,
    product: &'static str,
    sections: [&'static str; 4],
    figures: [&'static str; 4],
    teams: [&'static str; 7],
    incidents: [(&'static str, &'static str, &'static str); 4],
    mine: [&'static str; 2],
}

const WORDS: [Words; 3] = [
    Words {
        language: "en",
        org: "Northwind Traders",
        product: "Harbour",
        sections: ["This week", "Open incidents by team", "Worth a look", "Waiting for you"],
        figures: ["Incidents opened", "Resolved", "Time to first reply, min", "New customers"],
        teams: ["Platform", "Support", "Payments", "Mobile", "Data", "Security", "Field service"],
        incidents: [
            (
                "Checkout slow for customers in Asia",
                "p95 above four seconds since Tuesday noon",
                "Zoë Müller",
            ),
            (
                "Invoices of June were sent twice",
                "Found by a customer, credited to 214 accounts",
                "Ken Adams",
            ),
            ("Backup of the reporting database failed", "The disk of the standby was full", "Noor Haddad"),
            ("Printer on the third floor, again", "", "Sam Okafor"),
        ],
        mine: ["Approve the on-call plan for August", "Review: access of three leavers"],
    },
    Words {
        language: "de",
        org: "Donaudampfschifffahrtsgesellschaft Müßig & Söhne",
        product: "Harbour",
        sections: ["Diese Woche", "Offene Störungen nach Team", "Lesenswert", "Wartet auf Sie"],
        figures: [
            "Neue Störungen",
            "Behoben",
            "Zeit bis zur ersten Antwort, Min.",
            "Neukundinnen und -kunden",
        ],
        teams: [
            "Plattform",
            "Kundendienst",
            "Zahlungsverkehr",
            "Mobil",
            "Daten",
            "Sicherheit",
            "Außendienst",
        ],
        incidents: [
            ("Bestellvorgang in Asien langsam", "p95 seit Dienstagmittag über vier Sekunden", "Zoë Müller"),
            (
                "Rechnungen für Juni doppelt verschickt",
                "Von einer Kundin bemerkt, 214 Konten gutgeschrieben",
                "Jörg Groß",
            ),
            (
                "Sicherung der Auswertungsdatenbank fehlgeschlagen",
                "Die Platte des Ersatzrechners war voll",
                "Noor Haddad",
            ),
            ("Drucker im dritten Stock, schon wieder", "", "Änne Öztürk"),
        ],
        mine: ["Bereitschaftsplan für August freigeben", "Prüfen: Zugänge von drei Ausgeschiedenen"],
    },
    Words {
        language: "ar",
        org: "شركة الميناء للتجارة",
        product: "Harbour",
        sections: ["هذا الأسبوع", "الأعطال المفتوحة حسب الفريق", "يستحق الاطلاع", "بانتظارك"],
        figures: ["أعطال جديدة", "تم حلها", "زمن الرد الأول بالدقائق", "عملاء جدد"],
        teams: ["المنصة", "الدعم", "المدفوعات", "الجوال", "البيانات", "الأمان", "الخدمة الميدانية"],
        incidents: [
            ("بطء الدفع لدى العملاء في آسيا", "p95 فوق أربع ثوانٍ منذ ظهر الثلاثاء", "نور حداد"),
            ("أُرسلت فواتير يونيو مرتين", "لاحظها أحد العملاء، وأُعيدت المبالغ إلى 214 حسابًا", "Ken Adams"),
            ("فشل النسخ الاحتياطي لقاعدة التقارير", "امتلأ قرص الخادم الاحتياطي", "سامي خليل"),
            ("طابعة الطابق الثالث، مرة أخرى", "", "Zoë Müller"),
        ],
        mine: ["اعتماد جدول المناوبة لشهر أغسطس", "مراجعة: صلاحيات ثلاثة مغادرين"],
    },
];

fn figure(label: &str, value: u64, previous: Option<u64>) -> Figure {
    Figure { label: label.into(), value: Amount::count(value), previous: previous.map(Amount::count) }
}

fn row(columns: serde_json::Value) -> Row {
    let serde_json::Value::Object(columns) = columns else { panic!("a row is an object") };
    columns
}

fn input(org_name: &str, sections: Vec<(&str, SectionBody)>) -> DigestInput {
    let monday = NaiveDate::from_ymd_opt(2026, 6, 29).expect("a date");
    let section =
        |(title, body): (&str, SectionBody)| Section { name: "s".into(), title: title.into(), body };
    DigestInput {
        org: OrgId::parse("42").expect("an id"),
        org_name: org_name.into(),
        key: SendKey::parse("2026-W28").expect("a key"),
        period: Period::seven_days(Zone::parse("Europe/Berlin").expect("a zone"), monday),
        sections: sections.into_iter().map(section).collect(),
        recipients: Vec::new(),
    }
}

fn normal(words: &Words) -> DigestInput {
    let numbers = [(128, Some(97)), (141, Some(141)), (17, Some(24)), (12, Some(0))];
    let overview = words.figures.iter().zip(numbers).map(|(label, (now, before))| figure(label, now, before));
    let counts = [41, 38, 17, 9, 6, 3, 0];
    let by_team = words.teams.iter().zip(counts).map(|(label, n)| figure(label, n, Some(12)));
    let incidents = words.incidents.iter().zip(1..).map(|((title, detail, actor), n)| {
        row(json!({
            "title": title, "detail": detail, "actor": actor, "when": format!("2026-07-0{n}T09:15:00Z"),
            "url": format!("https://harbour.example/incidents/{n}"),
        }))
    });
    let mine =
        words.mine.iter().map(|title| row(json!({ "title": title, "url": "https://harbour.example/me" })));
    let mine = Rows { shown: mine.collect(), total: 2 };
    let personal = BTreeMap::from([(UserId::parse("sample").expect("an id"), mine)]);
    let [overview_title, team_title, list_title, mine_title] = words.sections;
    input(
        words.org,
        vec![
            (overview_title, SectionBody::Figures(overview.collect::<Vec<_>>().into())),
            (team_title, SectionBody::Figures(by_team.collect::<Vec<_>>().into())),
            (list_title, SectionBody::Rows(Rows { shown: incidents.collect(), total: 31 })),
            (mine_title, SectionBody::PersonalRows(personal)),
        ],
    )
}

/// Words without a place to break, names in the other direction, numbers beyond reason.
fn long(words: &Words) -> DigestInput {
    let unbroken = "Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz".repeat(3);
    let names =
        [unbroken.as_str(), "مرحبا بالعالم Hello", "evil.example", "👩‍💻👨‍👩‍👧‍👦🏳️‍🌈", "<script>alert(1)</script>"];
    let big: Vec<_> = names.iter().map(|name| figure(name, 123_456_789_012_345, Some(1))).collect();
    let many =
        names.iter().chain(&names).map(|name| figure(name, 123_456_789_012_345, Some(98_765_432_109_876)));
    let rows = names.iter().map(|name| {
        row(json!({ "title": name, "detail": unbroken, "actor": name, "when": unbroken, "url": "https://harbour.example/x" }))
    });
    let rows = Rows { shown: rows.collect(), total: 1_000_000 };
    input(
        &format!("{} {unbroken}", words.org),
        vec![
            (&unbroken, SectionBody::Figures(big.into())),
            ("Many", SectionBody::Figures(many.collect::<Vec<_>>().into())),
            ("Rows", SectionBody::Rows(rows)),
            ("Missing", SectionBody::Omitted),
        ],
    )
}

fn brand(words: &Words) -> Brand {
    Brand {
        product: words.product.into(),
        accent: Accent::default(),
        logo_url: None,
        postal_address: Some("Harbour Ltd\n1 Quay Street, Springfield".into()),
        public_url: Some(SafeUrl::parse("https://digest.harbour.example", Http::Refused).expect("a URL")),
    }
}

/// Where pictures are kept, if anybody wants them.
fn album() -> Option<PathBuf> {
    let folder = PathBuf::from(variable("DIGESTD_SCREENSHOTS")?);
    fs::create_dir_all(&folder).expect("a folder");
    Some(folder)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mails_are_a_pleasure_on_every_screen() {
    // From the folder: whoever works on them need not build anything.
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/templates"));
    let templates = Templates::load(Some(folder)).expect("our own templates");
    let links = Links {
        unsubscribe: "https://digest.harbour.example/u/AbC-123_xyz".into(),
        settings: Some("https://harbour.example/settings".into()),
    };
    let folder = tempfile::tempdir().expect("a folder");
    let album = album();
    let browser = Browser::start().await;
    for words in &WORDS {
        let [_, quiet, worst] = sample::samples();
        let digests =
            [("normal", normal(words)), ("long", long(words)), ("quiet", quiet.1), ("worst", worst.1)];
        for (name, digest) in digests {
            let reader = sample::recipient(Some("Ana"), words.language);
            let rendered = templates.render(&digest, &reader, &links, &brand(words)).expect("a mail");
            let file = folder.path().join("mail.html");
            fs::write(&file, rendered.html).expect("a file");
            for (width, dark) in [(600, false), (600, true), (375, false), (375, true)] {
                let scheme = if dark { "dark" } else { "light" };
                let which = format!("{}-{name}-{width}-{scheme}", words.language);
                browser.window(width, 800).await;
                browser.dark(dark).await;
                browser.open(&format!("file://{}", file.display())).await;
                if let Some(album) = &album {
                    fs::write(album.join(format!("{which}.png")), browser.picture().await)
                        .expect("a picture");
                }
                assert_eq!(browser.overflow().await, 0, "{which} is wider than its window");
                // Colours are the same on every width, and in every language.
                if width == 600 && (words.language == "en" || name == "normal") {
                    browser.must_be_accessible().await;
                }
                let direction =
                    browser.run("return getComputedStyle(document.querySelector('h1')).direction");
                assert_eq!(direction.await, if words.language == "ar" { "rtl" } else { "ltr" });
            }
        }
    }
}
