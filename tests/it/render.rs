//! Digests as people get them: golden mails, hostile data, limits.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use chrono::{DateTime, NaiveDate, Utc};
use digestd::domain::address::Address;
use digestd::domain::digest::{
    Amount, DigestInput, Figure, Figures, Recipient, Rendered, Row, Rows, Section, SectionBody,
};
use digestd::domain::ids::{OrgId, UserId};
use digestd::domain::message::MessageUid;
use digestd::domain::schedule::Period;
use digestd::domain::week::SendKey;
use digestd::domain::zone::Zone;
use digestd::mail::compose::{ComposeError, Sender, compose};
use digestd::mail::parts::Parts;
use digestd::mail::wire;
use digestd::render::{Accent, Brand, Http, Links, RenderError, SafeUrl, Templates};
use mail_parser::{MessageParser, MimeHeaders, PartType};
use proptest::prelude::*;
use serde_json::json;

const UNSUBSCRIBE: &str = "https://digest.acme.example/u/AbC-123_xyz";

fn figure(label: &str, value: u64, previous: Option<u64>) -> Figure {
    Figure { label: label.into(), value: Amount::count(value), previous: previous.map(Amount::count) }
}

fn row(columns: serde_json::Value) -> Row {
    let serde_json::Value::Object(columns) = columns else { panic!("a row is an object") };
    columns
}

fn section(title: &str, body: SectionBody) -> Section {
    Section { name: title.to_lowercase(), title: title.into(), body }
}

fn rows(total: u64, shown: Vec<Row>) -> SectionBody {
    SectionBody::Rows(Rows { shown, total })
}

fn input(org_name: &str, sections: Vec<Section>) -> DigestInput {
    let monday = NaiveDate::from_ymd_opt(2026, 6, 29).unwrap();
    DigestInput {
        org: OrgId::parse("42").unwrap(),
        org_name: org_name.into(),
        key: SendKey::parse("2026-W28").unwrap(),
        period: Period::seven_days(Zone::parse("Europe/Berlin").unwrap(), monday),
        sections,
        recipients: Vec::new(),
    }
}

fn recipient(name: &str, locale: &str) -> Recipient {
    Recipient {
        user: UserId::parse("u1").unwrap(),
        address: Ok(Address::parse("ana@acme.example").unwrap()),
        name: Some(name.into()),
        locale: Some(locale.into()),
        opted_in_at: None,
    }
}

fn links() -> Links {
    Links { unsubscribe: UNSUBSCRIBE.into(), settings: Some("https://app.acme.example/settings".into()) }
}

fn brand() -> Brand {
    let url = |text| Some(SafeUrl::parse(text, Http::Refused).unwrap());
    Brand {
        product: "Acme Desk".into(),
        accent: Accent::default(),
        logo_url: url("https://app.acme.example/logo.png"),
        postal_address: Some("Acme Inc.\n1 Main Street, Springfield".into()),
        public_url: url("https://digest.acme.example"),
    }
}

pub(super) fn normal() -> DigestInput {
    let overview = vec![
        figure("Tickets opened", 1204, Some(1075)),
        figure("Tickets closed", 1188, Some(1188)),
        figure("Refunds", 3, Some(0)),
        figure("Reviews", 0, Some(12)),
        figure("Calls", 17, None),
    ];
    let by_team = ["Sales", "Support", "Finance", "Legal", "Design", "Research", "Field"];
    let by_team = by_team.iter().zip([410, 388, 97, 41, 33, 20, 7]).map(|(t, n)| figure(t, n, Some(40)));
    let top = vec![
        row(json!({
            "title": "Printer on fire", "url": "https://app.acme.example/t/1?a=1&b=2",
            "detail": "Third floor, again", "when": "2026-06-30T22:30:00+00:00", "actor": "Zoë Müller",
        })),
        row(json!({ "title": "Ticket without a link", "when": "2026-07-01", "extra": { "deep": [1, 2] } })),
        row(json!({ "url": "https://app.acme.example/t/3" })),
    ];
    let mine = Rows { shown: vec![row(json!({ "title": "Yours alone" }))], total: 1 };
    let theirs = Rows { shown: vec![row(json!({ "title": "Somebody else's" }))], total: 1 };
    let personal = [(UserId::parse("u1").unwrap(), mine), (UserId::parse("u2").unwrap(), theirs)];
    input(
        "Tom's R&D <x>",
        vec![
            section("Overview", SectionBody::Figures(overview.into())),
            section("By team", SectionBody::Figures(by_team.collect::<Vec<_>>().into())),
            section("Top tickets", rows(40, top)),
            section("Yours", SectionBody::PersonalRows(BTreeMap::from(personal))),
            section("Latency", SectionBody::Omitted),
        ],
    )
}

