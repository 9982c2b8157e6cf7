//! What has just been done, told on the page after it. The link carries names and numbers of a closed set
//! only, so that nobody can put words of their own on a page of ours.

use std::fmt;

use super::fields::Fields;
use super::links::link;

/// What has been done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notice {
    Paused,
    Resumed,
    Reopened,
    NotReopened,
    Resent,
    ResentBefore,
    Acted { act: Act, done: u32, left: u32 },
}

/// What was done to messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Retry,
    Cancel,
    Accepted,
    Resend,
}

impl Act {
    const ALL: [Self; 4] = [Self::Retry, Self::Cancel, Self::Accepted, Self::Resend];

    /// The name in forms and links.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Cancel => "cancel",
            Self::Accepted => "accepted",
            Self::Resend => "resend",
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|act| act.as_str() == text)
    }

    const fn did(self) -> &'static str {
        match self {
            Self::Retry => "will be tried again",
            Self::Cancel => "cancelled",
            Self::Accepted => "settled as accepted",
            Self::Resend => "will be sent again",
        }
    }

    const fn why_not(self) -> &'static str {
        match self {
            Self::Retry => {
                "not failed, expired or cancelled, or older than 6 days, or without its body, or to an address that has opted out or is suppressed"
            }
            Self::Cancel => "not waiting: it has left or ended already, or is being handed over just now",
            Self::Accepted => "not uncertain any more",
            Self::Resend => {
                "not uncertain, or handed over less than 30 minutes ago, or past delivery.max_age or delivery.max_attempts"
            }
        }
    }
}

impl Notice {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::Resumed => "resumed",
            Self::Reopened => "reopened",
            Self::NotReopened => "not_reopened",
            Self::Resent => "resent",
            Self::ResentBefore => "resent_before",
            Self::Acted { act, .. } => act.as_str(),
        }
    }

    /// The notice that a link carries.
    pub(super) fn of(query: &Fields) -> Option<Self> {
        let name = query.get("notice")?;
        let plain = [
            Self::Paused,
            Self::Resumed,
            Self::Reopened,
            Self::NotReopened,
            Self::Resent,
            Self::ResentBefore,
        ];
        plain.into_iter().find(|notice| notice.as_str() == name).or_else(|| {
            let (done, left) = (query.count("done"), query.count("left"));
            Act::parse(name).map(|act| Self::Acted { act, done, left })
        })
    }

    /// A link to a page that shows it.
    pub(super) fn on(self, path: &str, query: &[(&str, &str)]) -> String {
        let mut query = query.to_vec();
        query.push(("notice", self.as_str()));
        let Self::Acted { done, left, .. } = self else { return link(path, &query) };
        let (done, left) = (done.to_string(), left.to_string());
        query.extend([("done", done.as_str()), ("left", left.as_str())]);
        link(path, &query)
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Paused => "Deliveries are paused. Digests are still made.",
            Self::Resumed => "Deliveries go on.",
            Self::Reopened => {
                "The send is open again. Whichever replica comes first works on it, within a day."
            }
            Self::NotReopened => "Nothing was changed: the send is neither failed nor missed.",
            Self::Resent => {
                "The digest will be sent once more. Whichever replica comes first makes and delivers it."
            }
            Self::ResentBefore => "Nothing was added: this resend had been asked for already.",
            Self::Acted { act, done, left } => {
                write!(f, "{}: {}.", counted(*done), act.did())?;
                return match left {
                    0 => Ok(()),
                    left => write!(f, " {} left alone: {}.", counted(*left), act.why_not()),
                };
            }
        })
    }
}

fn counted(count: u32) -> String {
    if count == 1 { "1 message".to_owned() } else { format!("{count} messages") }
}
