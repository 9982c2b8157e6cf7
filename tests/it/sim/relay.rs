//! A moody relay: what it answers depends on the seed, the address, and how often that was tried.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::dice::hash;
use crate::support::smtp_server::{Act, At, Script, SmtpServer};

/// The relay, and whether it is there at all.
pub struct MoodyRelay {
    pub server: SmtpServer,
    down: Arc<AtomicBool>,
    calm: Arc<AtomicBool>,
}

impl MoodyRelay {
    pub async fn start(seed: u64) -> Self {
        let (down, calm) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
        let mut tries: HashMap<String, u64> = HashMap::new();
        let (is_down, is_calm) = (Arc::clone(&down), Arc::clone(&calm));
        let mood = move |at: At, to: &str| {
            if is_down.load(Ordering::SeqCst) && matches!(at, At::Greeting | At::Mail) {
                return Some(vec![Act::reply("421 4.3.2 back soon"), Act::Close]);
            }
            if is_calm.load(Ordering::SeqCst) || !matches!(at, At::Rcpt | At::Dot) {
                return None;
            }
            if at == At::Rcpt {
                *tries.entry(to.to_owned()).or_default() += 1;
            }
            let attempt = tries.get(to).copied().unwrap_or(0);
            answer(at, hash(seed, &format!("{to} {attempt}")) % 1000)
        };
        let script = Script::new().offer("PIPELINING").offer("SIZE 10485760").offer("8BITMIME").mood(mood);
        Self { server: SmtpServer::start(script).await, down, calm }
    }

    /// Refuses every connection from now on, or none.
    pub fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    /// Accepts everything, or has its moods.
    pub fn set_calm(&self, calm: bool) {
        self.calm.store(calm, Ordering::SeqCst);
    }
}

/// Per mille: most is accepted, the rest is every kind of trouble.
fn answer(at: At, throw: u64) -> Option<Vec<Act>> {
    let act = match (at, throw) {
        (At::Rcpt, 0..40) => vec![Act::reply("450 4.2.0 come back later")],
        (At::Rcpt, 40..55) => vec![Act::reply("550 5.1.1 no such user")],
        (At::Dot, 60..90) => vec![Act::reply("452 4.3.1 no room right now")],
        (At::Dot, 90..100) => vec![Act::reply("554 5.6.0 not this one")],
        (At::Dot, 100..110) => vec![Act::Accept, Act::Close],
        (At::Rcpt, 55..60) | (At::Dot, 110..120) => vec![Act::Close],
        (At::Dot, 120..125) => vec![Act::Accept, Act::Hang],
        (At::Dot, 125..130) => vec![Act::Hang],
        _ => return None,
    };
    Some(act)
}
