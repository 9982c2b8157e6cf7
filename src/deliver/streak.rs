//! Several different recipients refused for policy, and none accepted between: the policy is
//! against us, and not against them.

use std::collections::BTreeSet;

use super::classify::RelayEffect;
use crate::domain::ids::MessageId;

/// So many different messages refused in a row open the breaker.
pub const STREAK: usize = 5;

/// Counts policy refusals since the last acceptance.
#[derive(Debug, Default)]
pub struct PolicyStreak {
    messages: BTreeSet<MessageId>,
}

impl PolicyStreak {
    /// Takes note of one outcome; `true` when the streak is full, which also starts a new one.
    ///
    /// One message has one recipient, so different messages stand for different recipients, and a
    /// retry of the same one does not count twice.
    pub fn note(&mut self, effect: RelayEffect, message: MessageId) -> bool {
        match effect {
            RelayEffect::Healthy => self.messages.clear(),
            RelayEffect::PolicyRefusal => {
                self.messages.insert(message);
            }
            _ => {}
        }
        let full = self.messages.len() >= STREAK;
        if full {
            self.messages.clear();
        }
        full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_different_messages_in_a_row_fill_the_streak() {
        let mut streak = PolicyStreak::default();
        for _ in 0..100 {
            assert!(!streak.note(RelayEffect::PolicyRefusal, MessageId(1)), "the same one again");
        }
        assert!(!streak.note(RelayEffect::PolicyRefusal, MessageId(2)));
        assert!(!streak.note(RelayEffect::Answered, MessageId(3)), "does not break it");
        assert!(!streak.note(RelayEffect::PolicyRefusal, MessageId(4)));
        assert!(!streak.note(RelayEffect::PolicyRefusal, MessageId(5)));
        assert!(streak.note(RelayEffect::PolicyRefusal, MessageId(6)));
        assert!(!streak.note(RelayEffect::PolicyRefusal, MessageId(7)), "a new one began");
    }

    #[test]
    fn an_acceptance_ends_the_streak() {
        let mut streak = PolicyStreak::default();
        for id in 0..20 {
            assert!(!streak.note(RelayEffect::PolicyRefusal, MessageId(id)));
            if id % 4 == 3 {
                streak.note(RelayEffect::Healthy, MessageId(100));
            }
        }
    }
}
