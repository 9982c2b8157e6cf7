//! From gathered data to words: templates, filters, the size budget.
//!
//! [`Templates`] is compiled once at the start and holds no lock while it renders, so that a
//! panic in a rendering can be caught and the next one goes on.

mod brand;
mod budget;
mod files;
mod filters;
mod format;
mod links;
pub mod sample;
mod strings;
mod view;

use std::path::Path;
use std::sync::Arc;

use minijinja::Environment;

pub use brand::{Accent, AccentError, Brand};
pub use files::FILES;
pub use links::{Http, SafeUrl, UrlError};
pub use strings::StringError;
use strings::{Locale, Strings};

use crate::domain::digest::{DigestInput, Recipient, Rendered};
use crate::domain::text;

/// Steps and, at 64 bytes each, output that one template may use; the default digest of
/// 200 entries needs a tenth. An endless loop in an operator's template ends here.
const FUEL: u64 = 2_000_000;
/// Macros and includes within each other.
const RECURSION: usize = 60;
/// The width of the text part (RFC 3676 §4.2 asks for less than 80).
const TEXT_WIDTH: usize = 76;
/// A subject is cut here whatever its template does; the default one stays near 70.
const MAX_SUBJECT_CHARS: usize = 120;

/// The compiled templates and words.
pub struct Templates {
    env: Environment<'static>,
    strings: Strings,
    language: Option<String>,
    /// Whether none of them is an operator's.
    ours: bool,
}

impl std::fmt::Debug for Templates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Templates").finish_non_exhaustive()
    }
}

/// The links of one recipient's footer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Links {
    /// Where this recipient leaves: absolute, without an address in it.
    pub unsubscribe: String,
    /// Where this recipient's settings are, if there is such a page.
    pub settings: Option<String>,
}

/// The templates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// A file could not be read.
    #[error("reading {file}")]
    Read {
        /// The path.
        file: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// A template does not compile.
    #[error("compiling template {file}")]
    Compile {
        /// The name.
        file: String,
        /// The place and the reason.
        source: minijinja::Error,
    },
    /// A file of words does not compile.
    #[error("compiling {file}: {what}")]
    Strings {
        /// The name.
        file: String,
        /// The reason.
        what: String,
    },
    /// Words that every language needs are missing.
    #[error(transparent)]
    String(StringError),
}

