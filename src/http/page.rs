//! The unsubscribe page: one template, no scripts, nothing from elsewhere.

use std::fmt;

use axum::http::{HeaderValue, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, context};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::PageSettings;
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
    problem: Option<&'static str>,
    notice: Option<String>,
    choices: Vec<Choice>,
    quiet: Option<&'static str>,
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
        Self { templates, settings, policy: policy() }
    }

    /// The content security policy of every answer: our style and our forms, nothing else.
    pub(super) fn policy(&self) -> HeaderValue {
        self.policy.clone()
    }

    /// The page of a good link.
    pub(super) fn standing(&self, standing: Standing<'_>, done: Done) -> Response {
        self.render(StatusCode::OK, &content(standing, done))
    }

    /// The page that says why nothing was done.
    pub(super) fn trouble(&self, trouble: Trouble) -> Response {
        let (status, title, problem) = match trouble {
            Trouble::UnknownLink => (
                StatusCode::NOT_FOUND,
                "This link does not work",
                "It may have been cut off. Please use the link at the end of the latest e-mail.",
            ),
            Trouble::Unavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "Not possible right now",
                "Your choice could not be read or stored. Please try again in a few minutes.",
            ),
            Trouble::TooMany => (
                StatusCode::TOO_MANY_REQUESTS,
                "Not possible right now",
                "There are too many requests at the moment. Please try again in a few minutes.",
            ),
            Trouble::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "Nothing was changed",
                "More was sent than this page expects.",
            ),
            Trouble::Unreadable => (
                StatusCode::BAD_REQUEST,
                "Nothing was changed",
                "The form did not arrive whole. Please try again.",
            ),
        };
        self.render(
            status,
            &Content { title: title.to_owned(), problem: Some(problem), ..Content::default() },
        )
    }

    fn render(&self, status: StatusCode, content: &Content) -> Response {
        let html = self.templates.get_template(NAME).and_then(|template| {
            template.render(context! {
                product => self.settings.product.as_str(),
                settings => self.settings.settings_url.as_deref(),
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

fn content(standing: Standing<'_>, done: Done) -> Content {
    let digest = match standing.org_name {
        Some(name) => format!("the weekly digest of {name}"),
        None => "this weekly digest".to_owned(),
    };
    let org = || choice(ACTION_ORG, format!("Stop {digest}"), false);
    let all = |label: &str| choice(ACTION_ALL, label.to_owned(), true);
    let again =
        || choice(ACTION_RESUBSCRIBE, format!("Get {digest} again"), standing.org_off && !standing.all_off);
    let off = standing.org_off || standing.all_off;
    let title = match (done, off) {
        (Done::Nothing, false) => "Unsubscribe?",
        (Done::Stored, false) => "You are subscribed again",
        (_, true) => "You are unsubscribed",
    };
    let notice = if standing.all_off {
        "You will get no more digests from here.".to_owned()
    } else if standing.org_off {
        format!("You will not get {digest} any more.")
    } else if done == Done::Stored {
        format!("You will get {digest} again.")
    } else {
        format!("You get {digest} by e-mail.")
    };
    let choices = if standing.all_off {
        vec![again()]
    } else if standing.org_off {
        vec![again(), all("Stop all other digests, too")]
    } else {
        vec![org(), all("Stop all digests from here")]
    };
    let quiet = off.then_some("Messages that are on their way already may still arrive.");
    Content { title: title.to_owned(), problem: None, notice: Some(notice), choices, quiet }
}

fn choice(action: &'static str, label: String, second: bool) -> Choice {
    Choice { action, label, second }
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
        let content = content(Standing { org_name: Some("Acme"), org_off, all_off }, done);
        let actions: Vec<_> = content.choices.iter().map(|c| c.action).collect();
        format!("{} | {} | {}", content.title, content.notice.unwrap_or_default(), actions.join(" "))
    }

    #[test]
    fn the_page_says_what_is_and_offers_the_rest() {
        let digest = "the weekly digest of Acme";
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
