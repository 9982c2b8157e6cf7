//! Every type of PostgreSQL arrives, because the server writes it.

use serde_json::{Value, json};

use super::{App, gather};
use crate::support::backend::TestDatabase;
use digestd::domain::digest::SectionBody;

const SECTION: &str = "
[source]
recipients = \"SELECT id AS org_id, 'One' AS org_name, 2 AS user_id, 'a@b.example' AS email FROM orgs\"
[[section]]
name = \"all\"
title = \"All\"
sql = \"SELECT thing.*, ARRAY[1, NULL, 3] AS list, thing AS whole, 1.0::float8 AS f, 0.1::float4 AS g FROM things thing WHERE org_id = ANY(:org_ids)\"
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_column_type_arrives_without_loss() {
    let script = "
        CREATE EXTENSION citext;
        CREATE TYPE mood AS ENUM ('glad', 'sad');
        CREATE TYPE point3 AS (x integer, y numeric, z text);
        CREATE DOMAIN percent AS numeric CHECK (VALUE BETWEEN 0 AND 100);
        CREATE TABLE orgs (id uuid PRIMARY KEY);
        CREATE TABLE things (
            org_id uuid, id bigint, n numeric(40,10), nan numeric, j jsonb, tags text[], m mood, moods mood[],
            r int4range, mr tstzmultirange, tz timestamptz, ts timestamp, d date, t time, i interval, ip inet,
            p percent, c point3, b bytea, x xml, bits bit(3), money money, forever timestamptz, v tsvector, ci citext
        );
        INSERT INTO orgs VALUES ('00000000-0000-4000-8000-000000000001');
        INSERT INTO things VALUES (
            '00000000-0000-4000-8000-000000000001', 9223372036854775807, 123456789012345678901234567890.0123456789,
            'NaN', '{\"a\": [1, 2.50, {\"b\": null}], \"big\": 12345678901234567890123}', '{a,\"b c\",NULL}', 'sad', '{glad,sad}',
            '[1,5)', '{[2026-01-01 00:00+00,2026-01-02 00:00+00)}', '2026-06-30 12:00+02', '2026-06-30 12:00', '2026-06-30', '08:30',
            '1 day 02:03:04', '10.0.0.0/8', 99.5, ROW(1, 2.25, 'q\"'), '\\xdeadbeef', '<a/>', B'101', 12.5, 'infinity', 'a b', 'Grüße'
        );";
    let app = App::new(TestDatabase::postgres().await, script, SECTION).await;
    let digests =
        gather(&app.checked().await, &["00000000-0000-4000-8000-000000000001"]).await.expect("a digest");
    let SectionBody::Rows(rows) = &digests[0].sections[0].body else { panic!("no rows") };
    let mut row = Value::Object(rows.shown[0].clone());
    // The whole row once more, as a column.
    assert_eq!(row["whole"]["n"], row["n"]);
    assert!(row["money"].as_str().expect("text").contains("12.50"));
    for name in ["whole", "money", "v", "mr"] {
        assert!(row.as_object_mut().expect("a row").remove(name).is_some());
    }
    assert_eq!(
        row,
        json!({
            "id": 9_223_372_036_854_775_807_i64, "n": "123456789012345678901234567890.0123456789", "nan": "NaN",
            "j": { "a": [1, "2.50", { "b": null }], "big": "12345678901234567890123" }, "tags": ["a", "b c", null],
            "m": "sad", "moods": ["glad", "sad"], "r": "[1,5)", "tz": "2026-06-30T10:00:00+00:00",
            "ts": "2026-06-30T12:00:00", "d": "2026-06-30", "t": "08:30:00", "i": "1 day 02:03:04", "ip": "10.0.0.0/8",
            "p": "99.5", "c": { "x": 1, "y": "2.25", "z": "q\"" }, "b": "\\xdeadbeef", "x": "<a/>", "bits": "101",
            "forever": "infinity", "ci": "Grüße", "list": [1, null, 3], "f": 1, "g": "0.1",
        })
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_of_every_type_are_compared_in_their_own_type() {
    let database = TestDatabase::postgres().await;
    for (n, (sql_type, id)) in [
        ("smallint", "7"),
        ("bigint", "9007199254740993"),
        ("uuid", "00000000-0000-4000-8000-000000000001"),
        ("varchar(20)", "a,b{c}\"d"),
        ("char(8)", "abc"),
        ("numeric", "12.50"),
        ("key_domain", "k-1"),
        ("mood", "sad"),
        ("citext", "MixedCase"),
    ]
    .into_iter()
    .enumerate()
    {
        let types = if n == 0 {
            "CREATE EXTENSION citext; CREATE DOMAIN key_domain AS text CHECK (VALUE <> ''); CREATE TYPE mood AS ENUM ('glad', 'sad');"
        } else {
            ""
        };
        let script = format!(
            "{types} CREATE TABLE t{n} (id {sql_type} PRIMARY KEY); INSERT INTO t{n} VALUES ('{id}')"
        );
        super::execute(&database, &script).await;
    }
    let mut database = database;
    for (n, id) in [
        "7",
        "9007199254740993",
        "00000000-0000-4000-8000-000000000001",
        "a,b{c}\"d",
        "abc",
        "12.50",
        "k-1",
        "sad",
        "MixedCase",
    ]
    .into_iter()
    .enumerate()
    {
        let toml = format!(
            "[source]\nrecipients = \"SELECT id AS org_id, 'N' AS org_name, id AS user_id, 'a@b.example' AS email FROM t{n}\"\n\
             [[section]]\nname = \"s\"\ntitle = \"S\"\nsql = \"SELECT id AS org_id, 1 AS one FROM t{n} WHERE id = ANY(:org_ids)\""
        );
        let app = App::new(database, "SELECT 1", &toml).await;
        let source = app.checked().await;
        let mut listing = source.candidates(None).await.expect("a list");
        let page = listing.next_page(5).await.expect("a page").expect("one org");
        assert_eq!(page[0].org.as_str(), id);
        let digests = gather(&source, &[id]).await.expect("a digest");
        assert!(super::told(&digests).contains("S of 1: {\"one\":1}"), "{id}: {}", super::told(&digests));
        database = app.database;
    }
}
