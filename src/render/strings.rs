//! The words of the digest in each language, from Fluent files.

use std::collections::BTreeMap;
use std::sync::Arc;

use fluent_bundle::concurrent::FluentBundle;
use fluent_bundle::{FluentArgs, FluentResource, FluentValue};

use super::TemplateError;

/// The language that must exist and that fills the gaps of others.
const FALLBACK: &str = "en";

/// All languages.
pub(super) struct Strings {
    locales: BTreeMap<String, Arc<Locale>>,
    fallback: Arc<Locale>,
}

/// One language: its words, and the few of them that are needed often, looked up once.
pub(super) struct Locale {
    /// The BCP 47 tag, for `lang`.
    pub tag: String,
    /// Whether it is written from right to left.
    pub rtl: bool,
    /// Between groups of three digits.
    pub group: String,
    /// Before the decimals.
    pub decimal: String,
    months: [String; 12],
    weekdays: [String; 7],
    bundles: Vec<FluentBundle<Arc<FluentResource>>>,
}

/// A word is missing, or lacks one of its arguments.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("message “{id}” of language “{tag}” {what}")]
pub struct StringError {
    id: String,
    tag: String,
    what: &'static str,
}

impl Strings {
    /// Compiles the files, given as tag and content.
    pub fn compile(files: &BTreeMap<String, String>) -> Result<Self, TemplateError> {
        let mut resources = BTreeMap::new();
        for (tag, content) in files {
            let resource = FluentResource::try_new(content.clone()).map_err(|(_, errors)| {
                let first = errors.first().map(ToString::to_string).unwrap_or_default();
                TemplateError::Strings { file: format!("strings.{tag}.ftl"), what: first }
            })?;
            resources.insert(tag.clone(), Arc::new(resource));
        }
        let fallback = resources.get(FALLBACK).cloned();
        let mut locales = BTreeMap::new();
        for (tag, resource) in resources {
            let mut chain = vec![bundle(&tag, resource)?];
            if let Some(fallback) = fallback.as_ref().filter(|_| tag != FALLBACK) {
                chain.push(bundle(FALLBACK, Arc::clone(fallback))?);
            }
            locales.insert(tag.to_lowercase(), Arc::new(Locale::new(tag, chain)?));
        }
        let fallback = locales.get(FALLBACK).cloned().ok_or_else(|| TemplateError::Strings {
            file: format!("strings.{FALLBACK}.ftl"),
            what: "does not exist".to_owned(),
        })?;
        Ok(Self { locales, fallback })
    }

    /// The language of the tag, or of its shorter forms: `de-AT` may be answered by `de`.
    pub fn nearest(&self, wanted: &str) -> Option<&Arc<Locale>> {
        let wanted = wanted.replace('_', "-").to_lowercase();
        let mut tag = wanted.as_str();
        loop {
            if let Some(locale) = self.locales.get(tag) {
                return Some(locale);
            }
            tag = tag.rsplit_once('-')?.0;
        }
    }

    /// English.
    pub fn fallback(&self) -> &Arc<Locale> {
        &self.fallback
    }

    /// The tags of all languages.
    pub fn tags(&self) -> impl Iterator<Item = &str> {
        self.locales.values().map(|locale| locale.tag.as_str())
    }
}

impl Locale {
    fn new(tag: String, bundles: Vec<FluentBundle<Arc<FluentResource>>>) -> Result<Self, TemplateError> {
        let mut locale = Self {
            tag,
            rtl: false,
            group: String::new(),
            decimal: String::new(),
            months: Default::default(),
            weekdays: Default::default(),
            bundles,
        };
        let word = |id: &str| locale.say(id, &FluentArgs::new()).map_err(TemplateError::String);
        let rtl = word("dir")? == "rtl";
        let (group, decimal) = (word("number-group")?, word("number-decimal")?);
        let months: Vec<String> = (1..=12).map(|n| word(&format!("month-{n}"))).collect::<Result<_, _>>()?;
        let weekdays: Vec<String> =
            (1..=7).map(|n| word(&format!("weekday-{n}"))).collect::<Result<_, _>>()?;
        (locale.rtl, locale.group, locale.decimal) = (rtl, group, decimal);
        locale.months = months.try_into().unwrap_or_default();
        locale.weekdays = weekdays.try_into().unwrap_or_default();
        Ok(locale)
    }

