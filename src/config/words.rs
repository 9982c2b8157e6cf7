//! Choices: closed sets of words.

use super::kind::Kind;
use super::text::Setting;

/// An enum whose values are words of the configuration.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$value_doc])* $value,)+ }

        impl $name {
            /// The words, in the order of the values.
            pub const NAMES: &'static [&'static str] = &[$($word),+];
        }

        impl Setting for $name {
            fn parse(text: &str, _: Kind) -> Result<Self, Option<String>> {
                match text {
                    $($word => Ok(Self::$value),)+
                    _ => Err(None),
                }
            }
        }
    };
}

words!(
    /// What to do about the database's schema at start.
    Migrate {
        /// Bring it up to date.
        Auto = "auto",
        /// Refuse to start when it is not.
        Check = "check",
    }
);
words!(
    /// Whose reply codes to expect.
    Provider {
        /// Nobody's in particular.
        Generic = "generic",
        /// Amazon SES.
        Ses = "ses",
    }
);
words!(
    /// What a new installation does about slots that opened before it.
    FirstStart {
        /// Wait for the next one.
        Wait = "wait",
        /// Send as after an outage.
        CatchUp = "catch_up",
    }
);
words!(
    /// What to do for a week in which nothing happened.
    Empty {
        /// Send nothing.
        Skip = "skip",
        /// Send a short note.
        Send = "send",
    }
);
words!(
    /// What becomes of an uncertain message.
    OnUncertain {
        /// It waits for a person.
        Hold = "hold",
        /// It is sent again, 30 minutes after its marker.
        Resend = "resend",
    }
);
words!(
    /// The word of `guard.backend`.
    GuardBackend {
        /// No guard.
        Off = "off",
        /// Our own database.
        Sql = "sql",
        /// Redis.
        Redis = "redis",
    }
);
words!(
    /// What to do when the guard cannot be asked.
    OnUnavailable {
        /// Send.
        Open = "open",
        /// Wait.
        Closed = "closed",
    }
);
words!(
    /// What a section's rows are.
    SectionKind {
        /// A list.
        Rows = "rows",
        /// Numbers with a label.
        Figures = "figures",
    }
);
words!(
    /// What to do when a section's query fails.
    OnError {
        /// Fail the attempt.
        Fail = "fail",
        /// Leave the section out and say so.
        OmitWithNote = "omit_with_note",
    }
);
words!(
    /// For whom logs are written.
    LogFormat {
        /// People.
        Text = "text",
        /// Collectors.
        Json = "json",
    }
);