pub(super) fn quiet() -> DigestInput {
    input(
        "Acme",
        vec![
            section("Overview", SectionBody::Figures(vec![figure("Tickets", 0, Some(0))].into())),
            section("Top tickets", rows(0, Vec::new())),
        ],
    )
}

static TEMPLATES: LazyLock<Templates> = LazyLock::new(|| Templates::embedded().unwrap());

pub(super) fn render(input: &DigestInput, locale: &str) -> Rendered {
    TEMPLATES.render(input, &recipient("Ana", locale), &links(), &brand()).unwrap()
}

fn sender() -> Sender {
    Sender {
        from_name: "Acme Desk".into(),
        from: Address::parse("digest@mail.acme.example").unwrap(),
        reply_to: Some(Address::parse("help@acme.example").unwrap()),
        list_id_domain: "mail.acme.example".into(),
        headers: vec![("X-Stream".into(), "digests".into())],
        redirect_to: None,
    }
}

pub(super) fn eml(rendered: &Rendered, to: &str, to_name: Option<&str>) -> Result<Vec<u8>, ComposeError> {
    let to = Address::parse(to).unwrap();
    let uid = MessageUid::derive(&OrgId::parse("42").unwrap(), SendKey::parse("2026-W28").unwrap(), "a");
    let date: DateTime<Utc> = "2026-07-06T06:00:00Z".parse().unwrap();
    compose(Parts::encode(rendered), &to, to_name, &uid, date, &sender(), Some(UNSUBSCRIBE))
}

fn headers_of(bytes: &[u8]) -> String {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    text.split("\r\n\r\n").next().unwrap().replace("\r\n", "\n")
}

#[test]
fn the_normal_digest_reads_well_in_three_languages() {
    for locale in ["en", "de", "ar"] {
        let rendered = render(&normal(), locale);
        insta::assert_snapshot!(
            format!("normal_{locale}_text"),
            format!("{}\n\n{}", rendered.subject, rendered.text)
        );
        insta::assert_snapshot!(format!("normal_{locale}_html"), rendered.html);
    }
}

#[test]
fn the_language_is_the_recipients_else_the_installations_else_english() {
    let language = |own: Option<&str>, default: &str| {
        let templates = Templates::embedded().unwrap().with_language(default);
        let recipient = Recipient { locale: own.map(str::to_owned), ..recipient("Ana", "") };
        let rendered = templates.render(&quiet(), &recipient, &links(), &brand()).unwrap();
        rendered.html.split("lang=\"").nth(1).unwrap()[..2].to_owned()
    };
    assert_eq!(language(Some("ar"), "de"), "ar");
    assert_eq!(language(Some("fi"), "de-CH"), "de");
    assert_eq!(language(None, "de"), "de");
    assert_eq!(language(None, "fi"), "en");
}

#[test]
fn the_quiet_week_says_so_and_nothing_else() {
    let rendered = render(&quiet(), "en");
    insta::assert_snapshot!("quiet_text", format!("{}\n\n{}", rendered.subject, rendered.text));
    assert!(rendered.html.contains("A quiet week"));
    assert!(!rendered.html.contains("Overview"));
}