    /// The message in this language, or in English where this language lacks it.
    pub fn say(&self, id: &str, args: &FluentArgs<'_>) -> Result<String, StringError> {
        let refused = |what| StringError { id: id.to_owned(), tag: self.tag.clone(), what };
        let found = self.bundles.iter().find_map(|b| Some((b, b.get_message(id)?.value()?)));
        let (bundle, pattern) = found.ok_or_else(|| refused("does not exist"))?;
        let mut errors = Vec::new();
        let text = bundle.format_pattern(pattern, Some(args), &mut errors).into_owned();
        if errors.is_empty() { Ok(text) } else { Err(refused("lacks one of its arguments")) }
    }

    /// [`Self::say`] with text arguments only.
    pub fn say_with(&self, id: &str, args: &[(&str, &str)]) -> Result<String, StringError> {
        let args: FluentArgs<'_> =
            args.iter().map(|(name, value)| (*name, FluentValue::from(*value))).collect();
        self.say(id, &args)
    }

    /// The short name of a month, counted from 0.
    pub fn month(&self, month0: u32) -> &str {
        self.months.get(month0 as usize).map_or("", String::as_str)
    }

    /// The short name of a weekday, counted from Monday as 0.
    pub fn weekday(&self, from_monday: u32) -> &str {
        self.weekdays.get(from_monday as usize).map_or("", String::as_str)
    }
}

fn bundle(
    tag: &str,
    resource: Arc<FluentResource>,
) -> Result<FluentBundle<Arc<FluentResource>>, TemplateError> {
    let refused = |what: String| TemplateError::Strings { file: format!("strings.{tag}.ftl"), what };
    let language = tag.parse().map_err(|_| refused("the name holds no language tag".to_owned()))?;
    let mut bundle = FluentBundle::new_concurrent(vec![language]);
    // Names are isolated where they are inserted, see `filters::argument`.
    bundle.set_use_isolating(false);
    bundle
        .add_resource(resource)
        .map_err(|errors| refused(errors.first().map(ToString::to_string).unwrap_or_default()))?;
    Ok(bundle)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings() -> Strings {
        let file = |tag: &str| {
            let content = std::fs::read_to_string(format!("templates/strings.{tag}.ftl")).unwrap();
            (tag.to_owned(), content)
        };
        Strings::compile(&["en", "de", "ar"].map(file).into()).unwrap()
    }

    #[test]
    fn the_nearest_language_is_found_by_shortening_the_tag() {
        let strings = strings();
        let tag = |wanted| strings.nearest(wanted).map(|locale| locale.tag.as_str());
        assert_eq!(tag("de-AT"), Some("de"));
        assert_eq!(tag("AR_eg"), Some("ar"));
        assert_eq!(tag("tlh-Qaaa"), None);
        assert_eq!(tag(""), None);
        assert_eq!(strings.fallback().tag, "en");
    }

    #[test]
    fn every_language_has_every_message() {
        let ids = |tag: &str| -> Vec<String> {
            let content = std::fs::read_to_string(format!("templates/strings.{tag}.ftl")).unwrap();
            let id = |line: &str| Some(line.split_once(" =")?.0.to_owned());
            content.lines().filter(|line| !line.starts_with(['#', ' '])).filter_map(id).collect()
        };
        assert!(ids("en").len() > 40);
        for tag in ["de", "ar"] {
            assert_eq!(ids(tag), ids("en"), "{tag}");
        }
    }

    #[test]
    fn a_missing_message_or_argument_is_an_error() {
        let strings = strings();
        let en = strings.nearest("en").unwrap();
        assert!(en.say("nonsense", &FluentArgs::new()).is_err());
        assert!(en.say("subject", &FluentArgs::new()).is_err());
        assert_eq!(en.say_with("sent-by", &[("product", "Acme")]).unwrap(), "Sent by Acme");
    }

    #[test]
    fn plurals_follow_the_rules_of_the_language() {
        let strings = strings();
        let more = |tag, n: u32| {
            let mut args = FluentArgs::new();
            args.set("n", n);
            args.set("n-text", n.to_string());
            strings.nearest(tag).unwrap().say("more", &args).unwrap()
        };
        assert_eq!(more("de", 1), "und 1 weiterer Eintrag");
        assert_eq!(more("de", 12), "und 12 weitere");
        assert_eq!(more("ar", 2), "وعنصران آخران");
        assert_eq!(more("ar", 3), "و3 عناصر أخرى");
        assert_eq!(more("ar", 11), "و11 عنصرًا آخر");
    }
}
