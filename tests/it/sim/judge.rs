//! The judge: compares the tables and the relay's book with the town's own story.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use chrono::{DateTime, TimeDelta, Utc};
use digestd::domain::week::WeekKey;
use digestd::metrics::Metrics;

use super::life::Town;
use super::relay::MoodyRelay;
use super::tables::{MessageRow, SendRow, Tables};
use super::town::{CATCH_UP, Expected, Org, Owed};
use crate::support::backend::TestDatabase;
use crate::support::counters::{every_end_is_counted, sum, values};

/// Sends and their messages are looked at for as long as anything about them may still change.
const STILL_MOVING: TimeDelta = TimeDelta::days(17);
/// A claimed send is tried for so long after its window.
const GIVE_UP: TimeDelta = TimeDelta::hours(24);

/// What must hold, and what is remembered for it.
pub struct Judge {
    tables: Tables,
    /// What could be claimed, in each form in which it could be.
    could: BTreeMap<(String, String), Vec<Owed>>,
    /// When every candidate was last read.
    known_at: Option<DateTime<Utc>>,
    /// How often the relay took each message.
    taken: HashMap<String, usize>,
}

impl Judge {
    pub async fn new(database: &TestDatabase) -> Self {
        let tables = Tables::open(database).await;
        Self { tables, could: BTreeMap::new(), known_at: None, taken: HashMap::new() }
    }

    /// After the sweeps of an hour: whoever was due and could be known of has a send. `full`: all
    /// candidates were read. `swept`: at least one replica came to the end of its sweep.
    pub async fn after_sweeps(&mut self, town: &Town, now: DateTime<Utc>, full: bool, swept: bool) {
        let due: Vec<(&Org, Owed)> =
            town.orgs.iter().filter_map(|org| org.due(now).map(|owed| (org, owed))).collect();
        for (_, owed) in &due {
            let forms = self.could.entry((owed.org.clone(), owed.week.to_string())).or_default();
            if !forms.contains(owed) {
                forms.push(owed.clone());
            }
        }
        if !swept {
            return;
        }
        if full {
            self.known_at = Some(now);
        }
        let known =
            |org: &Org| full || (org.state.now().has_zone() && Some(org.changed_at()) <= self.known_at);
        let must: Vec<&Owed> = due.iter().filter(|(org, _)| known(org)).map(|(_, owed)| owed).collect();
        if must.is_empty() {
            return;
        }
        let have = self.tables.keys_since(now - TimeDelta::days(10)).await;
        for owed in must {
            let key = (owed.org.clone(), owed.week.to_string());
            assert!(have.contains(&key), "at {now} {key:?} has no send; its slot opened at {}", owed.slot_at);
        }
    }

    /// After a week was closed: everybody who is owed it has a send, or is down as missed.
    pub async fn after_closing(&mut self, town: &Town, week: WeekKey, now: DateTime<Utc>) {
        let have = self.tables.keys_since(now - TimeDelta::days(40)).await;
        for owed in town.orgs.iter().filter_map(|org| org.owed_in(week, now)) {
            let key = (owed.org.clone(), week.to_string());
            assert!(have.contains(&key), "{week} was closed at {now} without {key:?}");
            let forms = self.could.entry(key).or_default();
            if !forms.contains(&owed) {
                forms.push(owed);
            }
        }
    }

    /// How many messages are due now, so that a death can be made to hurt.
    pub async fn waiting(&self, now: DateTime<Utc>) -> i64 {
        self.tables
            .count(&format!(
                "SELECT COUNT(*) FROM {{outbox}} WHERE state = 'pending' AND next_attempt_at <= {}",
                self.tables.instant(now)
            ))
            .await
    }

