//! A row of one org must never stand in the digest of another, whatever the operator's queries do.

use std::time::Duration;

use digestd::source::SourceError;

use super::{App, gather, told};
use crate::support::backend::TestDatabase;
use crate::support::process::Launch;

const TABLES: &str = "
    CREATE TABLE orgs (id bigint PRIMARY KEY, name text);
    CREATE TABLE notes (org_id bigint, author bigint, note text);
    INSERT INTO orgs VALUES (1, 'One'), (2, 'Two'), (3, 'Three');
    INSERT INTO notes VALUES (1, 11, 'ours'), (2, 12, 'a secret of Two'), (NULL, 11, 'of nobody');";

fn config(section: &str) -> String {
    format!(
        "[source]\nrecipients = \"SELECT id AS org_id, name AS org_name, id + 10 AS user_id, 'a@b.example' AS email FROM orgs\"\n\
         [[section]]\nname = \"notes\"\ntitle = \"Notes\"\n{section}"
    )
}

/// The driver hands a server's notices to the log. A function of the application's that warned about an odd address
/// had it there, at the default filter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_function_of_the_application_warns_of_does_not_come_into_the_log() {
    let database = TestDatabase::postgres().await;
    let function = "CREATE FUNCTION tell(text) RETURNS text LANGUAGE plpgsql AS $$
                    BEGIN RAISE WARNING 'an odd address: %', $1; RETURN $1; END $$;";
    super::execute(&database, function).await;
    let url = &database.url;
    let toml = format!(
        "[database]\nurl = \"{url}\"\n[source]\nurl = \"{url}\"\n\
         recipients = \"SELECT 1 AS org_id, 'One' AS org_name, 11 AS user_id, tell('ann@one.example') AS email\"\n\
         [[section]]\nname = \"notes\"\ntitle = \"Notes\"\nsql = \"SELECT 1 AS org_id, 'hers' AS title\"\n"
    );
    std::fs::write(database.folder().join("digestd.toml"), toml).expect("a file");
    for words in [&["migrate"][..], &["preview", "--org", "1"]] {
        let words = [words, &["--config", "digestd.toml"]].concat();
        let launch = Launch::new(database.folder(), words[0], &words).env("RUST_LOG", "trace");
        let mut process = launch.start();
        let status = process.exit(Duration::from_mins(1)).await;
        assert!(status.success(), "{}{}", process.output(), process.log());
        assert!(!process.log().contains("odd address"), "{}", process.log());
        assert!(words[0] == "migrate" || process.output().contains("hers"), "{}", process.output());
    }
}

both_databases! {
    // The commonest slip in such a query: somebody forgets its WHERE.
    async fn a_section_that_forgets_its_where_fails_and_shows_nothing(database: TestDatabase) {
        let app = App::new(database, TABLES, &config("sql = \"SELECT org_id, note AS title FROM notes\"")).await;
        let source = app.checked().await;
        for asked in [["1"].as_slice(), &["1", "2"], &["3"]] {
            let error = gather(&source, asked).await.expect_err("rows of others");
            assert!(matches!(&error, SourceError::Leak { section } if section == "notes"), "{error:?}");
            assert!(error.to_string().contains("“notes”"));
            assert!(!error.to_string().contains("secret"));
        }
    }

    async fn a_row_of_no_org_fails_its_section(database: TestDatabase) {
        let sql = "sql = \"SELECT org_id, note FROM notes WHERE org_id = ANY(:org_ids) OR org_id IS NULL\"";
        let app = App::new(database, TABLES, &config(sql)).await;
        let error = gather(&app.checked().await, &["1"]).await.expect_err("a row of nobody");
        assert!(matches!(error, SourceError::Leak { .. }), "{error:?}");
    }

    async fn a_section_that_may_be_left_out_is_left_out_when_it_leaks(database: TestDatabase) {
        let sql = "on_error = \"omit_with_note\"\nsql = \"SELECT org_id, note AS title FROM notes\"";
        let app = App::new(database, TABLES, &config(sql)).await;
        let source = app.checked().await;
        gather(&source, &["1", "2"]).await.expect_err("a batch is taken apart first");
        let digests = gather(&source, &["1"]).await.expect("a digest with a note");
        assert_eq!(told(&digests), "1 One\n  to 11 a@b.example - -\n  Notes: omitted\n");
    }

    async fn a_personal_row_reaches_its_user_alone(database: TestDatabase) {
        let sql = "personal = true\nsql = \"SELECT org_id, author AS user_id, note AS title FROM notes WHERE org_id = ANY(:org_ids)\"";
        let app = App::new(database, TABLES, &config(sql)).await;
        let digests = gather(&app.checked().await, &["1", "2"]).await.expect("digests");
        assert_eq!(
            told(&digests),
            "1 One\n  to 11 a@b.example - -\n  Notes for 11 of 1: {\"title\":\"ours\"}\n\
             2 Two\n  to 12 a@b.example - -\n  Notes for 12 of 1: {\"title\":\"a secret of Two\"}\n"
        );
    }

    async fn rows_that_name_a_user_never_go_to_everybody(database: TestDatabase) {
        let sql = "sql = \"SELECT org_id, author AS user_id, note FROM notes WHERE org_id = ANY(:org_ids)\"";
        let app = App::new(database, TABLES, &config(sql)).await;
        let source = digestd::source::Source::Operator(app.open());
        let found = source.check().await.expect_err("a user in rows for everybody").to_string();
        assert!(found.contains("personal = true"), "{found}");
        // And without the check, too.
        let error = gather(&source, &["1"]).await.expect_err("a user in rows for everybody");
        assert!(matches!(error, SourceError::Shape { .. }), "{error:?}");
    }

    async fn a_personal_row_of_nobody_fails_its_section(database: TestDatabase) {
        let sql = "personal = true\nsql = \"SELECT org_id, NULL AS user_id, note FROM notes WHERE org_id = ANY(:org_ids)\"";
        let app = App::new(database, TABLES, &config(sql)).await;
        let error = gather(&app.checked().await, &["1"]).await.expect_err("a row of nobody");
        assert!(matches!(error, SourceError::Value { column: "user_id", .. }), "{error:?}");
    }

    async fn a_query_cannot_write(database: TestDatabase) {
        let kind = database.kind;
        let sql = match kind {
            crate::support::backend::Kind::Postgres => "WITH gone AS (DELETE FROM notes RETURNING org_id) SELECT * FROM gone",
            crate::support::backend::Kind::Sqlite => "DELETE FROM notes RETURNING org_id",
        };
        let app = App::new(database, TABLES, &config(&format!("sql = \"{sql}\""))).await;
        let source = digestd::source::Source::Operator(app.open());
        source.check().await.expect_err("no query");
        gather(&source, &["1"]).await.expect_err("no query");
        let counted = config("sql = \"SELECT org_id, count(*) AS n FROM notes WHERE org_id = ANY(:org_ids) GROUP BY org_id\"");
        let App { database, .. } = app;
        let app = App::new(database, "SELECT 1", &counted).await;
        let digests = gather(&app.checked().await, &["2"]).await.expect("digests");
        assert!(told(&digests).contains("\"n\":1"), "{}", told(&digests));
    }
}
