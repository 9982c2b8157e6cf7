//! What is counted in `/metrics`, beside what stands in the tables.

use std::collections::BTreeMap;

use digestd::metrics::Metrics;

use super::backend::TestDatabase;
use super::world::numbers;

/// A metric's values by its labels, sorted by name, in Prometheus's text format.
pub fn values(text: &str, name: &str) -> BTreeMap<String, i64> {
    let values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{')?.split_once("} "));
    values
        .map(|(labels, value)| {
            let mut labels: Vec<&str> = labels.split(',').collect();
            labels.sort_unstable();
            (labels.join(","), value.trim().parse().expect("a whole number"))
        })
        .collect()
}

/// A counter over several replicas, without what nobody has counted.
pub fn sum<'a>(scrapes: impl IntoIterator<Item = &'a String>, name: &str) -> BTreeMap<String, i64> {
    let mut counted: BTreeMap<String, i64> = BTreeMap::new();
    for (labels, n) in scrapes.into_iter().flat_map(|text| values(text, name)) {
        *counted.entry(labels).or_default() += n;
    }
    counted.retain(|_, n| *n > 0);
    counted
}

/// Messages in final states as the table has them, under the labels of the counter.
pub async fn ended_messages(database: &TestDatabase) -> BTreeMap<String, i64> {
    let query = "SELECT 'reason=\"' || COALESCE(reason, '') || '\",state=\"' || state || '\"', COUNT(*)
        FROM {}outbox
        WHERE state IN ('accepted', 'failed', 'suppressed', 'expired', 'cancelled')
        GROUP BY 1";
    numbers(database, query).await.into_iter().collect()
}

/// Every end of a message has been counted, by whichever of the replicas.
pub async fn every_end_is_counted(database: &TestDatabase, replicas: &[&Metrics]) {
    let scrapes: Vec<String> = replicas.iter().map(|metrics| metrics.prometheus_text()).collect();
    assert_eq!(sum(&scrapes, "digestd_messages_settled_total"), ended_messages(database).await);
}
