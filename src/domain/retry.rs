//! When a message is tried again, and when it is given up.

use chrono::TimeDelta;

use super::ids::MessageId;

/// The oldest that a message may get. Less than a week, so that two weeks' digests never meet.
pub const MAX_AGE: TimeDelta = TimeDelta::days(6);

/// Jitter in per mille of the delay, to either side.
const JITTER: u64 = 250;
/// The base of delays after a reply that may mean greylisting: at least 5 minutes after jitter.
const GREYLISTED: TimeDelta = TimeDelta::seconds(400);
/// The base of delays after a policy refusal: at least an hour after jitter.
const POLICY: TimeDelta = TimeDelta::minutes(80);

/// How patient the next try must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Patience {
    /// As the ladder says.
    Ladder,
    /// The relay, or the recipient's server behind it, may be greylisting: not before 5 minutes.
    Greylisted,
    /// A policy stands against it, which somebody may have to change: not before an hour.
    Policy,
}

/// Delays between tries and two independent bounds: attempts and age.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    ladder: Vec<TimeDelta>,
    max_attempts: u32,
    max_age: TimeDelta,
}

/// Why values make no retry policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RetryPolicyError {
    /// No delay, or one that is not positive.
    #[error("the delays between tries must be at least one, each more than 0 and at most 6 days")]
    Ladder,
    /// No attempt at all.
    #[error("at least one attempt is needed")]
    Attempts,
    /// Not positive, or so long that two weeks' digests would meet.
    #[error("the age limit must be more than 0 and at most 6 days")]
    Age,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        let minutes = [1, 5, 15, 30, 60, 120, 240];
        let ladder = minutes.into_iter().map(TimeDelta::minutes).collect();
        Self { ladder, max_attempts: 20, max_age: TimeDelta::hours(48) }
    }
}

impl RetryPolicy {
    /// Checks the values. The last delay of the ladder repeats.
    pub fn new(
        ladder: Vec<TimeDelta>,
        max_attempts: u32,
        max_age: TimeDelta,
    ) -> Result<Self, RetryPolicyError> {
        let sane = |time: &TimeDelta| *time > TimeDelta::zero() && *time <= MAX_AGE;
        if ladder.is_empty() || !ladder.iter().all(sane) {
            return Err(RetryPolicyError::Ladder);
        }
        if max_attempts == 0 {
            return Err(RetryPolicyError::Attempts);
        }
        if !sane(&max_age) {
            return Err(RetryPolicyError::Age);
        }
        Ok(Self { ladder, max_attempts, max_age })
    }

    /// A message that was charged so many attempts is given up.
    pub fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// A message of this age, counted from its enqueueing, is given up.
    pub fn max_age(&self) -> TimeDelta {
        self.max_age
    }

    /// How long to wait after the `attempt`th try, counted from 1. Spread by a quarter to either
    /// side, always the same for the same message and attempt.
    pub fn delay(&self, attempt: u32, message: MessageId, patience: Patience) -> TimeDelta {
        let rung = usize::try_from(attempt.saturating_sub(1)).unwrap_or(usize::MAX);
        // The ladder is never empty.
        let step = self.ladder.get(rung).or(self.ladder.last()).copied().unwrap_or(POLICY);
        let base = match patience {
            Patience::Ladder => step,
            Patience::Greylisted => step.max(GREYLISTED),
            Patience::Policy => step.max(POLICY),
        };
        let per_mille = 1000 - JITTER + mix(message, attempt) % (2 * JITTER + 1);
        // At most 6 days and 1250 per mille: both products fit by far.
        let millis = base.num_milliseconds() * i64::try_from(per_mille).unwrap_or(1000) / 1000;
        TimeDelta::milliseconds(millis)
    }
}

