//! The words of the unsubscribe page in each language, chosen by what the browser prefers.

use fluent_bundle::concurrent::FluentBundle;
use fluent_bundle::{FluentArgs, FluentResource};

/// Tags and files; the first fills the gaps of the others.
const FILES: [(&str, &str); 3] = [
    ("en", include_str!("../../templates/pages/unsubscribe.en.ftl")),
    ("de", include_str!("../../templates/pages/unsubscribe.de.ftl")),
    ("ar", include_str!("../../templates/pages/unsubscribe.ar.ftl")),
];

/// More preferences than anybody has.
const MAX_PREFERENCES: usize = 20;

/// All languages, English first.
pub(super) struct Words(Vec<Language>);

/// One language.
pub(super) struct Language {
    /// The BCP 47 tag.
    pub tag: &'static str,
    bundle: FluentBundle<FluentResource>,
}

impl Words {
    pub(super) fn new() -> Self {
        Self(FILES.iter().map(|(tag, content)| Language::new(tag, content)).collect())
    }

    /// The best of ours for an `Accept-Language` header (RFC 9110 §12.5.4); English if there is none.
    pub(super) fn nearest(&self, accepted: &str) -> &Language {
        let mut wanted: Vec<(f32, &str)> = accepted
            .split(',')
            .take(MAX_PREFERENCES)
            .map(preference)
            .filter(|(weight, _)| *weight > 0.0)
            .collect();
        // Stable: of equals, the first named is preferred.
        wanted.sort_by(|a, b| b.0.total_cmp(&a.0));
        let ours = |tag: &str| self.0.iter().find(|language| primary(tag).eq_ignore_ascii_case(language.tag));
        wanted.iter().find_map(|(_, tag)| ours(tag)).unwrap_or(&self.0[0])
    }
}

impl Language {
    fn new(tag: &'static str, content: &str) -> Self {
        // The files are constants, and the tests look for every message in each.
        let resource = FluentResource::try_new(content.to_owned()).unwrap_or_else(|(usable, _)| usable);
        let mut bundle = FluentBundle::new_concurrent(tag.parse().into_iter().collect());
        bundle.add_resource_overriding(resource);
        Self { tag, bundle }
    }

    /// A message; the org's name is put between isolating marks, whichever way it is written.
    pub(super) fn say(&self, id: &str, org: Option<&str>) -> String {
        let mut args = FluentArgs::new();
        args.set("named", if org.is_some() { "yes" } else { "no" });
        args.set("org", org.unwrap_or_default());
        let pattern = self.bundle.get_message(id).and_then(|message| message.value());
        let text = pattern.map(|p| self.bundle.format_pattern(p, Some(&args), &mut Vec::new()).into_owned());
        text.unwrap_or_else(|| id.to_owned())
    }
}

/// The weight and the tag of one preference, such as `de-AT;q=0.8`.
fn preference(text: &str) -> (f32, &str) {
    let mut parts = text.split(';').map(str::trim);
    let tag = parts.next().unwrap_or_default();
    let weight = parts.find_map(|part| part.strip_prefix("q=")).map_or(Some(1.0), |q| q.parse().ok());
    (weight.filter(|weight: &f32| weight.is_finite()).unwrap_or(0.0), tag)
}

fn primary(tag: &str) -> &str {
    tag.split('-').next().unwrap_or(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_browser_s_preference_decides_and_english_is_for_everybody_else() {
        let words = Words::new();
        for (accepted, expected) in [
            ("de", "de"),
            ("de-AT,en;q=0.5", "de"),
            ("fr, ar;q=0.3, DE-ch;q=0.8", "de"),
            ("en;q=0.9,ar", "ar"),
            ("de;q=0", "en"),
            ("de;q=NaN, fr", "en"),
            ("*", "en"),
            ("", "en"),
        ] {
            assert_eq!(words.nearest(accepted).tag, expected, "{accepted}");
        }
    }

    #[test]
    fn every_language_has_every_message() {
        let ids = |content: &str| -> Vec<String> {
            let id = |line: &str| Some(line.split_once(" =")?.0.to_owned());
            content.lines().filter(|line| !line.starts_with(['#', ' '])).filter_map(id).collect()
        };
        let all = ids(FILES[0].1);
        assert!(all.len() > 20);
        for (language, (tag, content)) in Words::new().0.iter().zip(FILES) {
            assert_eq!(ids(content), all, "{tag}");
            for id in &all {
                for org in [None, Some("Acme")] {
                    let text = language.say(id, org);
                    assert!(text != *id && !text.contains('{'), "{tag}: {text}");
                }
            }
        }
    }
}
