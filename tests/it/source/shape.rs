//! Queries that cannot serve are named before the first Monday, with what would be right.

use digestd::domain::digest::SectionBody;
use digestd::source::Source;

use super::{App, execute};
use crate::support::backend::TestDatabase;

const RECIPIENTS: &str = "SELECT 1 AS org_id, 'One' AS org_name, 2 AS user_id, 'a@b.example' AS email";

async fn refused(database: TestDatabase, recipients: &str, section: &str) -> (TestDatabase, String) {
    let toml = format!(
        "[source]\nrecipients = \"\"\"{recipients}\"\"\"\n[[section]]\nname = \"s\"\ntitle = \"S\"\n{section}"
    );
    let app = App::new(database, "SELECT 1", &toml).await;
    let config = app.config;
    let source = config.source.as_ref().expect("a source");
    let opened =
        digestd::source::operator::Operator::open(source, &config.sections, &config.schedule.default);
    let error = match opened {
        Err(error) => error,
        Ok(operator) => Source::Operator(operator).check().await.expect_err("a query that cannot serve"),
    };
    let chain = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
    (app.database, chain.map(ToString::to_string).collect::<Vec<_>>().join(": "))
}

both_databases! {
    async fn each_column_that_is_missing_surplus_or_twice_is_named(database: TestDatabase) {
        let rows = "sql = \"SELECT 1 AS org_id\"";
        let figures = "kind = \"figures\"\nsql = \"SELECT 1 AS org_id, 2 AS label, 3 AS valeu\"";
        let mut database = database;
        for (recipients, section, told) in [
            ("SELECT 1 AS org_id, 2 AS mail", rows,
                "the recipients query cannot be used: missing: org_name, user_id, email; not known: mail; expected org_id, org_name, \
                 user_id, email, and at will name, locale, timezone, weekday, time, org_created_at, opted_in_at"),
            ("SELECT :from AS org_id", rows, "the recipients query cannot be used: it uses :from; parameters are for sections"),
            ("SELECT 1; SELECT 2", rows, "the recipients query cannot be used: line 1: more than one statement"),
            (RECIPIENTS, figures, "the query of section “s” cannot be used: missing: value; not known: valeu"),
            (RECIPIENTS, "sql = \"SELECT 2 AS id\"", "the query of section “s” cannot be used: missing: org_id"),
            (RECIPIENTS, "sql = \"SELECT :org_id\"", "unknown parameter :org_id; did you mean :org_ids?"),
            (RECIPIENTS, "personal = true\nsql = \"SELECT 1 AS org_id\"", "missing: user_id"),
            (RECIPIENTS, "sql = \"SELECT 1 AS org_id FROM nowhere\"", "the query of section “s” failed: "),
        ] {
            let (returned, error) = refused(database, recipients, section).await;
            assert!(error.contains(told), "{error}\n{told}");
            database = returned;
        }
    }

    async fn values_are_bound_and_never_become_sql(database: TestDatabase) {
        let evil = "x' OR '1'='1";
        execute(&database, "CREATE TABLE orgs (id text); INSERT INTO orgs VALUES ('x'' OR ''1''=''1'), ('other')").await;
        let toml = "[source]\nrecipients = \"SELECT id AS org_id, id AS org_name, id AS user_id, 'a@b.example' AS email FROM orgs\"\n\
             [[section]]\nname = \"s\"\ntitle = \"S\"\nsql = \"SELECT id AS org_id, :week_key AS w, ':from' AS f FROM orgs WHERE id = ANY(:org_ids)\"";
        let app = App::new(database, "SELECT 1", toml).await;
        let digests = super::gather(&app.checked().await, &[evil]).await.expect("digests");
        assert_eq!(digests.len(), 1);
        assert!(super::told(&digests).contains(r#"S of 1: {"f":":from","w":"2026-W28"}"#), "{}", super::told(&digests));
    }

    async fn what_is_odd_about_the_recipients_is_counted(database: TestDatabase) {
        let script = "CREATE TABLE members (org text, zone text, day text, person text, mail text);
            INSERT INTO members VALUES
                ('a', 'UTC', 'mon', '1', 'x@a.example'), ('a', 'UTC', 'mon', '1', 'x@a.example'),
                ('a', 'UTC', 'mon', '2', 'X@A.example'), ('a', 'UTC', 'mon', '3', 'no address'),
                ('a', 'UTC', 'mon', NULL, 'y@a.example'), ('b', 'Nowhere', 'mon', '1', 'x@a.example'),
                ('c', NULL, 'someday', '1', 'z@c.example'), (' ', NULL, NULL, '1', 'z@c.example'),
                (NULL, NULL, NULL, '1', 'z@c.example');";
        let toml = "[source]\nrecipients = \"SELECT org AS org_id, org AS org_name, person AS user_id, mail AS email, \
             zone AS timezone, day AS weekday FROM members\"\n\
             [[section]]\nname = \"s\"\ntitle = \"S\"\nsql = \"SELECT org AS org_id FROM members WHERE org = ANY(:org_ids)\"";
        let app = App::new(database, script, toml).await;
        let survey = app.open().survey().await.expect("a survey");
        let expected = digestd::source::operator::Survey {
            orgs: 3,
            recipients: 3,
            duplicates: 2,
            broken_addresses: 1,
            unusable_users: 1,
            bad_zones: 1,
            bad_schedules: 1,
            unusable_ids: 1,
        };
        assert_eq!(survey, expected);
        assert_eq!(survey.problems().len(), 6);
    }

    /// One LIMIT for all orgs of a batch takes from some what it gives to others, and nobody sees it.
    async fn a_limit_over_many_orgs_together_is_refused(database: TestDatabase) {
        let section = "sql = \"SELECT 1 AS org_id, 2 AS n ORDER BY n LIMIT 10\"";
        let (database, error) = refused(database, RECIPIENTS, section).await;
        assert!(error.contains("section “s”") && error.contains("line 1: a LIMIT or OFFSET cuts"), "{error}");
        let toml = format!(
            "[source]\nrecipients = \"{RECIPIENTS}\"\n[[section]]\nname = \"s\"\ntitle = \"S\"\n\
             sql = \"SELECT org_id, n FROM (SELECT 1 AS org_id, 2 AS n LIMIT 10) AS t\""
        );
        App::new(database, "SELECT 1", &toml).await.checked().await;
    }

    /// A large org showed a seventh of its volume, without a word about the rest; and where all that is shown
    /// is zero, what is not shown may be anything.
    async fn figures_past_the_limit_are_counted_and_make_no_week_a_quiet_one(database: TestDatabase) {
        let tables = "CREATE TABLE teams (org bigint, team text, n bigint);
            INSERT INTO teams VALUES (1, 'a', 0), (1, 'b', 0), (1, 'c', 7), (2, 'a', 0), (2, 'b', 0);";
        let toml = "[source]\nrecipients = \"SELECT org AS org_id, org AS org_name, org AS user_id, 'a@b.example' AS email FROM teams\"\n\
             [[section]]\nname = \"s\"\ntitle = \"S\"\nkind = \"figures\"\nlimit = 2\n\
             sql = \"SELECT org AS org_id, team AS label, n AS value FROM teams WHERE org = ANY(:org_ids) ORDER BY team\"";
        let app = App::new(database, tables, toml).await;
        let digests = super::gather(&app.checked().await, &["1", "2"]).await.expect("digests");
        let counted: Vec<_> = digests
            .iter()
            .map(|digest| match &digest.sections[0].body {
                SectionBody::Figures(figures) => (figures.shown.len(), figures.total, digest.is_empty()),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(counted, [(2, 3, false), (2, 2, true)]);
    }

    async fn an_empty_application_is_no_mistake(database: TestDatabase) {
        execute(&database, "CREATE TABLE orgs (id bigint)").await;
        let toml = "[source]\nrecipients = \"SELECT id AS org_id, id AS org_name, id AS user_id, 'a@b.example' AS email FROM orgs\"\n\
             [[section]]\nname = \"s\"\ntitle = \"S\"\nsql = \"SELECT id AS org_id FROM orgs WHERE id = ANY(:org_ids)\"";
        let app = App::new(database, "SELECT 1", toml).await;
        let source = app.checked().await;
        let mut listing = source.candidates(None).await.expect("a list");
        assert!(listing.next_page(10).await.expect("an answer").is_none());
        assert!(super::gather(&source, &["1"]).await.expect("an answer").is_empty());
        // Once there is an org, it is found, its numbers as numbers.
        execute(&app.database, "INSERT INTO orgs VALUES (7)").await;
        let digests = super::gather(&source, &["7"]).await.expect("digests");
        assert!(super::told(&digests).contains("S of 1: {}"), "{}", super::told(&digests));
    }
}

#[tokio::test]
async fn a_source_that_is_away_is_told_from_one_that_is_wrong() {
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = gone.local_addr().expect("an address").port();
    let hanging_up = tokio::spawn(async move { while gone.accept().await.is_ok() {} });
    let toml = format!(
        "public_url = \"http://127.0.0.1:8080\"\n[source]\nurl = \"postgres://u@127.0.0.1:{port}/app\"\n\
         recipients = \"SELECT 1\"\n[[section]]\nname = \"s\"\ntitle = \"S\"\nsql = \"SELECT 1\""
    );
    let config = digestd::config::Config::parse(&toml, []).expect("a configuration");
    let source = config.source.as_ref().expect("a source");
    let operator =
        digestd::source::operator::Operator::open(source, &config.sections, &config.schedule.default)
            .expect("queries");
    let error = operator.check().await.expect_err("nobody answers there");
    assert!(error.is_transient(), "{error:?}");
    hanging_up.abort();
}