/// One recipient's digest could not be rendered. Nothing of this ever reaches a recipient.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// A template failed.
    #[error("rendering template {name}")]
    Template {
        /// Its name.
        name: String,
        /// The place and the reason.
        source: minijinja::Error,
    },
    /// A word is missing.
    #[error(transparent)]
    String(#[from] StringError),
    /// The mail is too large even without any entries.
    #[error("the HTML has {bytes} bytes even without entries; clients would clip the footer")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The subject came out empty.
    #[error("the subject is empty")]
    EmptySubject,
    /// A link of the footer is not one.
    #[error("the {0} link is not an absolute link")]
    Link(&'static str),
    /// A part lacks the way out.
    #[error("template {0} does not print links.unsubscribe")]
    NoWayOut(String),
}

impl Templates {
    /// The templates that come with the program.
    pub fn embedded() -> Result<Self, TemplateError> {
        Self::load(None)
    }

    /// The templates that come with the program, each replaced by the folder's file of
    /// the same name where there is one. More files in the folder are there to be included.
    pub fn load(dir: Option<&Path>) -> Result<Self, TemplateError> {
        let files = files::collect(dir)?;
        let mut env = Environment::new();
        env.set_undefined_behavior(minijinja::UndefinedBehavior::Strict);
        env.set_fuel(Some(FUEL));
        env.set_recursion_limit(RECURSION);
        // Debug output would hold the values of a failed rendering: personal data.
        env.set_debug(false);
        if let Ok(syntax) =
            minijinja::syntax::SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()
        {
            env.set_syntax(syntax);
        }
        filters::register(&mut env);
        for (name, source) in files.templates {
            env.add_template_owned(name.clone(), source)
                .map_err(|source| TemplateError::Compile { file: name, source })?;
        }
        Ok(Self { env, strings: Strings::compile(&files.strings)?, language: None, ours: dir.is_none() })
    }

    /// Sets the language of recipients that have none of their own, or none that there are words for.
    #[must_use]
    pub fn with_language(mut self, tag: &str) -> Self {
        self.language = Some(tag.to_owned());
        self
    }

    /// The template's name in fingerprints.
    pub fn name(&self) -> &'static str {
        "digest"
    }

    /// Whether all admins of an org who read the same language get the same words but for the link by which they
    /// leave. The program's own templates do nothing with a recipient; an operator's may.
    pub fn same_for_all(&self, input: &DigestInput) -> bool {
        self.ours && !input.is_personal()
    }

    /// The tag of the language in which a recipient gets the digest.
    pub fn language_of(&self, recipient: &Recipient) -> &str {
        &self.locale(recipient.locale.as_deref()).tag
    }

    /// The tags of the languages that there are words for.
    pub fn languages(&self) -> Vec<&str> {
        self.strings.tags().collect()
    }

    /// Renders one recipient's digest.
    pub fn render(
        &self,
        input: &DigestInput,
        recipient: &Recipient,
        links: &Links,
        brand: &Brand,
    ) -> Result<Rendered, RenderError> {
        let links = checked(links)?;
        let locale = self.locale(recipient.locale.as_deref());
        let html_name = self.pick("digest", locale, "html");
        let mut context = minijinja::Value::UNDEFINED;
        let html = budget::fit(&view::lengths(input, recipient), |cap| {
            context = view::build(input, recipient, &links, brand, locale, cap)?;
            self.run(&html_name, context.clone())
        })?;
        let text_name = self.pick("digest", locale, "txt");
        let text = text::wrap(&self.run(&text_name, context.clone())?, TEXT_WIDTH);
        let subject = self.run(&self.pick("digest.subject", locale, "txt"), context)?;
        let subject = one_line(&subject);
        if subject.is_empty() {
            return Err(RenderError::EmptySubject);
        }
        for (name, part) in [(html_name, &html), (text_name, &text)] {
            if !part.contains(&links.unsubscribe) && !part.contains(&links.unsubscribe.replace('&', "&amp;"))
            {
                return Err(RenderError::NoWayOut(name));
            }
        }
        Ok(Rendered { subject, text, html })
    }

    /// The recipient's language, else the installation's, else English.
    fn locale(&self, wanted: Option<&str>) -> &Arc<Locale> {
        let tags = [wanted, self.language.as_deref()];
        let known = tags.into_iter().flatten().find_map(|tag| self.strings.nearest(tag));
        known.unwrap_or_else(|| self.strings.fallback())
    }

    /// `digest.de.html` where there is one, else `digest.html`.
    fn pick(&self, stem: &str, locale: &Locale, ending: &str) -> String {
        let own = format!("{stem}.{}.{ending}", locale.tag);
        if self.env.get_template(&own).is_ok() { own } else { format!("{stem}.{ending}") }
    }

    fn run(&self, name: &str, context: minijinja::Value) -> Result<String, RenderError> {
        let failed = |source| RenderError::Template { name: name.to_owned(), source };
        self.env.get_template(name).map_err(failed)?.render(context).map_err(failed)
    }
}

fn checked(links: &Links) -> Result<Links, RenderError> {
    let check = |url: &str, what| {
        let url = SafeUrl::parse(url, Http::Allowed).map_err(|_| RenderError::Link(what))?;
        Ok::<_, RenderError>(url.to_string())
    };
    Ok(Links {
        unsubscribe: check(&links.unsubscribe, "unsubscribe")?,
        settings: links.settings.as_deref().map(|url| check(url, "settings")).transpose()?,
    })
}

/// The subject's template may have line breaks; a subject has none.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    text::truncate(&words.join(" "), MAX_SUBJECT_CHARS).into_owned()
}
