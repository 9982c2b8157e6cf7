//! The operator's pages under `/admin`.
//!
//! | route | what |
//! |---|---|
//! | `/admin/login`, `/admin/logout` | [`door`]: the token in, a signed cookie out |
//! | `/admin` | [`week`]: a week by state, zone and hour |
//! | `/admin/orgs`, `/admin/org` | [`orgs`], [`org`]: the search, and one org's story |
//! | `/admin/queue`, `/admin/message` | [`queue`], [`message`]: messages, and what may be done to them |
//! | `/admin/relay`, `/admin/replicas` | [`relay`], [`replicas`] |
//! | `/admin/resend` | [`resend`]: a digest once more, after a confirmation |
//!
//! Everything is rendered here and works without scripts. Pages are read by GET and change nothing; a change
//! is a POST that carries the token of its page, and ends in a redirect. What is done is done by the same
//! functions that the command line calls.

mod desk;
mod door;
mod fields;
mod links;
mod message;
mod notice;
mod org;
mod orgs;
mod paint;
mod queue;
mod relay;
mod replicas;
mod resend;
mod session;
mod trouble;
mod week;

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::response::IntoResponse as _;
use axum::routing::get;
use chrono::TimeDelta;
use secrecy::SecretString;
use tokio::sync::Semaphore;

use super::strikes::Strikes;
use crate::ledger::Ledger;
pub(in crate::http) use session::Keys;
use trouble::Trouble;

/// Pages worked on at the same time: delivery needs the database's connections more.
const AT_ONCE: usize = 2;
/// A form that names a page of messages, with room.
const MAX_FORM_BYTES: usize = 32 * 1024;

/// What the admin pages are made from.
#[derive(Debug)]
pub struct AdminSettings {
    /// What opens them.
    pub token: SecretString,
    /// The stories, and all rows.
    pub ledger: Ledger,
    /// The relay's name in the database.
    pub relay: String,
    /// How long a message that is tried again is tried.
    pub max_age: TimeDelta,
    /// As many charged attempts end a message.
    pub max_attempts: u32,
}

/// The settings, ready for work.
pub(in crate::http) struct Office {
    keys: Keys,
    strikes: Strikes,
    turns: Semaphore,
    ledger: Ledger,
    relay: String,
    max_age: TimeDelta,
    max_attempts: u32,
}

impl Office {
    pub(in crate::http) fn new(settings: AdminSettings) -> Self {
        let AdminSettings { token, ledger, relay, max_age, max_attempts } = settings;
        Self {
            keys: Keys::new(&token),
            strikes: Strikes::default(),
            turns: Semaphore::new(AT_ONCE),
            ledger,
            relay,
            max_age,
            max_attempts,
        }
    }
}

impl fmt::Debug for Office {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Office").field("relay", &self.relay).finish_non_exhaustive()
    }
}

/// The pages' routes.
pub(in crate::http) fn routes(office: Arc<Office>) -> Router {
    let nothing_here = async || Trouble::NotFound("There is no such page.".to_owned()).into_response();
    Router::new()
        .route("/admin", get(week::show))
        .route("/admin/login", get(door::show).post(door::enter))
        .route("/admin/logout", axum::routing::post(door::leave))
        .route("/admin/orgs", get(orgs::show))
        .route("/admin/org", get(org::show).post(org::reopen))
        .route("/admin/resend", get(resend::show).post(resend::ask))
        .route("/admin/queue", get(queue::show).post(queue::act))
        .route("/admin/message", get(message::show).post(message::act))
        .route("/admin/message/mail", get(message::mail))
        .route("/admin/relay", get(relay::show).post(relay::act))
        .route("/admin/replicas", get(replicas::show))
        .route("/admin/", get(nothing_here))
        .route("/admin/{*path}", get(nothing_here))
        .layer(DefaultBodyLimit::max(MAX_FORM_BYTES))
        .with_state(office)
}
