//! `digestd preview`.

mod serve;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;

use super::failure::Misuse;
use super::session::{self, OrgWeek};
use super::{Global, out};
use crate::app;
use crate::config::Config;
use crate::domain::address::Address;
use crate::domain::digest::{DigestInput, Recipient, Rendered};
use crate::domain::ids::UserId;
use crate::domain::message::MessageUid;
use crate::domain::week::{SendKey, WeekKey};
use crate::lifecycle::Exit;
use crate::mail::parts::Parts;
use crate::source::{Gathered, Question, Source};

/// Who reads the preview of an org that has nobody to mail.
const NOBODY: (&str, &str) = ("preview", "preview@example.org");

#[derive(Debug, Args)]
#[command(
    after_help = "Nothing is sent and nothing is written to the database. Links to unsubscribe do not work.

Examples:
  digestd preview --org acme
  digestd preview --org acme --week 2026-W28 --out previews --as ann@acme.example
  digestd preview --serve                 # a page on http://127.0.0.1:8090, for all orgs"
)]
pub(super) struct Arguments {
    /// The org
    #[arg(long, value_name = "ID", required_unless_present = "serve")]
    org: Option<String>,
    /// The week in which the digest goes out, such as 2026-W28; by default that of the newest slot
    #[arg(long, value_name = "WEEK", value_parser = session::parse_week)]
    week: Option<WeekKey>,
    /// Write HTML, text and the whole mail into this folder instead of printing the text
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The admin who reads it, by id or address; by default the first
    #[arg(long = "as", value_name = "ADMIN")]
    reader: Option<String>,
    /// The language, such as de; by default the reader's own
    #[arg(long, value_name = "TAG")]
    locale: Option<String>,
    /// Show a page with the digests of all orgs, made anew whenever the configuration or a template changes
    #[arg(long, value_name = "ADDR", num_args = 0..=1, require_equals = true,
        default_missing_value = "127.0.0.1:8090", conflicts_with_all = ["org", "out", "reader", "locale"])]
    serve: Option<SocketAddr>,
}

/// One mail in all its forms.
struct Previewed {
    rendered: Rendered,
    eml: Vec<u8>,
}

pub(super) async fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<Exit> {
    let config = session::configure(global)?;
    if let Some(listen) = arguments.serve {
        return serve::run(global, config, listen, arguments.week).await;
    }
    let store = session::open_untouched(&config).await?;
    let source = app::source_of(&config, &store)?;
    let org = arguments.org.as_deref().unwrap_or_default();
    let found = OrgWeek::find(&config, &store, &source, org, arguments.week).await?;
    let input = gather(&source, &found).await?;
    let mut reader = choose(&input, arguments.reader.as_deref())?;
    reader.locale = arguments.locale.clone().or(reader.locale);
    let previewed = render(&config, &input, &reader, &found)?;
    match &arguments.out {
        None => {
            out::data(format_args!("Subject: {}\n", previewed.rendered.subject));
            out::data(previewed.rendered.text.trim_end());
        }
        Some(folder) => {
            let stem = format!("{}-{}", file_name(found.org.as_str()), found.slot.week);
            write(folder, &stem, &previewed)?;
        }
    }
    Ok(Exit::Ok)
}

/// What the digest would be made of. Whoever opted in after the slot is shown too: the question
/// is how it looks.
pub(super) async fn gather(source: &Source, found: &OrgWeek) -> anyhow::Result<DigestInput> {
    let question = Question {
        orgs: std::slice::from_ref(&found.org),
        key: SendKey::Week(found.slot.week),
        slot_at: found.slot.at.max(found.now),
        period: &found.period,
    };
    let gathered = source.gather(&question).await?.remove(&found.org);
    match gathered {
        Some(Gathered::Digest(input)) => Ok(*input),
        Some(Gathered::BadZone(error)) => Err(error).context("the org has no usable time zone"),
        None => Err(Misuse::new(format!("there is no active org “{}”", found.org)).into()),
    }
}

fn render(
    config: &Config,
    input: &DigestInput,
    recipient: &Recipient,
    found: &OrgWeek,
) -> anyhow::Result<Previewed> {
    let drafter = app::drafter_of(config, session::preview_keys()?)?;
    let address = match &recipient.address {
        Ok(address) => address.clone(),
        Err(broken) => return Err(broken.error).context("this admin's address cannot be used"),
    };
    let token = drafter.token(input, &address);
    let rendered = drafter.rendered(input, recipient, &token)?;
    let uid = MessageUid::derive(&input.org, input.key, address.normal());
    let eml = drafter.bytes(Parts::encode(&rendered), recipient, &address, &uid, found.now, &token)?;
    Ok(Previewed { rendered, eml })
}

pub(super) fn choose(input: &DigestInput, reader: Option<&str>) -> anyhow::Result<Recipient> {
    let Some(reader) = reader else {
        let usable = input.recipients.iter().find(|recipient| recipient.address.is_ok());
        return usable.cloned().map_or_else(nobody, Ok);
    };
    let wanted = Address::parse(reader).ok();
    let has_address = |recipient: &Recipient| {
        let address = recipient.address.as_ref().ok().map(Address::normal);
        address.is_some() && address == wanted.as_ref().map(Address::normal)
    };
    input
        .recipients
        .iter()
        .find(|recipient| recipient.user.as_str() == reader || has_address(recipient))
        .cloned()
        .ok_or_else(|| {
            Misuse::new(format!("“{reader}” is no recipient of {}", input.org))
                .hint("recipients are active admins who want the digest")
                .into()
        })
}

fn nobody() -> anyhow::Result<Recipient> {
    out::note("note: the org has no recipient with a usable address; this is what one would get");
    let (user, address) = NOBODY;
    Ok(Recipient {
        user: UserId::parse(user)?,
        address: Ok(Address::parse(address)?),
        name: None,
        locale: None,
        opted_in_at: None,
    })
}

fn write(folder: &Path, stem: &str, previewed: &Previewed) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("making the folder {}", folder.display()))?;
    let Previewed { rendered, eml } = previewed;
    for (ending, bytes) in
        [("html", rendered.html.as_bytes()), ("txt", rendered.text.as_bytes()), ("eml", eml)]
    {
        let path = folder.join(format!("{stem}.{ending}"));
        std::fs::write(&path, bytes).with_context(|| format!("writing {}", path.display()))?;
        out::data(path.display());
    }
    Ok(())
}

/// An id is anybody's text; a file name stays inside its folder.
fn file_name(id: &str) -> String {
    let harmless = |c: char| if c.is_alphanumeric() || "-_.@".contains(c) { c } else { '_' };
    let name: String = id.chars().take(80).map(harmless).collect();
    if name.starts_with('.') { format!("_{name}") } else { name }
}

#[cfg(test)]
mod tests {
    use super::file_name;

    #[test]
    fn a_file_name_stays_inside_its_folder() {
        assert_eq!(file_name("acme-1"), "acme-1");
        assert_eq!(file_name("../../etc/passwd"), "_.._.._etc_passwd");
        assert_eq!(file_name("a/b c"), "a_b_c");
    }
}