    /// Nothing stays leased past its expiry once everything was swept.
    pub async fn no_lease_is_overdue(&self, now: DateTime<Utc>) {
        let now_text = self.tables.instant(now);
        for (table, states) in [("sends", "'claimed'"), ("outbox", "'leased', 'sending'")] {
            let query = format!(
                "SELECT COUNT(*) FROM {{{table}}} WHERE state IN ({states}) AND lease_until <= {now_text}"
            );
            assert_eq!(self.tables.count(&query).await, 0, "overdue leases in {table} at {now}");
        }
    }

    /// Everything, once a week, after an hour in which nobody died.
    pub async fn check(&mut self, town: &Town, relay: &MoodyRelay, now: DateTime<Utc>) {
        let copies = "SELECT COUNT(*) - COUNT(DISTINCT org_id || ' ' || week_key) FROM {sends}";
        assert_eq!(self.tables.count(copies).await, 0, "an org has two sends for one week");
        let mut taken_by: HashMap<String, String> = HashMap::new();
        for message in relay.server.take_accepted() {
            let text = String::from_utf8_lossy(&message.data);
            let uid = text.lines().find_map(|line| line.strip_prefix("X-Digestd-Id: ")).expect("our header");
            *self.taken.entry(uid.trim().to_owned()).or_default() += 1;
            taken_by.insert(uid.trim().to_owned(), message.to.to_lowercase());
        }
        let since = now - STILL_MOVING;
        let orgs: HashMap<&str, &Org> = town.orgs.iter().map(|org| (org.id.as_str(), org)).collect();
        let mut messages: HashMap<i64, Vec<MessageRow>> = HashMap::new();
        for row in self.tables.messages_since(since).await {
            if let Some(to) = taken_by.remove(&row.2) {
                assert_eq!(to, row.1, "a message went to somebody else");
            }
            messages.entry(row.0).or_default().push(row);
        }
        assert!(taken_by.is_empty(), "taken by the relay, but in no row: {taken_by:?}");
        for send in self.tables.sends_since(since).await {
            let org = orgs.get(send.1.as_str()).expect("an org of the town");
            let messages = messages.remove(&send.0).unwrap_or_default();
            let owed = self.origin(&send);
            check_period(&send, &owed);
            check_end(org, &send, &owed, &messages);
            for message in &messages {
                self.check_message(org, message, now);
            }
        }
    }

    /// What the send was made for; it must have been owed to the org in exactly this form.
    fn origin(&self, send: &SendRow) -> Owed {
        let key = (send.1.clone(), send.2.clone());
        let forms = self.could.get(&key).unwrap_or_else(|| panic!("nobody owed {key:?} a digest"));
        let form = forms
            .iter()
            .find(|owed| owed.slot_at.timestamp_millis() == send.5 && owed.zone.name() == send.6)
            .unwrap_or_else(|| panic!("{send:?} is none of {forms:?}"));
        form.clone()
    }

    fn check_message(&self, org: &Org, message: &MessageRow, now: DateTime<Utc>) {
        let (_, address, uid, state, settled_at, expires_at, _) = message;
        let taken = self.taken.get(uid).copied().unwrap_or(0);
        assert!(taken <= 1, "{address} has {taken} copies of {uid}");
        match state.as_str() {
            "accepted" => assert_eq!(taken, 1, "{message:?} was never taken"),
            "uncertain" => {}
            "pending" => {
                assert_eq!(taken, 0, "{message:?} would be sent again");
                assert!(*expires_at + 3_600_000 > now.timestamp_millis(), "{message:?} is immortal at {now}");
            }
            "failed" | "suppressed" | "expired" => assert_eq!(taken, 0, "{message:?} was taken"),
            _ => panic!("{message:?} is still under way at {now}"),
        }
        let left = org
            .admins
            .iter()
            .filter(|admin| admin.email.to_lowercase() == *address)
            .find_map(|admin| admin.unsubscribed_at);
        if let (Some(left), "accepted", Some(settled)) = (left, state.as_str(), settled_at) {
            assert!(*settled < left.timestamp_millis(), "{message:?} after an opt-out at {left}");
        }
    }

