//! Who has guessed wrong too often.
//!
//! Counted by the peer's address, an IPv6 one by its /64, in this process alone. Behind a proxy all peers
//! are one: then a stranger who guesses locks everybody's log-in for a while, but no session that is open.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Wrong guesses in a row that are forgiven.
const FORGIVEN: u32 = 5;
/// The first lock; each further wrong guess doubles it.
const FIRST_LOCK: Duration = Duration::from_secs(30);
/// The longest lock.
const LONGEST_LOCK: Duration = Duration::from_mins(15);
/// Addresses remembered; beyond that the one that guessed longest ago is forgotten.
const MAX_PEERS: usize = 1024;

/// Wrong guesses, by peer.
#[derive(Debug, Default)]
pub(super) struct Strikes(Mutex<HashMap<IpAddr, Count>>);

#[derive(Debug, Clone, Copy)]
struct Count {
    wrong: u32,
    last: Instant,
}

impl Count {
    fn lock(self) -> Duration {
        let beyond = self.wrong.saturating_sub(FORGIVEN);
        let doubled = FIRST_LOCK.saturating_mul(1 << beyond.saturating_sub(1).min(8));
        if beyond == 0 { Duration::ZERO } else { doubled.min(LONGEST_LOCK) }
    }
}

impl Strikes {
    /// How long a peer must wait before its next guess is looked at.
    pub(super) fn locked(&self, peer: IpAddr) -> Option<Duration> {
        let strikes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = strikes.get(&network(peer))?;
        let left = count.lock().saturating_sub(count.last.elapsed());
        (!left.is_zero()).then_some(left)
    }

    /// Counts a wrong guess.
    pub(super) fn wrong(&self, peer: IpAddr) {
        let mut strikes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let peer = network(peer);
        if strikes.len() >= MAX_PEERS && !strikes.contains_key(&peer) {
            let oldest = strikes.iter().min_by_key(|(_, count)| count.last).map(|(peer, _)| *peer);
            oldest.and_then(|oldest| strikes.remove(&oldest));
        }
        let count = strikes.entry(peer).or_insert(Count { wrong: 0, last: Instant::now() });
        *count = Count { wrong: count.wrong.saturating_add(1), last: Instant::now() };
    }

    /// Forgets a peer that has guessed right.
    pub(super) fn right(&self, peer: IpAddr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&network(peer));
    }
}

/// Whoever has one IPv6 address has at least the whole /64.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn after_five_wrong_guesses_each_further_one_locks_for_longer() {
        let (strikes, peer) = (Strikes::default(), peer("192.0.2.1"));
        for _ in 0..5 {
            strikes.wrong(peer);
            assert_eq!(strikes.locked(peer), None);
        }
        for seconds in [30, 60, 120, 240, 480, 900, 900] {
            strikes.wrong(peer);
            assert_eq!(strikes.locked(peer), Some(Duration::from_secs(seconds)));
            tokio::time::advance(Duration::from_secs(seconds)).await;
            assert_eq!(strikes.locked(peer), None);
        }
        strikes.right(peer);
        strikes.wrong(peer);
        assert_eq!(strikes.locked(peer), None);
    }

    #[tokio::test(start_paused = true)]
    async fn one_peer_s_guesses_lock_nobody_else() {
        let strikes = Strikes::default();
        for _ in 0..9 {
            strikes.wrong(peer("2001:db8:1:2:3::4"));
        }
        assert!(strikes.locked(peer("2001:db8:1:2:ffff::1")).is_some());
        assert!(strikes.locked(peer("2001:db8:1:3::4")).is_none());
        assert!(strikes.locked(peer("192.0.2.1")).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_memory_of_peers_is_bounded() {
        let strikes = Strikes::default();
        for n in 0..3000_u32 {
            strikes.wrong(IpAddr::V4(n.into()));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(strikes.0.lock().unwrap().len(), MAX_PEERS);
    }
}
