//! The built-in directory as the app has filled it.

use crate::support::fixtures::store;
use crate::support::world::execute;

both_databases! {
    // The zones of open slots are the database's names, and the look for their orgs compared texts: an org
    // with “europe/london” was found by the next full look only, a quarter of an hour late. The
    // simulated weeks showed it: at 03:00 the org had no send for its slot at 02:30.
    async fn an_orgs_zone_is_found_however_the_app_spells_it(database: TestDatabase) {
        let store = store(&database).await;
        let table = |name: &str| match database.kind {
            crate::support::backend::Kind::Postgres => format!("digestd.{name}"),
            crate::support::backend::Kind::Sqlite => name.to_owned(),
        };
        let script = [("a", "Europe/London"), ("b", "europe/london"), ("c", " EUROPE/LONDON "), ("d", "Europe/Berlin")]
            .map(|(org, zone)| {
                format!(
                    "INSERT INTO {} (id, name, timezone) VALUES ('{org}', 'Org', '{zone}');
                     INSERT INTO {} (id, org_id, email) VALUES ('{org}', '{org}', '{org}@example.com');",
                    table("orgs"),
                    table("admins")
                )
            })
            .concat();
        execute(&database, script).await;
        let page = store.candidates_page("", Some(&["Europe/London".to_owned()]), 10).await.expect("a page");
        let orgs: Vec<&str> = page.iter().map(|row| row.org.as_str()).collect();
        assert_eq!(orgs, ["a", "b", "c"]);
    }
}