#[test]
fn the_message_has_the_headers_that_bulk_mail_needs() {
    let bytes = eml(&render(&normal(), "en"), "ana@acme.example", Some("Müller, Jörg")).unwrap();
    insta::assert_snapshot!("normal_headers", headers_of(&bytes));
    assert_eq!(bytes, eml(&render(&normal(), "en"), "ana@acme.example", Some("Müller, Jörg")).unwrap());
}

#[test]
fn the_message_has_two_parts_that_say_what_was_rendered() {
    let rendered = render(&normal(), "ar");
    let bytes = eml(&rendered, "ana@acme.example", Some("Müller, Jörg <x@y.z>")).unwrap();
    let parsed = MessageParser::default().parse(&bytes).unwrap();
    let to = parsed.to().unwrap().as_list().unwrap();
    assert_eq!(to.len(), 1);
    assert_eq!(to[0].address(), Some("ana@acme.example"));
    assert_eq!(to[0].name(), Some("Müller, Jörg <x@y.z>"));
    assert_eq!(parsed.subject(), Some(rendered.subject.as_str()));
    assert_eq!(parsed.parts[0].content_type().unwrap().subtype(), Some("alternative"));
    let kinds: Vec<&str> = parsed
        .parts
        .iter()
        .map(|p| match p.body {
            PartType::Multipart(_) => "multi",
            PartType::Text(_) => "text",
            PartType::Html(_) => "html",
            _ => "other",
        })
        .collect();
    assert_eq!(kinds, ["multi", "text", "html"]);
    assert_eq!(parsed.body_text(0).unwrap().replace("\r\n", "\n"), rendered.text);
    assert_eq!(parsed.body_html(0).unwrap().replace("\r\n", "\n").trim_end(), rendered.html.trim_end());
}

// Seen elsewhere: mails of large organisations passed Gmail's limit, which hid the footer
// and the unsubscribe link with it.
#[test]
fn the_worst_case_stays_below_the_clipping_point_and_keeps_its_footer() {
    let long = "Ünïcödé & <b>".repeat(800);
    let many: Vec<Row> = (0..5000)
        .map(|n| if n < 250 { &*long } else { "short" })
        .map(|text| row(json!({ "title": text, "detail": text, "actor": text, "when": text })))
        .collect();
    let figures: Vec<_> =
        (0..5000).map(|n| figure(if n < 250 { &long } else { "short" }, n, Some(1))).collect();
    let input = input(
        &long,
        vec![section(&long, SectionBody::Figures(figures.into())), section(&long, rows(5000, many))],
    );
    let rendered = render(&input, "en");
    assert!(rendered.html.len() < 90_000, "{}", rendered.html.len());
    assert!(rendered.html.contains(UNSUBSCRIBE) && rendered.text.contains(UNSUBSCRIBE));
    assert!(rendered.html.contains("more</p>"));
    assert!(rendered.subject.chars().count() <= 75, "{}", rendered.subject);
    let bytes = eml(&rendered, "ana@acme.example", Some(&long)).unwrap();
    assert!(bytes.len() < 500_000);
}

// Seen elsewhere: a large organisation saw a part of its figures, and nothing said that there were more.
#[test]
fn figures_that_were_cut_off_are_counted_below() {
    let shown: Vec<_> = ["North", "South"].iter().map(|name| figure(name, 5, Some(4))).collect();
    let digest = input("Acme", vec![section("Regions", SectionBody::Figures(Figures { shown, total: 300 }))]);
    let rendered = render(&digest, "en");
    assert!(rendered.text.contains("and 298 more") && rendered.html.contains("and 298 more"));
    // All that is shown is zero, and what is not shown may be anything.
    let shown = vec![figure("North", 0, Some(0))];
    let digest = input("Acme", vec![section("Regions", SectionBody::Figures(Figures { shown, total: 2 }))]);
    assert!(!digest.is_empty() && !render(&digest, "en").text.contains("quiet"));
}

