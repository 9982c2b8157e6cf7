//! From gathered data to messages: one draft per recipient, whatever is wrong with some of them.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use chrono::{DateTime, Utc};

use crate::domain::address::Address;
use crate::domain::digest::{DigestInput, Recipient, Rendered};
use crate::domain::fingerprint::Fingerprint;
use crate::domain::message::{Draft, DraftContent, MessageReason, MessageState, MessageUid};
use crate::domain::token::{KeyRing, Scope, SubscriptionRef};
use crate::mail::compose::{ComposeError, Sender, compose};
use crate::render::{Brand, Links, RenderError, Templates};

/// What turns data into messages; compiled and checked once at start.
#[derive(Debug)]
pub struct Drafter {
    /// The templates.
    pub templates: Templates,
    /// How the mail looks and whose it is.
    pub brand: Brand,
    /// From whom it comes.
    pub sender: Sender,
    /// Where our pages are, for unsubscribe links.
    pub public_url: String,
    /// The application's own page for e-mail settings, for the footer.
    pub settings_url: Option<String>,
    /// What signs unsubscribe links.
    pub keys: KeyRing,
}

/// Why one recipient's mail could not be made.
#[derive(Debug, thiserror::Error)]
pub enum DraftError {
    /// The templates failed on this data.
    #[error("the digest could not be rendered")]
    Render(#[from] RenderError),
    /// The message could not be put together.
    #[error("the message could not be composed")]
    Compose(#[from] ComposeError),
    /// The templates or a filter panicked on this data.
    #[error("rendering panicked")]
    Panic,
}

/// The drafts of one org, and what was wrong with some of them.
#[derive(Debug)]
pub struct Drafts {
    /// One per distinct address.
    pub drafts: Vec<Draft>,
    /// The first rendering that failed, if every rendering failed.
    pub all_failed: Option<DraftError>,
}

impl Drafter {
    /// One draft per distinct address. `only` keeps everybody else out of a resend to one admin.
    pub fn drafts(&self, input: &DigestInput, only: Option<&Address>, date: DateTime<Utc>) -> Drafts {
        let mut drafts: BTreeMap<String, Draft> = BTreeMap::new();
        let mut first_error = None;
        let mut rendered = 0_usize;
        for recipient in &input.recipients {
            let key = match &recipient.address {
                Ok(address) => address.normal().to_owned(),
                // Without what the table would not keep: two rows that look alike there would be one too many.
                Err(broken) => broken.raw.chars().filter(|c| !c.is_control()).collect(),
            };
            let wanted = only.is_none_or(|only| only.normal() == key);
            // Two admins with one address get one message: the first one's.
            if !wanted || drafts.contains_key(&key) {
                continue;
            }
            let uid = MessageUid::derive(&input.org, input.key, &key);
            let content = match &recipient.address {
                Err(_) => DraftContent::Final(MessageState::Failed, MessageReason::BadAddress),
                Ok(address) => match self.message(input, recipient, address, &uid, date) {
                    Ok(content) => {
                        rendered += 1;
                        content
                    }
                    Err(error) => {
                        tracing::error!(
                            org.id = %input.org, send.week_key = %input.key, user.id = %recipient.user,
                            error = &error as &dyn std::error::Error,
                            "a recipient's digest could not be made; the others go on"
                        );
                        first_error.get_or_insert(error);
                        DraftContent::Final(MessageState::Failed, MessageReason::RenderFailed)
                    }
                },
            };
            let (user, org_name) = (recipient.user.clone(), input.org_name.clone());
            drafts.insert(key.clone(), Draft { user, org_name, address: key, uid, content });
        }
        let all_failed = first_error.filter(|_| rendered == 0);
        Drafts { drafts: drafts.into_values().collect(), all_failed }
    }

    fn message(
        &self,
        input: &DigestInput,
        recipient: &Recipient,
        to: &Address,
        uid: &MessageUid,
        date: DateTime<Utc>,
    ) -> Result<DraftContent, DraftError> {
        let bytes = catch_unwind(AssertUnwindSafe(|| self.bytes(input, recipient, to, uid, date)))
            .unwrap_or(Err(DraftError::Panic))?;
        let mut dedupe_key = format!("{} {}", input.org, input.key);
        let redirect_to = self.sender.redirect_to.as_ref();
        if redirect_to.is_some() {
            // A staging installation that shares a guard must not keep the real mail from anybody.
            dedupe_key.push_str(" redirected");
        }
        let fingerprint = Fingerprint::derive(to.normal(), self.templates.name(), &dedupe_key);
        Ok(DraftContent::Message { to: redirect_to.unwrap_or(to).clone(), fingerprint, bytes })
    }

    /// The final bytes of one recipient's message.
    pub fn bytes(
        &self,
        input: &DigestInput,
        recipient: &Recipient,
        to: &Address,
        uid: &MessageUid,
        date: DateTime<Utc>,
    ) -> Result<Vec<u8>, DraftError> {
        let (rendered, unsubscribe) = self.rendered(input, recipient, to)?;
        self.composed(&rendered, recipient, to, uid, date, &unsubscribe)
    }

    /// One recipient's digest in words, and the link by which they leave.
    pub fn rendered(
        &self,
        input: &DigestInput,
        recipient: &Recipient,
        to: &Address,
    ) -> Result<(Rendered, String), DraftError> {
        let token = self.keys.sign(SubscriptionRef::derive(&input.org, to.normal()), Scope::Org);
        let unsubscribe = token.link(&self.public_url);
        let links = Links { unsubscribe: unsubscribe.clone(), settings: self.settings_url.clone() };
        Ok((self.templates.render(input, recipient, &links, &self.brand)?, unsubscribe))
    }

    /// The final bytes of a digest in words.
    pub fn composed(
        &self,
        rendered: &Rendered,
        recipient: &Recipient,
        to: &Address,
        uid: &MessageUid,
        date: DateTime<Utc>,
        unsubscribe: &str,
    ) -> Result<Vec<u8>, DraftError> {
        let name = recipient.name.as_deref();
        Ok(compose(rendered, to, name, uid, date, &self.sender, Some(unsubscribe))?)
    }
}
