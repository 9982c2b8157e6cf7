//! The guard: one winner per fingerprint, whoever races, dies or is restored from a backup.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use digestd::domain::address::Address;
use digestd::domain::fingerprint::Fingerprint;
use digestd::domain::ids::{GuardOwner, MessageId, OrgId, ReplicaId, Token, UserId};
use digestd::domain::message::{Disposition, Finished, Leased, MessageReason, MessageUid};
use digestd::guard::redis::RedisMemory;
use digestd::guard::{Guard, GuardTerms, Memory, Taken, Watch};
use digestd::metrics::Metrics;
use digestd::store::Store;
use digestd::store::enqueue::Enqueue;
use futures_util::StreamExt;
use secrecy::SecretString;

use crate::support::backend::TestDatabase;
use crate::support::fixtures::{self, claim_id, draft, due_orgs, lease_terms, monday, open, terms};
use crate::support::redis::Redis;
use crate::support::{eventually, scale};
use digestd::clock::Clock;

const TTL: Duration = Duration::from_hours(400);
const TIMEOUT: Duration = Duration::from_millis(500);
const SOON: Duration = Duration::from_secs(20);

fn watch(memory: Memory, store: &Store, ttl: Duration, open: bool) -> Guard {
    // Races and tests of SQL are about who wins, not about how long a busy disk takes.
    let timeout = if matches!(memory, Memory::Sql) { SOON } else { TIMEOUT };
    let terms = GuardTerms { ttl, timeout, open };
    Guard::On(Arc::new(Watch { memory, store: store.clone(), terms, metrics: Metrics::new() }))
}

fn sql_guard(store: &Store) -> Guard {
    watch(Memory::Sql, store, TTL, false)
}

fn redis_guard(redis: &Redis, store: &Store, open: bool) -> Guard {
    watch(Memory::Redis(Box::new(memory(redis))), store, TTL, open)
}

fn memory(redis: &Redis) -> RedisMemory {
    RedisMemory::new(&SecretString::from(redis.url()), "email:fp:", TIMEOUT).expect("a URL")
}

/// A lease of a message that is in no outbox, for a fingerprint of its own.
fn lease(id: i64, of: &str) -> Leased {
    let to = Address::parse("ann@example.org").expect("an address");
    Leased {
        id: MessageId(id),
        token: Token(1),
        uid: MessageUid::from_stored(format!("{id:032}")),
        org: OrgId::parse("acme").expect("an id"),
        user: UserId::parse("ann").expect("an id"),
        address: to.normal().to_owned(),
        fingerprint: Fingerprint::derive(to.normal(), "digest", of),
        to,
        attempts: 0,
        resend: false,
        failed_before: false,
        bytes: Vec::new(),
        trusted_until: Instant::now(),
    }
}

/// Takes under a fresh name.
async fn take(guard: &Guard, message: &Leased) -> (Taken, GuardOwner) {
    let owner = GuardOwner::random();
    (guard.take(message, owner).await, owner)
}

async fn sqlite_store() -> (TestDatabase, Store) {
    let database = TestDatabase::sqlite();
    let store = fixtures::store(&database).await;
    (database, store)
}

/// Lets two guards race for `count` fingerprints; every one must have one winner.
async fn race(one: &Guard, other: &Guard, count: usize) {
    let results = futures_util::stream::iter(0..count).map(|n| async move {
        let id = i64::try_from(n).expect("small");
        let (left, right) = (lease(id, &format!("race {n}")), lease(-1 - id, &format!("race {n}")));
        let ((left, _), (right, _)) = tokio::join!(take(one, &left), take(other, &right));
        (left, right)
    });
    let results: Vec<(Taken, Taken)> = results.buffer_unordered(40).collect().await;
    assert_eq!(results.len(), count);
    for pair in results {
        assert!(matches!(pair, (Taken::Go, Taken::Duplicate) | (Taken::Duplicate, Taken::Go)), "{pair:?}");
    }
}

/// A store with one pending message.
async fn with_message(database: &TestDatabase) -> Store {
    let store = fixtures::store(database).await;
    let terms = terms(ReplicaId::random());
    let claim = store.claim(&due_orgs(1, monday()), claim_id(), terms).await.expect("a claim").remove(0);
    let drafts = vec![draft(&claim, "ann@example.org")];
    store.enqueue(vec![Enqueue { claim, drafts }], TimeDelta::hours(48)).await.expect("enqueued");
    store
}

/// Leases and marks the one message.
async fn marked(store: &Store) -> Leased {
    let terms = lease_terms(ReplicaId::random());
    let message = store.lease_messages(1, terms).await.expect("a lease").messages.remove(0);
    let marked = store.mark_messages(&[message.fence()], Duration::from_mins(1)).await.expect("a marker");
    assert_eq!(marked.len(), 1);
    message
}