    /// The numbers of a scrape are those of the tables.
    pub async fn check_gauges(&self, metrics: &Metrics, store: &digestd::store::Store) {
        let stats = store.stats().await.expect("numbers");
        metrics.set_sends(stats.sends.iter().map(|s| (s.week.as_str(), s.state, s.count)));
        for (state, n) in &stats.messages {
            metrics.set_outbox(*state, *n);
        }
        let weeks: BTreeSet<&str> = stats.sends.iter().map(|count| count.week.as_str()).collect();
        let mut sends = BTreeMap::new();
        for (week, state, n) in self.tables.sends_by_week().await {
            if weeks.contains(week.as_str()) {
                sends.insert(format!("state=\"{state}\",week=\"{week}\""), n);
            }
        }
        assert_eq!(values(&metrics.prometheus_text(), "digestd_sends"), sends);
        let mut outbox: BTreeMap<String, i64> = ["leased", "pending", "sending", "uncertain"]
            .map(|state| (format!("state=\"{state}\""), 0))
            .into();
        for (state, n) in self.tables.by_state("outbox").await {
            outbox.entry(format!("state=\"{state}\"")).and_modify(|shown| *shown = n);
        }
        assert_eq!(values(&metrics.prometheus_text(), "digestd_outbox_messages"), outbox);
    }

    /// What the replicas have counted is what they have done, as long as none of them died.
    pub async fn check_counters(&self, database: &TestDatabase, metrics: &[&Metrics]) {
        let scrapes: Vec<String> = metrics.iter().map(|metrics| metrics.prometheus_text()).collect();
        let in_table: BTreeMap<String, i64> = self
            .tables
            .worked()
            .await
            .into_iter()
            .map(|(state, reason, n)| {
                (format!("reason=\"{}\",state=\"{state}\"", reason.unwrap_or_default()), n)
            })
            .collect();
        assert_eq!(sum(&scrapes, "digestd_sends_settled_total"), in_table);
        every_end_is_counted(database, metrics).await;
    }
}

/// Seven local days before the slot's week, in the zone that the org had.
fn check_period(send: &SendRow, owed: &Owed) {
    let (_, _, _, _, _, _, _, first, start, end, _) = send;
    let monday = owed.week.previous().monday();
    assert_eq!(*first, monday.to_string(), "{send:?}");
    assert_eq!(*start, owed.zone.start_of_day(monday).timestamp_millis(), "{send:?}");
    assert_eq!(*end, owed.zone.start_of_day(owed.week.monday()).timestamp_millis(), "{send:?}");
}

/// The end that the town's story asks for at the moment at which the send was worked.
fn check_end(org: &Org, send: &SendRow, owed: &Owed, messages: &[MessageRow]) {
    let (state, reason) = (send.3.as_str(), send.4.as_deref());
    let settled_at = send.10.unwrap_or_else(|| panic!("{send:?} is not settled"));
    let settled_at = DateTime::from_timestamp_millis(settled_at).expect("a time");
    assert!(settled_at >= owed.slot_at, "{send:?} came early");
    if (state, reason) == ("failed", Some("too_late")) {
        assert!(settled_at >= owed.slot_at + CATCH_UP + GIVE_UP, "{send:?} was given up too soon");
        return;
    }
    if state == "missed" {
        assert!(settled_at >= owed.slot_at + CATCH_UP, "{send:?} was missed too soon");
        assert_eq!(org.owed_in(owed.week, settled_at).as_ref(), Some(owed), "{send:?}");
        return;
    }
    match org.expected(owed, settled_at) {
        Expected::Ended(wanted, why) => assert_eq!((state, reason), (wanted, Some(why)), "{send:?}"),
        Expected::Enqueued(addresses) => {
            assert_eq!(state, "enqueued", "{send:?}");
            let found: BTreeSet<String> = messages.iter().map(|message| message.1.clone()).collect();
            assert_eq!(found, addresses, "{send:?}");
            assert_eq!(found.len(), messages.len(), "{send:?}");
        }
    }
}