/// Spreads message and attempt evenly over all numbers (the finaliser of `SplitMix64`).
fn mix(message: MessageId, attempt: u32) -> u64 {
    let mut z = message.0.cast_unsigned() ^ (u64::from(attempt) << 48);
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LADDER: [i64; 9] = [60, 300, 900, 1800, 3600, 7200, 14400, 14400, 14400];

    #[test]
    fn the_default_ladder_rises_to_four_hours_and_stays() {
        let policy = RetryPolicy::default();
        for (attempt, seconds) in (1..).zip(LADDER) {
            let delay = policy.delay(attempt, MessageId(7), Patience::Ladder).num_seconds();
            assert!((seconds * 3 / 4..=seconds * 5 / 4).contains(&delay), "attempt {attempt}: {delay} s");
        }
    }

    #[test]
    fn values_that_make_no_policy_are_refused() {
        let (minute, day) = (TimeDelta::minutes(1), TimeDelta::days(1));
        assert_eq!(RetryPolicy::new(vec![], 1, day), Err(RetryPolicyError::Ladder));
        assert_eq!(RetryPolicy::new(vec![TimeDelta::zero()], 1, day), Err(RetryPolicyError::Ladder));
        assert_eq!(RetryPolicy::new(vec![minute], 0, day), Err(RetryPolicyError::Attempts));
        assert_eq!(RetryPolicy::new(vec![minute], 1, TimeDelta::zero()), Err(RetryPolicyError::Age));
        assert_eq!(RetryPolicy::new(vec![minute], 1, MAX_AGE + minute), Err(RetryPolicyError::Age));
        assert!(RetryPolicy::new(vec![minute], 1, MAX_AGE).is_ok());
    }

    #[test]
    fn a_policy_keeps_the_bounds_that_it_was_made_with() {
        let policy = RetryPolicy::new(vec![TimeDelta::minutes(1)], 7, TimeDelta::hours(30)).unwrap();
        assert_eq!((policy.max_attempts(), policy.max_age()), (7, TimeDelta::hours(30)));
    }

    #[test]
    fn the_mixing_is_splitmix64_s() {
        // Its first two numbers from the seed 1234567, by its reference implementation.
        let step = 0x9e37_79b9_7f4a_7c15_u64.cast_signed();
        let seed = 1_234_567_i64;
        assert_eq!(mix(MessageId(seed), 0), 6_457_827_717_110_365_317);
        assert_eq!(mix(MessageId(seed.wrapping_add(step)), 0), 3_203_168_211_198_807_973);
        // An attempt changes the upper bits, which no id of a database reaches.
        assert_eq!(mix(MessageId(seed), 3), mix(MessageId(seed + (3 << 48)), 0));
        assert_eq!(mix(MessageId(seed + (3 << 48)), 3), mix(MessageId(seed), 0));
    }

    #[test]
    fn the_jitter_reaches_a_quarter_to_either_side_and_no_further() {
        let policy = RetryPolicy::default();
        let delays = (0..10_000).map(|id| policy.delay(1, MessageId(id), Patience::Ladder));
        let (least, most) = delays.fold((TimeDelta::MAX, TimeDelta::MIN), |(a, b), d| (a.min(d), b.max(d)));
        assert_eq!((least, most), (TimeDelta::seconds(45), TimeDelta::seconds(75)));
    }

    #[test]
    fn neighbours_are_spread_over_the_whole_jitter() {
        let policy = RetryPolicy::default();
        let delays: Vec<i64> =
            (0..1000).map(|id| policy.delay(1, MessageId(id), Patience::Ladder).num_milliseconds()).collect();
        let (early, late) = (
            delays.iter().filter(|delay| **delay < 52_500).count(),
            delays.iter().filter(|delay| **delay > 67_500).count(),
        );
        assert!((200..300).contains(&early) && (200..300).contains(&late), "{early} {late}");
    }

    proptest! {
        #[test]
        fn a_delay_is_bounded_repeatable_and_as_patient_as_asked(
            attempt in any::<u32>(), id in any::<i64>(),
            steps in prop::collection::vec(1i64..=6 * 86_400, 1..10),
        ) {
            let ladder: Vec<_> = steps.iter().copied().map(TimeDelta::seconds).collect();
            let policy = RetryPolicy::new(ladder, 3, MAX_AGE).unwrap();
            let of = |patience| policy.delay(attempt, MessageId(id), patience);
            let (ladder, grey, strict) =
                (of(Patience::Ladder), of(Patience::Greylisted), of(Patience::Policy));
            prop_assert_eq!(ladder, of(Patience::Ladder));
            prop_assert!(ladder > TimeDelta::zero() && strict <= MAX_AGE * 5 / 4);
            prop_assert!(ladder <= grey && grey <= strict);
            prop_assert!(grey >= TimeDelta::minutes(5) && strict >= TimeDelta::hours(1));
        }
    }
}
