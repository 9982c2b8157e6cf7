//! From gathered data to messages: one draft per recipient, whatever is wrong with some of them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind};

use chrono::{DateTime, Utc};

use super::sheet::Sheet;
use crate::domain::address::Address;
use crate::domain::digest::{DigestInput, Recipient, Rendered};
use crate::domain::fingerprint::Fingerprint;
use crate::domain::message::{Draft, DraftContent, MessageReason, MessageState, MessageUid};
use crate::domain::token::{KeyRing, Scope, SubscriptionRef, UnsubscribeToken};
use crate::mail::compose::{ComposeError, Sender, compose};
use crate::mail::parts::Parts;
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

/// What the admins of an org share, by the tag of their language, and made when the first of them needs it.
type Sheets<'a> = BTreeMap<&'a str, Sheet>;

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
        let mut sheets = Sheets::new();
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
                Ok(address) => match self.message(input, recipient, address, &uid, date, &mut sheets) {
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

    fn message<'a>(
        &'a self,
        input: &DigestInput,
        recipient: &Recipient,
        to: &Address,
        uid: &MessageUid,
        date: DateTime<Utc>,
        sheets: &mut Sheets<'a>,
    ) -> Result<DraftContent, DraftError> {
        let made = catch_unwind(AssertUnwindSafe(|| {
            let token = self.token(input, to);
            let parts = self.parts(input, recipient, &token, sheets)?;
            self.bytes(parts, recipient, to, uid, date, &token)
        }));
        let bytes = made.unwrap_or(Err(DraftError::Panic))?;
        let mut dedupe_key = format!("{} {}", input.org, input.key);
        let redirect_to = self.sender.redirect_to.as_ref();
        if redirect_to.is_some() {
            // A staging installation that shares a guard must not keep the real mail from anybody.
            dedupe_key.push_str(" redirected");
        }
        let fingerprint = Fingerprint::derive(to.normal(), self.templates.name(), &dedupe_key);
        Ok(DraftContent::Message { to: redirect_to.unwrap_or(to).clone(), fingerprint, bytes })
    }

    /// One recipient's encoded digest, out of the org's sheet where there is somebody to share it with.
    fn parts<'a>(
        &'a self,
        input: &DigestInput,
        recipient: &Recipient,
        token: &UnsubscribeToken,
        sheets: &mut Sheets<'a>,
    ) -> Result<Parts, DraftError> {
        if input.recipients.len() < 2 || !self.templates.same_for_all(input) {
            return Ok(Parts::encode(&self.rendered(input, recipient, token)?));
        }
        let sheet = match sheets.entry(self.templates.language_of(recipient)) {
            Entry::Occupied(made) => made.into_mut(),
            Entry::Vacant(gap) => {
                let stand_in = UnsubscribeToken::stand_in();
                gap.insert(Sheet::new(self.rendered(input, recipient, &stand_in)?, stand_in))
            }
        };
        Ok(sheet.parts(token))
    }

    /// What opens the page on which a recipient leaves.
    pub fn token(&self, input: &DigestInput, to: &Address) -> UnsubscribeToken {
        self.keys.sign(SubscriptionRef::derive(&input.org, to.normal()), Scope::Org)
    }

    /// One recipient's digest in words.
    pub fn rendered(
        &self,
        input: &DigestInput,
        recipient: &Recipient,
        token: &UnsubscribeToken,
    ) -> Result<Rendered, DraftError> {
        let links = Links { unsubscribe: token.link(&self.public_url), settings: self.settings_url.clone() };
        Ok(self.templates.render(input, recipient, &links, &self.brand)?)
    }

    /// The final bytes of one recipient's message.
    pub fn bytes(
        &self,
        parts: Parts,
        recipient: &Recipient,
        to: &Address,
        uid: &MessageUid,
        date: DateTime<Utc>,
        token: &UnsubscribeToken,
    ) -> Result<Vec<u8>, DraftError> {
        let (name, unsubscribe) = (recipient.name.as_deref(), token.link(&self.public_url));
        Ok(compose(parts, to, name, uid, date, &self.sender, Some(&unsubscribe))?)
    }
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;

    use super::*;
    use crate::domain::digest::{Rows, Section, SectionBody};
    use crate::domain::ids::UserId;
    use crate::render::{Accent, sample};

    fn drafter(templates: Templates) -> Drafter {
        Drafter {
            templates,
            brand: Brand {
                product: "Acme".to_owned(),
                accent: Accent::default(),
                logo_url: None,
                postal_address: None,
                public_url: None,
            },
            sender: Sender {
                from_name: "Acme".to_owned(),
                from: Address::parse("digest@acme.example").unwrap(),
                reply_to: None,
                list_id_domain: "acme.example".to_owned(),
                headers: Vec::new(),
                redirect_to: None,
            },
            public_url: "https://acme.example/digest".to_owned(),
            settings_url: None,
            keys: KeyRing::new(&[SecretString::from("0123456789abcdef0123456789abcdef")]).unwrap(),
        }
    }

    /// The same digest for admins with different names, addresses and languages.
    fn with_recipients(mut input: DigestInput) -> DigestInput {
        let admins = [
            ("ana", Some("en")),
            ("björn", Some("de-AT")),
            ("chloé", Some("xx")),
            ("dina", Some("ar")),
            ("emad", Some("ar")),
            ("finn", None),
        ];
        let recipient = |(name, language): (&str, Option<&str>)| Recipient {
            user: UserId::parse(name).unwrap(),
            address: Ok(Address::parse(&format!("{}@example.org", &name[..2])).unwrap()),
            name: Some(name.to_owned()),
            locale: language.map(str::to_owned),
            opted_in_at: None,
        };
        input.recipients = admins.map(recipient).to_vec();
        input
    }

    /// A digest without anything personal.
    fn quiet() -> DigestInput {
        let [_, (name, quiet), _] = sample::samples();
        assert_eq!(name, "quiet");
        quiet
    }

    fn mails(drafter: &Drafter, input: &DigestInput) -> Vec<Vec<u8>> {
        let drafts =
            drafter.drafts(input, None, DateTime::UNIX_EPOCH + chrono::TimeDelta::days(20_000)).drafts;
        let bytes = |draft: Draft| match draft.content {
            DraftContent::Message { bytes, .. } => bytes,
            DraftContent::Final(..) => panic!("no mail for {}", draft.user),
        };
        drafts.into_iter().map(bytes).collect()
    }

    /// What each recipient would get without the others.
    fn mails_alone(drafter: &Drafter, input: &DigestInput) -> Vec<Vec<u8>> {
        let alone = |one: &Recipient| DigestInput { recipients: vec![one.clone()], ..input.clone() };
        input.recipients.iter().flat_map(|one| mails(drafter, &alone(one))).collect()
    }

    #[test]
    fn a_mail_does_not_depend_on_who_else_gets_one() {
        let drafter = drafter(Templates::embedded().unwrap());
        let inputs = sample::samples().map(|(_, input)| with_recipients(input));
        assert!(inputs.iter().any(|input| drafter.templates.same_for_all(input)));
        for input in inputs {
            assert_eq!(mails(&drafter, &input), mails_alone(&drafter, &input));
        }
    }

    #[test]
    fn a_sheet_in_base64_is_filled_too() {
        let drafter = drafter(Templates::embedded().unwrap());
        let input = with_recipients(quiet());
        let mails = mails(&drafter, &input);
        let in_base64 = |mail: &&Vec<u8>| String::from_utf8_lossy(mail).contains("Encoding: base64");
        assert_eq!(mails.iter().filter(in_base64).count(), 2, "for those who read Arabic");
        assert_eq!(mails, mails_alone(&drafter, &input));
    }

    #[test]
    fn a_personal_row_stands_in_its_readers_mail_alone() {
        let drafter = drafter(Templates::embedded().unwrap());
        let mut input = with_recipients(quiet());
        let rows = |title: &str| {
            let row = [("title".to_owned(), serde_json::Value::from(title))].into_iter().collect();
            Rows { shown: vec![row], total: 1 }
        };
        let by_user =
            ["ana", "finn"].map(|name| (UserId::parse(name).unwrap(), rows(&format!("only-{name}")))).into();
        let body = SectionBody::PersonalRows(by_user);
        input.sections.push(Section { name: "tasks".to_owned(), title: "Tasks".to_owned(), body });
        let mails = mails(&drafter, &input);
        assert_eq!(mails, mails_alone(&drafter, &input));
        for name in ["ana", "finn"] {
            let holds = |mail: &&Vec<u8>| String::from_utf8_lossy(mail).contains(&format!("only-{name}"));
            assert_eq!(mails.iter().filter(holds).count(), 1, "{name}");
        }
    }

    #[test]
    fn an_operators_template_may_greet_each_admin_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let greeting = "Hello {{ recipient.name }} of {{ org.name }}";
        std::fs::write(folder.path().join("digest.subject.txt"), greeting).unwrap();
        let drafter = drafter(Templates::load(Some(folder.path())).unwrap());
        let input = with_recipients(sample::samples()[0].1.clone());
        let mails = mails(&drafter, &input);
        assert_eq!(mails, mails_alone(&drafter, &input));
        let greets = |mail: &Vec<u8>| String::from_utf8_lossy(mail).contains("Subject: Hello ana of");
        assert_eq!(mails.iter().filter(|mail| greets(mail)).count(), 1);
    }

    #[test]
    fn another_admins_token_in_the_applications_text_stays_as_it_is() {
        let drafter = drafter(Templates::embedded().unwrap());
        let mut input = with_recipients(quiet());
        assert!(drafter.templates.same_for_all(&input));
        let first = drafter.token(&input, input.recipients[0].address.as_ref().unwrap());
        input.org_name = first.as_str().to_owned();
        assert_eq!(mails(&drafter, &input), mails_alone(&drafter, &input));
    }
}
