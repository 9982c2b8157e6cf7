//! From gathered data to a message: processor time per recipient.

use std::time::Instant;

use chrono::DateTime;
use digestd::domain::address::Address;
use digestd::domain::message::MessageUid;
use digestd::mail::compose::{Sender, compose};
use digestd::mail::parts::Parts;
use digestd::render::{Accent, Brand, Links, Templates, sample};

use crate::figures::median;

const ROUNDS: usize = 15;
const MESSAGES: u32 = 500;

pub fn run() {
    let templates = Templates::embedded().unwrap();
    let brand = Brand {
        product: "Example".to_owned(),
        accent: Accent::default(),
        logo_url: None,
        postal_address: Some("Example Ltd\n1 Example Street".to_owned()),
        public_url: None,
    };
    let links = Links { unsubscribe: "https://digest.example/u/sample".to_owned(), settings: None };
    let sender = Sender {
        from_name: "Digests".to_owned(),
        from: Address::parse("digests@example.org").unwrap(),
        reply_to: None,
        list_id_domain: "example.org".to_owned(),
        headers: Vec::new(),
        redirect_to: None,
    };
    let [(_, input), ..] = sample::samples();
    let recipient = sample::recipient(Some("Ana"), "en");
    let to = Address::parse("ana@example.org").unwrap();
    let uid = MessageUid::derive(&input.org, input.key, to.normal());
    let (mut rendering, mut composing, mut sizes) = (Vec::new(), Vec::new(), (0, 0));
    for _ in 0..ROUNDS {
        let started = Instant::now();
        let mut rendered = templates.render(&input, &recipient, &links, &brand).unwrap();
        for _ in 1..MESSAGES {
            rendered = templates.render(&input, &recipient, &links, &brand).unwrap();
        }
        rendering.push(started.elapsed().as_secs_f64() * 1e6 / f64::from(MESSAGES));
        let started = Instant::now();
        for _ in 0..MESSAGES {
            let made = compose(
                Parts::encode(&rendered),
                &to,
                Some("Ana"),
                &uid,
                DateTime::UNIX_EPOCH + chrono::TimeDelta::days(20_000),
                &sender,
                Some(&links.unsubscribe),
            );
            sizes = (rendered.html.len(), made.unwrap().len());
        }
        composing.push(started.elapsed().as_secs_f64() * 1e6 / f64::from(MESSAGES));
    }
    println!(
        "\nrendering {:.0} us, composing {:.0} us per recipient (HTML {} bytes, message {} bytes)",
        median(rendering),
        median(composing),
        sizes.0,
        sizes.1
    );
}
