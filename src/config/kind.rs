//! What values look like, in a table and in words.

/// What the value of a key looks like.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Free text on one line.
    Text,
    /// Free text, on several lines if need be.
    Lines,
    /// A statement of the operator's own.
    Sql,
    /// A short name: small letters, digits, `_`, not starting with a digit.
    Name,
    /// A path, relative to the working directory.
    Path,
    /// A secret without any form of its own.
    Secret,
    /// `true` or `false`.
    Bool,
    /// A whole number between two bounds, both included.
    Int(u32, u32),
    /// A duration between two bounds, both included.
    Duration(&'static str, &'static str),
    /// A list of durations, each at least a second.
    Durations,
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// A day of the week.
    Weekday,
    /// A time of day.
    Time,
    /// An IANA time zone.
    Zone,
    /// A BCP 47 language tag.
    Locale,
    /// A bare mail address.
    Address,
    /// A mail address, with or without a name.
    Mailbox,
    /// A host name.
    Host,
    /// An address to listen on.
    Listen,
    /// So many per second, minute or hour.
    Pace,
    /// An HTTP or HTTPS address.
    HttpUrl,
    /// A link that may stand in a mail.
    Link,
    /// Where a database is.
    DatabaseUrl,
    /// Where mails go.
    RelayUrl,
    /// Where Redis is.
    RedisUrl,
    /// A colour.
    Colour,
}

impl Kind {
    /// The values accepted, in words that follow “expected”, with examples.
    pub fn expected(self) -> String {
        match self {
            Self::Duration(..) => format!("{}, such as \"90s\", \"15m\", \"36h\" or \"30d\"", self.form()),
            _ => self.form(),
        }
    }

    /// The values accepted.
    pub fn form(self) -> String {
        match self {
            Self::Text => "text on one line".to_owned(),
            Self::Lines => "text".to_owned(),
            Self::Sql => "one SQL statement".to_owned(),
            Self::Name => "a name of small letters, digits and _, not starting with a digit".to_owned(),
            Self::Path => "a path".to_owned(),
            Self::Secret => "a secret".to_owned(),
            Self::Bool => "true or false".to_owned(),
            Self::Int(min, max) => format!("a whole number from {min} to {max}"),
            Self::Duration(min, max) => format!("a duration from {min} to {max}"),
            Self::Durations => "a list of durations of a second or more, such as [\"1m\", \"5m\"]".to_owned(),
            Self::Choice(names) => format!("one of {}", names.join(", ")),
            Self::Weekday => "a day such as monday".to_owned(),
            Self::Time => "a time of day such as \"08:00\"".to_owned(),
            Self::Zone => "an IANA time zone such as Europe/Berlin".to_owned(),
            Self::Locale => "a language tag such as en or pt-BR".to_owned(),
            Self::Address => "a mail address such as digests@example.com".to_owned(),
            Self::Mailbox => "a mail address, or a name and one: Digests <digests@example.com>".to_owned(),
            Self::Host => "a host name".to_owned(),
            Self::Listen => "an IP address and a port, such as 0.0.0.0:8080".to_owned(),
            Self::Pace => "a pace such as 14/s, 500/min or 2000/h".to_owned(),
            Self::HttpUrl => {
                "an address https://host/path without user, query or fragment (http:// for loopback)"
                    .to_owned()
            }
            Self::Link => "an https:// link".to_owned(),
            Self::DatabaseUrl => "postgres://user@host/database or sqlite:PATH".to_owned(),
            Self::RelayUrl => {
                "smtps://host:465, smtp://host:587?tls=starttls, smtp+plaintext://127.0.0.1:25 or file:DIR"
                    .to_owned()
            }
            Self::RedisUrl => "redis://host:6379/0 or rediss://host:6379/0".to_owned(),
            Self::Colour => "a colour such as #1d4ed8".to_owned(),
        }
    }

    /// Whether the form says more than the name of a key does.
    pub fn is_telling(self) -> bool {
        !matches!(self, Self::Text | Self::Lines | Self::Sql | Self::Path | Self::Secret | Self::Bool)
    }

    /// Whether values are words and numbers, which nobody takes for a secret's place.
    pub fn is_harmless(self) -> bool {
        matches!(
            self,
            Self::Bool
                | Self::Int(..)
                | Self::Duration(..)
                | Self::Durations
                | Self::Choice(_)
                | Self::Weekday
                | Self::Time
                | Self::Zone
                | Self::Locale
                | Self::Listen
                | Self::Pace
                | Self::Colour
        )
    }
}