async fn record(store: &Store, message: &Leased, disposition: Disposition, owner: GuardOwner) {
    let finished = Finished {
        fence: message.fence(),
        disposition,
        phase: "dot",
        note: String::new(),
        guard: Some(owner),
    };
    let recorded = store.record_results(&[finished], ReplicaId::random()).await.expect("recorded");
    assert_eq!(recorded, [message.id]);
}

fn retry() -> Disposition {
    Disposition::Retry { after: TimeDelta::zero(), charge: true }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_fingerprints_raced_through_redis_have_one_winner_each() {
    let redis = Redis::start().await;
    let (_database, store) = sqlite_store().await;
    race(&redis_guard(&redis, &store, false), &redis_guard(&redis, &store, false), 10_000).await;
    let mut connection = redis.connection();
    let count: usize = redis::cmd("DBSIZE").query(&mut connection).expect("a count");
    assert_eq!(count, 10_000);
}

both_databases! {
    async fn fingerprints_raced_in_sql_have_one_winner_each(database: TestDatabase) {
        let store = fixtures::store(&database).await;
        race(&sql_guard(&store), &sql_guard(&store), scale(300, 10_000)).await;
    }

    async fn a_fingerprint_in_sql_is_free_again_when_given_back_or_expired_and_never_by_others(database: TestDatabase) {
        let store = fixtures::store(&database).await;
        let guard = sql_guard(&store);
        let (first, second) = (lease(1, "a"), lease(2, "a"));
        let (taken, owner) = take(&guard, &first).await;
        assert_eq!(taken, Taken::Go);
        guard.give_back(&second, GuardOwner::random()).await;
        assert_eq!(take(&guard, &second).await.0, Taken::Duplicate);
        guard.give_back(&first, owner).await;
        let (taken, other) = take(&guard, &second).await;
        assert_eq!(taken, Taken::Go);
        guard.give_back(&first, owner).await;
        assert_eq!(take(&guard, &first).await.0, Taken::Duplicate, "the second still holds it");
        store.clock().advance(TimeDelta::from_std(TTL).expect("a span"));
        assert_eq!(take(&guard, &first).await.0, Taken::Go);
        guard.give_back(&second, other).await;
        assert_eq!(take(&guard, &second).await.0, Taken::Duplicate, "the first holds it now");
    }

    async fn a_refused_hand_over_that_could_not_give_back_lets_its_own_retry_pass(database: TestDatabase) {
        let store = with_message(&database).await;
        let redis = Redis::start().await;
        for guard in [sql_guard(&store), redis_guard(&redis, &store, false)] {
            let message = marked(&store).await;
            let (taken, owner) = take(&guard, &message).await;
            assert_eq!(taken, Taken::Go);
            record(&store, &message, retry(), owner).await;
            let again = marked(&store).await;
            let (taken, owner) = take(&guard, &again).await;
            assert_eq!(taken, Taken::Go);
            // Nothing is known of this one yet, so it is in everybody's way.
            assert_eq!(take(&guard, &again).await.0, Taken::Duplicate);
            record(&store, &again, retry(), owner).await;
        }
    }

    // A row restored from a backup has the same id and uid, and its token rises to the number that the
    // accepted hand-over had: whatever is derived from the row would let it pass.
    async fn a_restored_copy_of_a_row_never_passes_what_its_original_has_sent(database: TestDatabase) {
        let redis = Redis::start_durable().await;
        let store = with_message(&database).await;
        let guard = redis_guard(&redis, &store, false);
        let refused = marked(&store).await;
        let (_, owner) = take(&guard, &refused).await;
        record(&store, &refused, retry(), owner).await;
        store.close().await;
        let backup = database.copy().await;

        let store = open(&database, Clock::manual(monday()));
        let guard = redis_guard(&redis, &store, false);
        let sent = marked(&store).await;
        let (taken, owner) = take(&guard, &sent).await;
        assert_eq!(taken, Taken::Go);
        record(&store, &sent, Disposition::Accepted, owner).await;

        let restored = open(&backup, Clock::manual(monday()));
        let guard = redis_guard(&redis, &restored, false);
        for _ in 0..3 {
            let copy = marked(&restored).await;
            assert_eq!((copy.id, &copy.uid), (sent.id, &sent.uid));
            // The relay refuses it before the guard is asked: the copy's own refusals prove nothing.
            record(&restored, &copy, retry(), GuardOwner::random()).await;
            let copy = marked(&restored).await;
            let (taken, owner) = take(&guard, &copy).await;
            assert_eq!(taken, Taken::Duplicate);
            record(&restored, &copy, retry(), owner).await;
        }
        let copy = marked(&restored).await;
        let (_, owner) = take(&guard, &copy).await;
        record(&restored, &copy, Disposition::Suppressed(MessageReason::Duplicate), owner).await;
    }

    async fn a_resend_passes_everybody_and_keeps_the_fingerprint_when_refused(database: TestDatabase) {
        let store = fixtures::store(&database).await;
        let redis = Redis::start().await;
        for guard in [sql_guard(&store), redis_guard(&redis, &store, false)] {
            assert_eq!(take(&guard, &lease(1, "a")).await.0, Taken::Go);
            let resend = Leased { resend: true, ..lease(1, "a") };
            let (taken, owner) = take(&guard, &resend).await;
            assert_eq!(taken, Taken::Go);
            guard.give_back(&resend, owner).await;
            assert_eq!(take(&guard, &lease(2, "a")).await.0, Taken::Duplicate);
            assert_eq!(take(&guard, &resend).await.0, Taken::Go);
        }
    }
}

#[tokio::test]
async fn a_redis_that_is_not_there_lets_messages_go_or_wait_as_configured_and_is_found_when_it_comes() {
    let mut redis = Redis::absent();
    let (_database, store) = sqlite_store().await;
    let (opened, closed) = (redis_guard(&redis, &store, true), redis_guard(&redis, &store, false));
    let message = lease(1, "a");
    assert_eq!(take(&opened, &message).await.0, Taken::Go);
    assert_eq!(take(&closed, &message).await.0, Taken::Closed);
    redis.restart().await;
    // The first question after the start is answered, not the second.
    assert_eq!(take(&closed, &message).await.0, Taken::Go);
    assert_eq!(take(&opened, &lease(2, "a")).await.0, Taken::Duplicate);
}

#[tokio::test]
async fn a_redis_that_dies_between_take_and_give_back_forgets_or_keeps_and_both_are_well() {
    let (_database, store) = sqlite_store().await;
    let mut redis = Redis::start().await;
    let guard = redis_guard(&redis, &store, false);
    let message = lease(1, "a");
    let (taken, owner) = take(&guard, &message).await;
    assert_eq!(taken, Taken::Go);
    redis.kill();
    guard.give_back(&message, owner).await;
    assert_eq!(take(&guard, &message).await.0, Taken::Closed);
    redis.restart().await;
    // Empty, its scripts forgotten too.
    let (taken, owner) = take(&guard, &message).await;
    assert_eq!(taken, Taken::Go);
    guard.give_back(&message, owner).await;
    assert_eq!(take(&guard, &lease(2, "a")).await.0, Taken::Go);

    let mut durable = Redis::start_durable().await;
    let guard = redis_guard(&durable, &store, false);
    assert_eq!(take(&guard, &message).await.0, Taken::Go);
    durable.kill();
    durable.restart().await;
    assert_eq!(take(&guard, &lease(2, "a")).await.0, Taken::Duplicate, "accepted before the restart");
}

#[tokio::test]
async fn a_frozen_redis_costs_no_more_than_the_timeout_and_is_asked_again_when_it_thaws() {
    let (_database, store) = sqlite_store().await;
    let redis = Redis::start().await;
    let guard = redis_guard(&redis, &store, false);
    assert_eq!(take(&guard, &lease(1, "before")).await.0, Taken::Go);
    redis.freeze();
    for n in 0..3 {
        let asked_at = Instant::now();
        assert_eq!(take(&guard, &lease(n, "a")).await.0, Taken::Closed);
        assert!(asked_at.elapsed() < TIMEOUT * 2, "{:?}", asked_at.elapsed());
    }
    redis.thaw();
    eventually("an answer", SOON, async || {
        (take(&guard, &lease(1, "after")).await.0 != Taken::Closed).then_some(())
    })
    .await;
}

// Released by whoever had it once, a fingerprint taken over by another was free again
// (nexspence#223); set and given its expiry apart, it stayed for ever (resque-scheduler#553).
#[tokio::test]
async fn a_fingerprint_in_redis_expires_and_its_old_owner_takes_nothing_from_the_new_one() {
    let (_database, store) = sqlite_store().await;
    let redis = Redis::start().await;
    let short = watch(Memory::Redis(Box::new(memory(&redis))), &store, Duration::from_millis(50), false);
    let guard = redis_guard(&redis, &store, false);
    let (first, second) = (lease(1, "a"), lease(2, "a"));
    let (taken, owner) = take(&short, &first).await;
    assert_eq!(taken, Taken::Go);
    eventually("the first one's time is over", SOON, async || {
        (take(&guard, &second).await.0 == Taken::Go).then_some(())
    })
    .await;
    short.give_back(&first, owner).await;
    assert_eq!(take(&guard, &first).await.0, Taken::Duplicate);

    let mut connection = redis.connection();
    let key = format!("email:fp:{}", first.fingerprint);
    let left: i64 = redis::cmd("PTTL").arg(&key).query(&mut connection).expect("a time");
    let ttl = i64::try_from(TTL.as_millis()).expect("a span");
    assert!(left > ttl - 60_000 && left <= ttl, "{left}");
}
