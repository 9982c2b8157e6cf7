//! Ends of messages, counted: what every statement that ends messages gives, and what metrics take.

use std::collections::BTreeMap;

use super::message::{MessageReason, MessageState};

/// Messages that have come to a final state, by state and reason. Whoever gets it counts it.
#[must_use = "an end that is not counted is missing in the metrics"]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ends(BTreeMap<End, u64>);

/// A final state, and why.
pub type End = (MessageState, Option<MessageReason>);

impl Ends {
    /// Adds messages in a state; one that is not final is no end.
    pub fn add(&mut self, (state, reason): End, n: u64) {
        if state.is_final() && n > 0 {
            *self.0.entry((state, reason)).or_default() += n;
        }
    }

    /// How many messages have come to which end.
    pub fn iter(&self) -> impl Iterator<Item = (End, u64)> {
        self.0.iter().map(|(end, n)| (*end, *n))
    }

    /// Whether nothing has ended.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<End> for Ends {
    fn from_iter<I: IntoIterator<Item = End>>(ends: I) -> Self {
        let mut counted = Self::default();
        ends.into_iter().for_each(|end| counted.add(end, 1));
        counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_final_states_are_ends() {
        let ends: Ends = MessageState::ALL.into_iter().map(|state| (state, None)).collect();
        let states: Vec<MessageState> = ends.iter().map(|((state, _), _)| state).collect();
        assert_eq!(states, MessageState::ALL.into_iter().filter(|s| s.is_final()).collect::<Vec<_>>());
    }

    #[test]
    fn ends_of_one_kind_are_added_up_and_none_is_no_end() {
        let refused = (MessageState::Failed, Some(MessageReason::Refused));
        let mut ends = Ends::default();
        ends.add(refused, 0);
        assert!(ends.is_empty());
        ends.add(refused, 2);
        ends.add(refused, 3);
        ends.add((MessageState::Accepted, None), 1);
        assert!(!ends.is_empty());
        assert_eq!(ends.iter().collect::<Vec<_>>(), [((MessageState::Accepted, None), 1), (refused, 5)]);
    }
}
