//! The pages: what there is, and one mail in all its forms.

use std::fmt;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, context};
use sha2::{Digest, Sha256};

use super::{Choice, List, Mail, ShelfError, mime};

const LIST: &str = include_str!("../../../templates/pages/viewer-list.html");
const MAIL: &str = include_str!("../../../templates/pages/viewer-mail.html");
const STYLE: &str = include_str!("../../../templates/pages/viewer.css");
const SCRIPT: &str = include_str!("../../../templates/pages/viewer.js");

/// Gmail clips a mail whose HTML is larger than about this (docs/design.md).
const HTML_BUDGET_KB: usize = 95;
/// The question that a mail asks of a screen, and what it is answered with.
const ASKS_FOR_DARK: &str = "(prefers-color-scheme: dark)";

/// A mail runs nothing, sends nothing, and shows images from elsewhere at most.
const PART_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src https: data:; base-uri 'none'; \
                           form-action 'none'; frame-ancestors 'self'; sandbox allow-popups";

/// Renders pages.
pub(super) struct Pages {
    templates: Environment<'static>,
    policy: HeaderValue,
}

impl Pages {
    pub(super) fn new() -> Self {
        let mut templates = Environment::new();
        for (name, text) in [("list.html", LIST), ("mail.html", MAIL)] {
            #[expect(clippy::expect_used, reason = "the template is a constant, and the tests render it")]
            templates.add_template(name, text).expect("a valid template");
        }
        Self { templates, policy: policy() }
    }

    /// What there is to look at.
    pub(super) fn list(
        &self,
        title: &str,
        wanted: &str,
        found: Result<List, ShelfError>,
        version: u64,
    ) -> Response {
        let (status, list, problem) = match found {
            Ok(list) => (StatusCode::OK, list, None),
            Err(error) => (StatusCode::UNPROCESSABLE_ENTITY, List::default(), Some(error.0)),
        };
        let values = context! { title, wanted, version, problem, ..Value::from(Serde(list)) };
        self.page("list.html", status, values)
    }

    /// One mail.
    pub(super) fn mail(
        &self,
        title: &str,
        choice: &Choice,
        found: Result<Option<Mail>, ShelfError>,
        version: u64,
    ) -> Response {
        let (status, mail, problem) = match found {
            Ok(Some(mail)) => (StatusCode::OK, Some(mail), None),
            Ok(None) => (StatusCode::NOT_FOUND, None, Some("There is no such mail.".to_owned())),
            Err(error) => (StatusCode::UNPROCESSABLE_ENTITY, None, Some(error.0)),
        };
        let values =
            context! { title, version, problem, choice => Serde(choice), ..described(mail.as_ref()) };
        self.page("mail.html", status, values)
    }

    fn page(&self, name: &str, status: StatusCode, values: Value) -> Response {
        let html = self
            .templates
            .get_template(name)
            .and_then(|template| template.render(context! { style => STYLE, script => SCRIPT, ..values }));
        match html {
            Ok(html) => {
                (status, [(header::CONTENT_SECURITY_POLICY, self.policy.clone())], Html(html)).into_response()
            }
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").finish_non_exhaustive()
    }
}

/// A mail in words and numbers.
fn described(mail: Option<&Mail>) -> Value {
    let Some(mail) = mail else { return context! {} };
    let header = |name| mime::words(&mime::header(&mail.bytes, name).unwrap_or_default());
    let html = mime::html(&mail.bytes);
    let html_bytes = html.as_ref().map_or(0, Vec::len);
    let text = mime::text(&mail.bytes).unwrap_or_default();
    context! {
        subject => header("Subject"),
        from => header("From"),
        to => header("To"),
        has_html => html.is_some(),
        text => String::from_utf8_lossy(&text).replace('\r', ""),
        head => mime::head(&mail.bytes).replace('\r', ""),
        size => kilobytes(mail.bytes.len()),
        html_size => kilobytes(html_bytes),
        html_budget => HTML_BUDGET_KB,
        too_large => html_bytes > HTML_BUDGET_KB * 1000,
        readers => Serde(&mail.readers),
        locales => Serde(&mail.locales),
    }
}

/// `23.4 kB`, in thousands.
fn kilobytes(bytes: usize) -> String {
    format!("{}.{} kB", bytes / 1000, bytes % 1000 / 100)
}

/// The HTML part as a frame shows it: light or dark whatever this screen is, without scripts, and with no
/// more from elsewhere than images over HTTPS, as a mail program has it.
pub(super) fn part(mail: &Mail, dark: bool) -> Response {
    let Some(html) = mime::html(&mail.bytes) else { return StatusCode::NOT_FOUND.into_response() };
    let answer = if dark { "all" } else { "not all" };
    let html = String::from_utf8_lossy(&html).replace(ASKS_FOR_DARK, answer);
    let headers = [(header::CONTENT_SECURITY_POLICY, PART_POLICY)];
    (headers, Html(html)).into_response()
}

fn policy() -> HeaderValue {
    let hash = |text: &str| STANDARD.encode(Sha256::digest(text.as_bytes()));
    let text = format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; \
         frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        hash(STYLE),
        hash(SCRIPT)
    );
    // Base64 is ASCII, so the value is valid; the fallback is stricter still.
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("default-src 'none'"))
}
