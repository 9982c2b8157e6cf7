//! One rendering for all admins of an org who read the same language.

use crate::domain::digest::Rendered;
use crate::domain::token::UnsubscribeToken;
use crate::mail::parts::{Mould, Parts};

/// A digest in words with a stand-in where each recipient's own token belongs.
///
/// The stand-in is random and drawn for each sheet. Were it somebody's token, an application's text that holds
/// the same one, as a link that an admin was once sent, would hand the others' tokens to whoever wrote it.
#[derive(Debug)]
pub(super) struct Sheet {
    words: Rendered,
    stand_in: UnsubscribeToken,
    mould: Option<Mould>,
}

impl Sheet {
    /// Keeps words that were rendered with a stand-in.
    pub fn new(words: Rendered, stand_in: UnsubscribeToken) -> Self {
        let mould = Mould::new(&words, &stand_in);
        Self { words, stand_in, mould }
    }

    /// One recipient's parts.
    pub fn parts(&self, token: &UnsubscribeToken) -> Parts {
        if let Some(mould) = &self.mould {
            return mould.fill(token);
        }
        let filled = |words: &str| words.replace(self.stand_in.as_str(), token.as_str());
        let Rendered { subject, text, html } = &self.words;
        Parts::encode(&Rendered { subject: subject.clone(), text: filled(text), html: filled(html) })
    }
}
