//! A batch costs as many queries as there are sections, however many orgs it holds, and uses the
//! application's own indexes.

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::{App, gather};
use crate::support::backend::TestDatabase;
use crate::support::scale;
use digestd::source::Source;

const CONFIG: &str = "
[source]
recipients = \"SELECT o.id AS org_id, o.name AS org_name, a.id AS user_id, a.email FROM orgs o JOIN admins a ON a.org_id = o.id WHERE a.wants\"
[[section]]
name = \"figures\"
title = \"Figures\"
kind = \"figures\"
sql = \"SELECT org_id, kind AS label, count(*) AS value FROM activity WHERE org_id = ANY(:org_ids) AND at >= :from AND at < :to GROUP BY org_id, kind\"
[[section]]
name = \"rows\"
title = \"Rows\"
sql = \"SELECT org_id, title, at FROM activity WHERE org_id = ANY(:org_ids) AND at >= :from AND at < :to ORDER BY at DESC\"
";

fn script(orgs: usize, rows: usize) -> String {
    format!(
        "CREATE TABLE orgs (id uuid PRIMARY KEY, name text);
         CREATE TABLE admins (id bigint PRIMARY KEY, org_id uuid, email text, wants boolean);
         CREATE TABLE activity (org_id uuid, kind text, title text, at timestamptz);
         INSERT INTO orgs SELECT md5(n::text)::uuid, 'Org ' || n FROM generate_series(1, {orgs}) n;
         INSERT INTO admins SELECT n, md5((1 + n % {orgs})::text)::uuid, 'a' || n || '@example.org', TRUE
             FROM generate_series(1, 3 * {orgs}) n;
         INSERT INTO activity
             SELECT md5((1 + n % {orgs})::text)::uuid, 'kind ' || n % 5, 'Title ' || n,
                 TIMESTAMPTZ '2026-07-05 12:00Z' - n / {orgs} % 50 * INTERVAL '1 day'
             FROM generate_series(1, {rows}) n;
         CREATE INDEX ON admins (org_id);
         CREATE INDEX ON activity (org_id, at);
         ANALYZE;"
    )
}

async fn number(database: &TestDatabase, sql: &str) -> i64 {
    let mut connection = PgConnection::connect(&database.url).await.expect("a connection");
    sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&mut connection).await.expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_use_the_application_s_indexes_and_a_constant_number_of_queries() {
    const BATCH: u32 = 20;
    let (count, rows) = (scale(200, 1_000), scale(20_000, 1_000_000));
    let app = App::new(TestDatabase::postgres().await, &script(count, rows), CONFIG).await;
    let operator = app.open();
    let source = Source::Operator(operator.clone());
    let seq_scans = "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'activity'";
    let transactions =
        "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    let (scans_before, transactions_before) =
        (number(&app.database, seq_scans).await, number(&app.database, transactions).await);

    let mut listing = source.candidates(None).await.expect("a list");
    let mut names = Vec::new();
    while let Some(page) = listing.next_page(BATCH).await.expect("a page") {
        names.extend(page.into_iter().map(|candidate| candidate.org));
    }
    assert_eq!(names.len(), count);
    assert!(names.is_sorted(), "the list is in the order of ids");
    let mut digests = 0;
    for batch in names.chunks(BATCH as usize) {
        let batch: Vec<&str> = batch.iter().map(digestd::domain::ids::OrgId::as_str).collect();
        let gathered = gather(&source, &batch).await.expect("digests");
        assert!(gathered.iter().all(|digest| digest.recipients.len() == 3 && !digest.is_empty()));
        digests += gathered.len();
    }
    assert_eq!(digests, count);
    assert_eq!(source.members(&[&names[0]]).await.expect("members").len(), 3);
    // A connection reports what it has done at the latest when it is closed.
    operator.close().await;
    drop(listing);

    let scans = number(&app.database, seq_scans).await - scans_before;
    assert_eq!(scans, 0, "the large table is never read from end to end");
    let used = number(
        &app.database,
        "SELECT count(*) FROM pg_stat_user_indexes WHERE idx_scan > 0 AND relname IN ('admins', 'activity')",
    )
    .await;
    assert_eq!(used, 2, "both indexes serve");
    // Each query is a transaction of its own. The few that learn the columns, list the orgs and look for
    // members come on top, and so does what the server counts for each connection.
    let batches = count.div_ceil(BATCH as usize);
    let queries = number(&app.database, transactions).await - transactions_before;
    let queries = usize::try_from(queries).expect("a count");
    assert!(queries <= 3 * batches + 24, "{queries} transactions for {batches} batches");
}
