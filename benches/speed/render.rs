//! From gathered data to a message: processor time per org and per recipient.

use std::time::Instant;

use chrono::DateTime;
use digestd::domain::address::Address;
use digestd::domain::message::MessageUid;
use digestd::domain::token::UnsubscribeToken;
use digestd::mail::compose::{Sender, compose};
use digestd::mail::parts::Mould;
use digestd::render::{Accent, Brand, Links, Templates, sample};

use crate::figures::median;

const ROUNDS: usize = 15;
const TIMES: u32 = 500;

pub fn run() {
    let templates = Templates::embedded().unwrap();
    let brand = Brand {
        product: "Example".to_owned(),
        accent: Accent::default(),
        logo_url: None,
        postal_address: Some("Example Ltd\n1 Example Street".to_owned()),
        public_url: None,
    };
    let (stand_in, token) = (UnsubscribeToken::stand_in(), UnsubscribeToken::stand_in());
    let links = Links { unsubscribe: stand_in.link("https://digest.example"), settings: None };
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
    let (mut rendering, mut encoding, mut composing, mut sizes) =
        (Vec::new(), Vec::new(), Vec::new(), (0, 0));
    for _ in 0..ROUNDS {
        let rendered =
            timed(&mut rendering, || templates.render(&input, &recipient, &links, &brand).unwrap());
        let mould = timed(&mut encoding, || Mould::new(&rendered, &stand_in).unwrap());
        let message = timed(&mut composing, || {
            let date = DateTime::UNIX_EPOCH + chrono::TimeDelta::days(20_000);
            compose(mould.fill(&token), &to, Some("Ana"), &uid, date, &sender, Some(&links.unsubscribe))
                .unwrap()
        });
        sizes = (rendered.html.len(), message.len());
    }
    println!(
        "\nrendering {:.0} us and encoding {:.0} us per org and language, composing {:.0} us per recipient (HTML {} bytes, message {} bytes)",
        median(rendering),
        median(encoding),
        median(composing),
        sizes.0,
        sizes.1
    );
}

/// Does something many times, and notes the microseconds of one time.
fn timed<T>(times: &mut Vec<f64>, mut work: impl FnMut() -> T) -> T {
    let started = Instant::now();
    let mut made = work();
    for _ in 1..TIMES {
        made = work();
    }
    times.push(started.elapsed().as_secs_f64() * 1e6 / f64::from(TIMES));
    made
}
