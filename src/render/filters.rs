//! What templates can call, and the rule for everything they print.
//!
//! Whatever a template prints is made harmless first (`domain::text`) and then escaped for
//! the part it stands in. A template cannot switch this off: the filters that would are gone.

use std::fmt;
use std::sync::Arc;

use fluent_bundle::{FluentArgs, FluentValue};
use minijinja::value::{Kwargs, Object, ObjectRepr, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State};

use super::files::has_ending;
use super::format::{self, Change};
use super::links::{Http, SafeUrl};
use super::strings::Locale;
use crate::domain::text;
use crate::domain::zone::Zone;

/// Marks the parts that are not HTML.
pub(super) const PLAIN: &str = "plain";

/// What filters need to know about the mail that is being made; `here` in the context.
#[derive(Debug)]
pub(super) struct Here {
    pub locale: Arc<Locale>,
    pub zone: Zone,
    pub http: Http,
}

/// Text that is harmless already and is only escaped: our own words and checked links.
#[derive(Debug)]
pub(super) struct Trusted(pub String);

impl Object for Here {}

impl Object for Trusted {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Locale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.tag)
    }
}

/// Adds filters, functions and the printing rule.
pub(super) fn register(env: &mut Environment<'static>) {
    env.set_auto_escape_callback(|name| {
        if has_ending(name, "html") { AutoEscape::Html } else { AutoEscape::Custom(PLAIN.into()) }
    });
    env.set_formatter(print);
    for bypass in ["safe", "escape", "e", "tojson"] {
        env.remove_filter(bypass);
    }
    env.add_function("t", translate);
    env.add_filter("number", number);
    env.add_filter("percent", percent);
    env.add_filter("delta", delta);
    env.add_filter("trend", trend);
    env.add_filter("date", date);
    env.add_filter("duration", duration);
    env.add_filter("truncate", truncate);
    env.add_filter("safe_link", safe_link);
    env.add_filter("plain", plain);
}

/// The printing rule.
fn print(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    let html = match state.auto_escape() {
        AutoEscape::Html => true,
        AutoEscape::Custom(_) => false,
        _ => return Err(invalid("escaping cannot be switched off")),
    };
    if let Some(trusted) = value.downcast_object_ref::<Trusted>() {
        return write(out, &trusted.0, html);
    }
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => Ok(()),
        ValueKind::Number | ValueKind::Bool => out.write_fmt(format_args!("{value}")).map_err(Error::from),
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            if value.is_safe() {
                return out.write_str(text).map_err(Error::from);
            }
            let harmless = text::harmless(text);
            if !html && text::has_rtl(&harmless) {
                return write(out, &text::isolate(&harmless), html);
            }
            write(out, &harmless, html)
        }
        _ => Err(invalid("a list or a map cannot be printed")),
    }
}

fn write(out: &mut Output<'_>, text: &str, html: bool) -> Result<(), Error> {
    if !html {
        return out.write_str(text).map_err(Error::from);
    }
    let mut rest = text;
    let special = |b: &u8| matches!(b, b'<' | b'>' | b'&' | b'"' | b'\'');
    while let Some(at) = rest.as_bytes().iter().position(special) {
        let (before, from) = rest.split_at(at);
        out.write_str(before)?;
        out.write_str(match from.as_bytes().first() {
            Some(b'<') => "&lt;",
            Some(b'>') => "&gt;",
            Some(b'&') => "&amp;",
            Some(b'"') => "&quot;",
            _ => "&#39;",
        })?;
        rest = from.get(1..).unwrap_or_default();
    }
    out.write_str(rest).map_err(Error::from)
}

/// `{{ t("more", n=12) }}`: our own words in the reader's language.
///
/// Every number `n` is there a second time as `n-text`, grouped. Texts are made harmless,
/// and isolated where their direction may differ from the sentence's.
#[expect(clippy::needless_pass_by_value, reason = "functions of templates take their arguments so")]
fn translate(state: &State<'_, '_>, id: &str, kwargs: Kwargs) -> Result<Value, Error> {
    let here = here(state)?;
    let locale = &here.locale;
    let mut args = FluentArgs::new();
    for name in kwargs.args() {
        let value: Value = kwargs.get(name)?;
        if value.kind() == ValueKind::Number {
            args.set(format!("{name}-text"), format::number(&value.to_string(), locale));
            args.set(name.to_owned(), FluentValue::from(f64::try_from(value)?));
        } else {
            args.set(name.to_owned(), argument(&value, locale));
        }
    }
    locale.say(id, &args).map(trusted).map_err(|error| invalid(&error.to_string()))
}