// Seen elsewhere: names such as “Visit evil.com” became links in mail clients, and subjects
// showed `&#x27;`.
#[test]
fn hostile_names_are_shown_and_do_nothing() {
    let evil =
        "<script>alert(1)</script> {{ 7 * 7 }} http://evil.com evil.com a@evil.com \u{202e}gpj\r\nBcc: x@y.z";
    let top = vec![
        row(
            json!({ "title": evil, "url": "javascript:alert(1)", "detail": evil, "actor": evil, "when": evil }),
        ),
        row(json!({ "title": "http link", "url": "http://evil.com/" })),
        row(json!({ "title": "quote", "url": "https://x.io/\" onclick=\"x" })),
        row(json!({ "title": ["a", "list"] })),
    ];
    let input = input("Tom's R&D evil.com", vec![section(evil, rows(4, top))]);
    let rendered = TEMPLATES.render(&input, &recipient(evil, "en"), &links(), &brand()).unwrap();
    insta::assert_snapshot!("hostile_text", format!("{}\n\n{}", rendered.subject, rendered.text));
    for part in [&rendered.subject, &rendered.text, &rendered.html] {
        assert!(!part.contains("evil.com"));
        assert!(!part.contains("http://"));
        assert!(!part.contains('\u{202e}'));
    }
    assert!(rendered.text.contains("{{ 7 * 7 }}"));
    assert!(rendered.subject.contains("Tom's R&D"));
    assert!(rendered.html.contains("Tom&#39;s R&amp;D"));
    for active in ["<script", "javascript:", "onclick=\"", "alert(1)</script>"] {
        assert!(!rendered.html.contains(active), "{active}");
    }
}

// Seen elsewhere: mails of a self-hosted installation linked to the vendor's host.
#[test]
fn every_link_is_one_that_was_given() {
    let rendered = render(&normal(), "de");
    let hrefs: Vec<&str> =
        rendered.html.split("href=\"").skip(1).filter_map(|r| r.split('"').next()).collect();
    assert!(hrefs.len() >= 4);
    for href in hrefs {
        assert!(
            href.starts_with("https://app.acme.example/") || href.starts_with("https://digest.acme.example/"),
            "{href}"
        );
    }
}

#[test]
fn personal_rows_reach_their_admin_only() {
    let rendered = render(&normal(), "en");
    for part in [&rendered.text, &rendered.html] {
        assert!(part.contains("Yours alone"));
        assert!(!part.contains("Somebody else"));
    }
}

#[test]
fn a_template_of_the_operators_is_used_and_its_faults_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let render = |files: &[(&str, &str)]| {
        for (name, content) in files {
            std::fs::write(dir.path().join(name), content).unwrap();
        }
        let templates = Templates::load(Some(dir.path()));
        let result = templates.map(|t| t.render(&quiet(), &recipient("Ana", "de-AT"), &links(), &brand()));
        for (name, _) in files {
            std::fs::remove_file(dir.path().join(name)).unwrap();
        }
        result
    };
    let own =
        render(&[("digest.de.txt", "Hallo {{ recipient.name }}\n{{ links.unsubscribe }}")]).unwrap().unwrap();
    assert_eq!(own.text, format!("Hallo Ana\n{UNSUBSCRIBE}\n"));
    let is_template_error = |content| {
        let result = render(&[("digest.txt", content)]);
        matches!(result, Ok(Err(RenderError::Template { .. })))
    };
    assert!(is_template_error("{{ nonsense }} {{ links.unsubscribe }}"));
    assert!(is_template_error("{{ org.nonsense }} {{ links.unsubscribe }}"));
    assert!(is_template_error(
        "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}"
    ));
    assert!(is_template_error("{% autoescape false %}{{ org.name }}{% endautoescape %}"));
    assert!(is_template_error("{{ sections }}"));
    assert!(is_template_error("{{ t('nonsense') }}"));
    assert!(
        render(&[("digest.txt", "{{ org.name|safe }}")]).is_err() || is_template_error("{{ org.name|safe }}")
    );
    assert!(render(&[("digest.txt", "{% if %}")]).is_err());
    let lost = render(&[("digest.txt", "no way out")]).unwrap();
    assert!(matches!(lost, Err(RenderError::NoWayOut(name)) if name == "digest.txt"));
}

