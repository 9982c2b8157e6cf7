//! The unsubscribe page: one template, no scripts, nothing from elsewhere.

use std::fmt;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, context};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::PageSettings;
use super::words::{Language, Words};
use crate::domain::token::Scope;

const NAME: &str = "unsubscribe.html";
const TEMPLATE: &str = include_str!("../../templates/pages/unsubscribe.html");
const STYLE: &str = include_str!("../../templates/pages/unsubscribe.css");

/// The values of the form field `action`. What one click posts has no such field.
pub(super) const ACTION_ORG: &str = "org";
pub(super) const ACTION_ALL: &str = "all";
pub(super) const ACTION_RESUBSCRIBE: &str = "resubscribe";

/// Renders pages.
pub(super) struct Page {
    templates: Environment<'static>,
    words: Words,
    settings: PageSettings,
    policy: HeaderValue,
}

/// What a good link's page shows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing<'a> {
    /// The org's name, while it is known here.
    pub org_name: Option<&'a str>,
    /// Whether this org's digest is off.
    pub org_off: bool,
    /// Whether all digests are off.
    pub all_off: bool,
}

impl Standing<'_> {
    /// The standing by what is opted out.
    pub(super) fn of<'a>(org_name: Option<&'a str>, scopes: &[Scope]) -> Standing<'a> {
        Standing { org_name, org_off: scopes.contains(&Scope::Org), all_off: scopes.contains(&Scope::All) }
    }
}

/// What has just been done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    /// Nothing: the page was only opened.
    Nothing,
    /// Something was stored.
    Stored,
}

/// Why nothing could be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Not a link of ours, or of a message that we never sent; which of the two is not told.
    UnknownLink,
    /// The database did not answer in time.
    Unavailable,
    /// Too many requests.
    TooMany,
    /// The form was larger than any form of ours.
    TooLarge,
    /// The form did not arrive whole.
    Unreadable,
}

#[derive(Debug, Default, Serialize)]
struct Content {
    title: String,
    problem: Option<String>,
    notice: Option<String>,
    choices: Vec<Choice>,
    quiet: Option<String>,
}

#[derive(Debug, Serialize)]
struct Choice {
    action: &'static str,
    label: String,
    second: bool,
}

impl Page {
    pub(super) fn new(settings: PageSettings) -> Self {
        let mut templates = Environment::new();
        #[expect(clippy::expect_used, reason = "the template is a constant, and the tests render it")]
        templates.add_template(NAME, TEMPLATE).expect("a template without errors");
        Self { templates, words: Words::new(), settings, policy: policy() }
    }

    /// The content security policy of every answer: our style and our forms, nothing else.
    pub(super) fn policy(&self) -> HeaderValue {
        self.policy.clone()
    }

    /// The language that the browser prefers among ours.
    pub(super) fn language(&self, headers: &HeaderMap) -> &Language {
        let accepted = headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok());
        self.words.nearest(accepted.unwrap_or_default())
    }

    /// The page of a good link.
    pub(super) fn standing(&self, language: &Language, standing: Standing<'_>, done: Done) -> Response {
        self.render(StatusCode::OK, language, &content(language, standing, done))
    }

    /// The page that says why nothing was done.
    pub(super) fn trouble(&self, language: &Language, trouble: Trouble) -> Response {
        let (status, title, problem) = match trouble {
            Trouble::UnknownLink => (StatusCode::NOT_FOUND, "unknown-title", "unknown"),
            Trouble::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "busy-title", "unavailable"),
            Trouble::TooMany => (StatusCode::TOO_MANY_REQUESTS, "busy-title", "too-many"),
            Trouble::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "unchanged-title", "too-large"),
            Trouble::Unreadable => (StatusCode::BAD_REQUEST, "unchanged-title", "unreadable"),
        };
        let (title, problem) = (language.say(title, None), Some(language.say(problem, None)));
        self.render(status, language, &Content { title, problem, ..Content::default() })
    }

    fn render(&self, status: StatusCode, language: &Language, content: &Content) -> Response {
        let html = self.templates.get_template(NAME).and_then(|template| {
            template.render(context! {
                lang => language.tag,
                dir => language.say("dir", None),
                product => self.settings.product.as_str(),
                settings => self.settings.settings_url.as_deref(),
                settings_label => language.say("settings", None),
                style => STYLE,
                ..Value::from(Serde(content))
            })
        });
        match html {
            Ok(html) => (status, Html(html)).into_response(),
            // What was stored stays stored, and the status says so, page or no page.
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "The unsubscribe page could not be rendered"
                );
                (status, content.title.clone()).into_response()
            }
        }
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("settings", &self.settings).finish_non_exhaustive()
    }
}

fn content(language: &Language, standing: Standing<'_>, done: Done) -> Content {
    let say = |id| language.say(id, standing.org_name);
    let choice = |action, label, second| Choice { action, label: say(label), second };
    let off = standing.org_off || standing.all_off;
    let title = match (done, off) {
        (Done::Nothing, false) => "ask-title",
        (Done::Stored, false) => "on-title",
        (_, true) => "off-title",
    };
    let notice = match (standing.all_off, standing.org_off, done) {
        (true, _, _) => "is-off-all",
        (false, true, _) => "is-off-org",
        (false, false, Done::Stored) => "now-on",
        (false, false, Done::Nothing) => "is-on",
    };
    let choices = if standing.all_off {
        vec![choice(ACTION_RESUBSCRIBE, "again", false)]
    } else if standing.org_off {
        vec![choice(ACTION_RESUBSCRIBE, "again", true), choice(ACTION_ALL, "stop-others", true)]
    } else {
        vec![choice(ACTION_ORG, "stop-org", false), choice(ACTION_ALL, "stop-all", true)]
    };
    let quiet = off.then(|| say("on-their-way"));
    Content { title: say(title), problem: None, notice: Some(say(notice)), choices, quiet }
}

fn policy() -> HeaderValue {
    let style = STANDARD.encode(Sha256::digest(STYLE.as_bytes()));
    let text = format!(
        "default-src 'none'; style-src 'sha256-{style}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    );
    // Base64 is ASCII, so the value is valid; the fallback is stricter still.
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("default-src 'none'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(org_off: bool, all_off: bool, done: Done) -> String {
        let words = Words::new();
        let content =
            content(words.nearest("en"), Standing { org_name: Some("Acme"), org_off, all_off }, done);
        let actions: Vec<_> = content.choices.iter().map(|c| c.action).collect();
        format!("{} | {} | {}", content.title, content.notice.unwrap_or_default(), actions.join(" "))
    }

    #[test]
    fn the_page_says_what_is_and_offers_the_rest() {
        let digest = "the weekly digest of \u{2068}Acme\u{2069}";
        assert_eq!(
            shown(false, false, Done::Nothing),
            format!("Unsubscribe? | You get {digest} by e-mail. | org all")
        );
        assert_eq!(
            shown(true, false, Done::Stored),
            format!("You are unsubscribed | You will not get {digest} any more. | resubscribe all")
        );
        assert_eq!(
            shown(false, true, Done::Nothing),
            "You are unsubscribed | You will get no more digests from here. | resubscribe"
        );
        assert_eq!(
            shown(false, false, Done::Stored),
            format!("You are subscribed again | You will get {digest} again. | org all")
        );
    }
}
