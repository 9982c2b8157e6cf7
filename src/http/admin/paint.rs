//! From values to pages: our templates, our one style sheet, and the policy that allows nothing else.

use std::sync::LazyLock;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, UndefinedBehavior, context};
use serde::Serialize;
use sha2::{Digest, Sha256};

const STYLE: &str = include_str!("../../../templates/admin/admin.css");

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../templates/admin/", $name)))),*]
    };
}

const FILES: [(&str, &str); 12] = files![
    "base.html",
    "macros.html",
    "login.html",
    "trouble.html",
    "week.html",
    "orgs.html",
    "org.html",
    "message.html",
    "queue.html",
    "relay.html",
    "replicas.html",
    "resend.html",
];

static TEMPLATES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut templates = Environment::new();
    templates.set_undefined_behavior(UndefinedBehavior::Strict);
    templates.add_filter("utc", utc);
    templates.add_filter("number", number);
    for (name, text) in FILES {
        #[expect(clippy::expect_used, reason = "the templates are constants, and the tests compile them")]
        templates.add_template(name, text).expect("a template without errors");
    }
    templates
});

/// Our style by its hash, our forms, and a frame of ours: no scripts, no images, nothing from elsewhere.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let style = STANDARD.encode(Sha256::digest(STYLE.as_bytes()));
    let text = format!(
        "default-src 'none'; style-src 'sha256-{style}'; frame-src 'self'; form-action 'self'; \
         base-uri 'none'; frame-ancestors 'none'"
    );
    // Base64 is ASCII, so the value is valid; the fallback is stricter still.
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("default-src 'none'"))
});

/// The part of the pages that a page belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Part {
    Week,
    Orgs,
    Queue,
    Relay,
    Replicas,
}

/// What every page of somebody who is signed in shows.
#[derive(Debug, Serialize)]
pub(super) struct Frame<'a> {
    /// The part to mark in the navigation.
    pub part: Part,
    /// What each form carries.
    pub form_token: &'a str,
    /// What has just been done.
    pub notice: Option<String>,
}

/// A page for somebody who is signed in.
pub(super) fn page(name: &str, frame: &Frame<'_>, content: &impl Serialize) -> Response {
    let values = context! { frame => Value::from(Serde(frame)), ..Value::from(Serde(content)) };
    render(StatusCode::OK, name, &values)
}

/// A page without navigation.
pub(super) fn bare(status: StatusCode, name: &str, content: &impl Serialize) -> Response {
    let values = context! { frame => (), ..Value::from(Serde(content)) };
    render(status, name, &values)
}

fn render(status: StatusCode, name: &str, values: &Value) -> Response {
    let html = TEMPLATES
        .get_template(name)
        .and_then(|template| template.render(context! { style => STYLE, ..values.clone() }));
    let mut response = match html {
        Ok(html) => (status, Html(html)).into_response(),
        Err(error) => {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                page = name,
                "An admin page could not be rendered"
            );
            (StatusCode::INTERNAL_SERVER_ERROR, "this page could not be rendered; the log says why\n")
                .into_response()
        }
    };
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, POLICY.clone());
    response
}

/// `2026-07-06 06:00:00` of `2026-07-06T06:00:00.123Z`.
fn utc(text: &str) -> String {
    text.chars().take(19).map(|c| if c == 'T' { ' ' } else { c }).collect()
}

/// `12,040`.
fn number(count: u64) -> String {
    let digits = count.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_numbers_read_well() {
        assert_eq!(utc("2026-07-06T06:00:00.123456Z"), "2026-07-06 06:00:00");
        for (count, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(number(count), text);
        }
    }

    #[test]
    fn every_template_compiles_and_none_runs_scripts_or_styles_of_its_own() {
        assert_eq!(TEMPLATES.templates().count(), FILES.len());
        for (name, text) in FILES {
            for word in ["<script", "javascript:", " style=", " onclick", "http://", "https://"] {
                assert!(!text.contains(word), "{name}: {word}");
            }
            // Escaping is switched off for our own constants alone.
            let unescaped = text.matches("|safe").count() + text.matches("autoescape").count();
            assert_eq!(unescaped, usize::from(name == "base.html"), "{name}");
        }
    }
}