fn argument(value: &Value, locale: &Locale) -> String {
    if let Some(trusted) = value.downcast_object_ref::<Trusted>() {
        return trusted.0.clone();
    }
    let text = value.to_string();
    let harmless = text::harmless(&text);
    if locale.rtl || text::has_rtl(&harmless) { text::isolate(&harmless) } else { harmless.into_owned() }
}

/// `{{ figure.value|number }}`: grouped as the language does.
fn number(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    Ok(trusted(format::number(&text::harmless(&value.to_string()), &here(state)?.locale)))
}

/// `{{ 12|percent }}`.
fn percent(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    let text = value.to_string();
    format::percent(&text::harmless(&text), &here(state)?.locale)
        .map(trusted)
        .map_err(|error| invalid(&error.to_string()))
}

/// `{{ figure.value|delta(figure.previous) }}`: the change in words, with an arrow.
fn delta(state: &State<'_, '_>, value: &Value, previous: &Value) -> Result<Value, Error> {
    change(value, previous)
        .words(&here(state)?.locale)
        .map(trusted)
        .map_err(|error| invalid(&error.to_string()))
}

/// `up`, `down`, `same`, `new` or `unknown`.
fn trend(value: &Value, previous: &Value) -> &'static str {
    change(value, previous).name()
}

fn change(value: &Value, previous: &Value) -> Change {
    let parse = |value: &Value| value.to_string().parse::<f64>().ok().filter(|n| n.is_finite());
    parse(value).map_or(Change::Unknown, |now| Change::between(now, parse(previous)))
}

/// `{{ row.when|date }}`: told in the org's zone; what is no date is printed as it is.
fn date(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    if value.is_none() {
        return Ok(value.clone());
    }
    let here = here(state)?;
    let text = value.to_string();
    match format::moment(&text, &here.zone, &here.locale) {
        Some(told) => told.map(trusted).map_err(|error| invalid(&error.to_string())),
        None => Ok(value.clone()),
    }
}

/// `{{ row.seconds|duration }}`: the two largest units; what is no number is printed as it is.
fn duration(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    match value.to_string().parse::<f64>().ok().filter(|n| n.is_finite()) {
        Some(seconds) => format::duration(seconds, &here(state)?.locale)
            .map(trusted)
            .map_err(|error| invalid(&error.to_string())),
        None => Ok(value.clone()),
    }
}

/// `{{ row.title|truncate(80) }}`: at most that many characters, after cleaning.
fn truncate(value: &Value, max: usize) -> Value {
    if value.is_none() || value.is_undefined() {
        return value.clone();
    }
    let text = value.to_string();
    Value::from(&*text::truncate(&text::clean(&text), max))
}

/// `{% set href = row.url|safe_link %}`: the link, or none where it must not be one.
fn safe_link(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    let http = here(state)?.http;
    let url = value.as_str().and_then(|text| SafeUrl::parse(text, http).ok());
    Ok(url.map_or(Value::from(()), |url| link(&url)))
}

/// `{{ name|plain }}`: what printing does anyway, as a value to work on.
fn plain(value: &Value) -> Value {
    Value::from(&*text::harmless(&value.to_string()))
}

/// A checked link as a value.
pub(super) fn link(url: &SafeUrl) -> Value {
    trusted(url.as_str().to_owned())
}

/// Harmless text as a value.
pub(super) fn trusted(text: String) -> Value {
    Value::from_object(Trusted(text))
}

fn here(state: &State<'_, '_>) -> Result<Arc<Here>, Error> {
    state
        .lookup("here")
        .and_then(|value| value.downcast_object::<Here>())
        .ok_or_else(|| invalid("the context holds no language"))
}

fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, what.to_owned())
}