#[test]
fn addresses_beyond_ascii_are_written_as_smtputf8_asks() {
    let rendered = render(&quiet(), "en");
    let bytes = eml(&rendered, "zoë@bücher.example", Some("Zoë")).unwrap();
    assert!(wire::check(&bytes, false).is_err());
    let parsed = MessageParser::default().parse(&bytes).unwrap();
    assert_eq!(parsed.to().unwrap().first().unwrap().address(), Some("zoë@xn--bcher-kva.example"));
    assert!(eml(&rendered, "zoe@bücher.example", None).unwrap().is_ascii());
}

/// Text that breaks things: any characters, spiced with what breaks most.
fn hostile() -> impl Strategy<Value = String> {
    let spice = prop::sample::select(vec![
        "\r\nBcc: a@b.io\r\n",
        "\r",
        "\n.\n",
        "\0",
        "\u{202e}",
        "\u{200b}",
        "<b>",
        "\"",
        "=?utf-8?q?x?=",
        ",",
        "<a@b.io>",
        "{{ 1 }}",
        "{% raw %}",
        "👩\u{200d}💻",
        "http://evil.com",
        "é",
        "--=_digestd",
        "\\",
        " ",
    ]);
    prop::collection::vec(prop_oneof![spice.prop_map(str::to_owned), any::<String>()], 0..12)
        .prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_data_breaks_the_structure_of_a_message(
        org in hostile(), name in hostile(), title in hostile(), url in hostile(), repeat in 1..40_usize,
    ) {
        let top = vec![row(json!({ "title": title.repeat(repeat), "url": url, "actor": name, title.clone(): 1 }))];
        let input = input(&org, vec![section(&title, rows(9, top)), section("f", SectionBody::Figures(vec![figure(&name, 5, Some(0))].into()))]);
        let rendered = TEMPLATES.render(&input, &recipient(&name, "en"), &links(), &brand()).unwrap();
        let bytes = eml(&rendered, "ana@acme.example", Some(&name)).unwrap();

        prop_assert_eq!(wire::check(&bytes, false), Ok(()));
        let parsed = MessageParser::default().parse(&bytes).unwrap();
        let names: Vec<&str> = parsed.headers().iter().map(mail_parser::Header::name).collect();
        prop_assert_eq!(names, [
            "From", "To", "Subject", "Date", "Message-ID", "Reply-To", "List-ID", "Auto-Submitted",
            "X-Auto-Response-Suppress", "Precedence", "X-Digestd-Id", "List-Unsubscribe",
            "List-Unsubscribe-Post", "X-Stream", "MIME-Version", "Content-Type",
        ]);
        let one = |list: Option<&mail_parser::Address<'_>>| {
            let all: Vec<String> = list.unwrap().iter().filter_map(|a| a.address().map(str::to_owned)).collect();
            all
        };
        prop_assert_eq!(one(parsed.to()), ["ana@acme.example"]);
        prop_assert_eq!(one(parsed.from()), ["digest@mail.acme.example"]);
        prop_assert_eq!(parsed.parts.len(), 3);
        prop_assert_eq!(parsed.body_text(0).unwrap().replace("\r\n", "\n"), rendered.text.clone());
        let html = parsed.body_html(0).unwrap();
        prop_assert_eq!(html.matches('<').count(), html.matches('>').count());
        prop_assert!(html.contains("</html>") && html.contains(UNSUBSCRIBE));
        prop_assert!(!html.contains("<b>") && !html.contains("evil.com"));
        prop_assert!(rendered.text.contains(UNSUBSCRIBE) && !rendered.text.contains("evil.com"));
    }
}
