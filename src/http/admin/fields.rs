//! What a browser sends along: of a link's query, or of a form.

use axum::extract::{Form, Query, Request};
use axum::http::{StatusCode, Uri};
use axum::response::IntoResponse as _;
use axum::{RequestExt as _, extract::rejection::FormRejection};
use chrono::{DateTime, Utc};

use super::trouble::Trouble;
use crate::domain::address::Address;
use crate::domain::ids::{MessageId, OrgId};
use crate::domain::message::MessageState;
use crate::domain::send::SendState;
use crate::domain::week::{SendKey, WeekKey};

/// Texts longer than this are nobody's.
const MAX_CHARS: usize = 1000;

/// Names and values, in their order; without control characters, trimmed.
#[derive(Debug, Clone, Default)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    /// The query of a link.
    pub(super) fn of_query(uri: &Uri) -> Result<Self, Trouble> {
        let Query(pairs) = Query::try_from_uri(uri).map_err(|_| Trouble::unusable("the link's query"))?;
        Self::checked(pairs)
    }

    /// The body of a form.
    pub(super) async fn of_form(request: Request) -> Result<Self, Trouble> {
        let form: Result<Form<Vec<(String, String)>>, FormRejection> = request.extract().await;
        match form {
            Ok(Form(pairs)) => Self::checked(pairs),
            Err(refused) if refused.status() == StatusCode::PAYLOAD_TOO_LARGE => Err(Trouble::TooLarge),
            Err(refused) => {
                drop(refused.into_response());
                Err(Trouble::unusable("the form"))
            }
        }
    }

    fn checked(pairs: Vec<(String, String)>) -> Result<Self, Trouble> {
        let odd = |text: &str| text.chars().any(char::is_control) || text.chars().count() > MAX_CHARS;
        if pairs.iter().any(|(name, value)| odd(name) || odd(value.trim())) {
            return Err(Trouble::unusable("a field, for its length or its characters"));
        }
        Ok(Self(pairs.into_iter().map(|(name, value)| (name, value.trim().to_owned())).collect()))
    }

    /// A field that is not empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, value)| known == name && !value.is_empty())
            .map(|(_, value)| value.as_str())
    }

    /// Every value of a name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The org, which must be there.
    pub(super) fn org(&self, name: &str) -> Result<OrgId, Trouble> {
        let text = self.get(name).ok_or_else(|| Trouble::unusable("a form or link without an org"))?;
        OrgId::parse(text).map_err(|error| Trouble::unusable(&format!("the org: {error}")))
    }

    /// The message, which must be there.
    pub(super) fn message(&self) -> Result<MessageId, Trouble> {
        let text = self.get("id").ok_or_else(|| Trouble::unusable("a link without a message"))?;
        text.parse().map(MessageId).map_err(|_| Trouble::unusable("the message's number"))
    }

    /// All messages.
    pub(super) fn messages(&self) -> Result<Vec<MessageId>, Trouble> {
        let parse = |text: &str| text.parse().map(MessageId);
        let ids: Result<Vec<_>, _> = self.all("id").map(parse).collect();
        ids.map_err(|_| Trouble::unusable("a message's number"))
    }

    /// A message to begin after, on a page that is not the first.
    pub(super) fn after_message(&self) -> Result<Option<MessageId>, Trouble> {
        let parse = |text: &str| text.parse().map(MessageId);
        self.get("after").map(parse).transpose().map_err(|_| Trouble::unusable("the page's beginning"))
    }

    pub(super) fn week(&self) -> Result<Option<WeekKey>, Trouble> {
        let week = self.get("week").map(WeekKey::parse).transpose();
        week.map_err(|error| Trouble::unusable(&format!("the week: {error}")))
    }

    /// A week, or a resend's own key.
    pub(super) fn key(&self) -> Result<Option<SendKey>, Trouble> {
        let key = self.get("week").map(SendKey::parse).transpose();
        key.map_err(|error| Trouble::unusable(&format!("the week: {error}")))
    }

    pub(super) fn to(&self) -> Result<Option<Address>, Trouble> {
        let to = self.get("to").map(Address::parse).transpose();
        to.map_err(|error| Trouble::unusable(&format!("the address: {error}")))
    }

    pub(super) fn message_state(&self) -> Result<Option<MessageState>, Trouble> {
        self.get("state")
            .map(|text| MessageState::parse(text).ok_or_else(|| Trouble::unusable("the state")))
            .transpose()
    }

    pub(super) fn send_state(&self) -> Result<Option<SendState>, Trouble> {
        self.get("state")
            .map(|text| SendState::parse(text).ok_or_else(|| Trouble::unusable("the state")))
            .transpose()
    }

    /// A moment of this page's own making, in milliseconds.
    pub(super) fn moment(&self, name: &str) -> Result<DateTime<Utc>, Trouble> {
        let moment = self.get(name).and_then(|text| text.parse().ok());
        moment
            .and_then(DateTime::from_timestamp_millis)
            .ok_or_else(|| Trouble::unusable("a form without its moment"))
    }

    /// A small number of our own making; zero for anything else.
    pub(super) fn count(&self, name: &str) -> u32 {
        self.get(name).and_then(|text| text.parse().ok()).unwrap_or_default()
    }
}
