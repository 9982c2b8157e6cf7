//! Import: all of a file or nothing, with every fault told by its line.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use digestd::source::import::{Format, ImportError, import};
use digestd::store::Store;
use digestd::store::directory::Spans;
use digestd::store::import::{ImportCount, ImportTable};

use crate::support::backend::TestDatabase;
use crate::support::fixtures::store;

/// A file in the test's own folder.
fn file(database: &TestDatabase, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = database.folder().join(name);
    std::fs::write(&path, bytes).expect("a file");
    path
}

async fn load(store: &Store, table: ImportTable, path: &Path) -> Result<ImportCount, ImportError> {
    let format = Format::of(path).expect("a known ending");
    import(store, table, path, format, |_| {}).await
}

fn counted(new: u64, changed: u64, unchanged: u64) -> ImportCount {
    ImportCount { new, changed, unchanged }
}

const ORGS: &str = "id,name,timezone\nacme,Acme,Europe/Berlin\nglobex,Globex,America/New_York\n";

both_databases! {
    async fn orgs_admins_and_activity_arrive_in_the_directory(database: TestDatabase) {
        let store = store(&database).await;
        let orgs = file(&database, "orgs.csv", "\u{feff}id,name,timezone,weekday,time,active\r\n\
            acme,\"Acme, \"\"the\"\" firm\",europe/berlin,friday,8:00,t\r\n\
            globex,\"Globex\nInc.\",America/New_York,,,\r\n\
            gone,Gone,UTC,,,false\r\n");
        assert_eq!(load(&store, ImportTable::Orgs, &orgs).await.expect("orgs"), counted(3, 0, 0));
        let admins = file(&database, "admins.jsonl",
            "{\"id\": 1, \"org_id\": \"acme\", \"email\": \"Ann@Example.org\", \"name\": \"Ann\"}\n\n\
             {\"id\": 2, \"org_id\": \"acme\", \"email\": \"bob@example.org\", \"weekly_digest\": false}\n\
             {\"id\": 3, \"org_id\": \"gone\", \"email\": \"cy@example.org\", \"opted_in_at\": \"2026-07-01T00:00:00Z\"}");
        assert_eq!(load(&store, ImportTable::Admins, &admins).await.expect("admins"), counted(3, 0, 0));
        let activity = file(&database, "activity.csv", "id,org_id,kind,title,occurred_at,value,url\n\
            1,acme,signup,Ann signed up,2026-07-01T10:00:00+02:00,2.5,https://example.org/1\n\
            2,acme,signup,Bob signed up,2026-07-02T10:00:00+02:00,,\n");
        assert_eq!(load(&store, ImportTable::Activity, &activity).await.expect("activity"), counted(2, 0, 0));

        let all = ["acme", "globex", "gone"];
        let mut names: Vec<_> =
            store.org_rows(&all).await.expect("orgs").into_iter().map(|org| (org.name, org.timezone)).collect();
        names.sort();
        assert_eq!(names, [
            ("Acme, \"the\" firm".to_owned(), "Europe/Berlin".to_owned()),
            ("Globex\nInc.".to_owned(), "America/New_York".to_owned()),
        ]);
        let candidates = store.candidates_page("", None, 10).await.expect("candidates");
        assert_eq!(candidates.len(), 1);
        assert_eq!((candidates[0].weekday.as_deref(), candidates[0].local_time.as_deref()), (Some("Fri"), Some("08:00")));
        let admins = store.admin_rows(&all).await.expect("admins");
        assert_eq!(admins.iter().map(|a| (a.user.as_str(), a.email.as_str())).collect::<Vec<_>>(),
            [("1", "Ann@example.org"), ("3", "cy@example.org")]);
        assert_eq!(admins[1].opted_in_at, Some(at("2026-07-01T00:00:00Z")));
        let spans = Spans { previous_from: at("2026-06-22T00:00:00Z"), from: at("2026-06-29T00:00:00Z"), to: at("2026-07-06T00:00:00Z") };
        let items = store.item_rows(&all, spans, 10).await.expect("items");
        assert_eq!(items[0].url.as_deref(), Some("https://example.org/1"));
        assert_eq!(items.iter().map(|item| item.occurred_at).collect::<Vec<_>>(),
            [at("2026-07-01T08:00:00Z"), at("2026-07-02T08:00:00Z")]);
    }

    async fn an_update_keeps_the_columns_that_the_file_lacks_and_clears_the_empty_ones(database: TestDatabase) {
        let store = store(&database).await;
        load(&store, ImportTable::Orgs, &file(&database, "orgs.csv", ORGS)).await.expect("orgs");
        let full = file(&database, "full.csv", "id,org_id,email,name,locale\n1,acme,ann@example.org,Ann,de\n");
        load(&store, ImportTable::Admins, &full).await.expect("an admin");
        let only_address = file(&database, "address.csv", "email,org_id,id\nanna@example.org,acme,1\n");
        assert_eq!(load(&store, ImportTable::Admins, &only_address).await.expect("a change"), counted(0, 1, 0));
        assert_eq!(load(&store, ImportTable::Admins, &only_address).await.expect("no change"), counted(0, 0, 1));
        let admin = store.admin_rows(&["acme"]).await.expect("admins").remove(0);
        assert_eq!((admin.email.as_str(), admin.name.as_deref(), admin.locale.as_deref()),
            ("anna@example.org", Some("Ann"), Some("de")));
        let cleared = file(&database, "cleared.jsonl",
            "{\"id\": \"1\", \"org_id\": \"acme\", \"email\": \"anna@example.org\", \"name\": null, \"locale\": \"fr\"}");
        assert_eq!(load(&store, ImportTable::Admins, &cleared).await.expect("a change"), counted(0, 1, 0));
        let admin = store.admin_rows(&["acme"]).await.expect("admins").remove(0);
        assert_eq!((admin.name, admin.locale.as_deref()), (None, Some("fr")));
    }

    async fn one_fault_anywhere_keeps_the_whole_file_out(database: TestDatabase) {
        let store = store(&database).await;
        let mut text = ORGS.to_owned();
        for n in 0..2_500 {
            writeln!(text, "org-{n},Org {n},UTC").expect("a string grows");
        }
        text.push_str("last,Last,Europe/Berln\n");
        let refused = load(&store, ImportTable::Orgs, &file(&database, "orgs.csv", text)).await;
        assert_eq!(refused.expect_err("a bad zone").to_string(),
            "nothing was imported: line 2504, timezone: “Europe/Berln” is not an IANA time zone; did you mean Europe/Berlin?");
        assert!(store.org_rows(&["acme", "org-0"]).await.expect("a look").is_empty());
    }

    async fn rows_of_unknown_orgs_keep_the_whole_file_out(database: TestDatabase) {
        let store = store(&database).await;
        load(&store, ImportTable::Orgs, &file(&database, "orgs.csv", ORGS)).await.expect("orgs");
        let mut text = "id,org_id,email\n".to_owned();
        for n in 0..2_100 {
            let org = match n { 5 => "nope", 2_050 => "neither", _ => "acme" };
            writeln!(text, "{n},{org},a{n}@example.org").expect("a string grows");
        }
        let refused = load(&store, ImportTable::Admins, &file(&database, "admins.csv", text)).await;
        insta::assert_snapshot!(refused.expect_err("unknown orgs"), @"
        nothing was imported: the file has 2 faults
          line 7, org_id: there is no org “nope”; import the orgs first
          line 2052, org_id: there is no org “neither”; import the orgs first
        ");
        assert!(store.admin_rows(&["acme"]).await.expect("a look").is_empty());
        // The transaction is over, so that the next one gets the writer.
        assert_eq!(load(&store, ImportTable::Orgs, &database.folder().join("orgs.csv")).await.expect("orgs"), counted(0, 0, 2));
    }

    async fn where_an_id_stands_twice_the_later_line_counts(database: TestDatabase) {
        let store = store(&database).await;
        let orgs = file(&database, "orgs.csv", "id,name,timezone\nacme,First,UTC\nother,Other,UTC\nacme,Second,UTC\n");
        assert_eq!(load(&store, ImportTable::Orgs, &orgs).await.expect("orgs"), counted(2, 1, 0));
        assert_eq!(store.org_rows(&["acme"]).await.expect("orgs")[0].name, "Second");
    }
}

fn at(text: &str) -> DateTime<Utc> {
    text.parse().expect("a time")
}

/// What is said about a file that nothing is imported from; no database is touched.
async fn complaint(table: ImportTable, name: &str, bytes: impl AsRef<[u8]>) -> String {
    let database = TestDatabase::sqlite();
    let store = store(&database).await;
    let path = file(&database, name, bytes);
    load(&store, table, &path).await.expect_err("faults").to_string()
}

#[tokio::test]
async fn every_fault_of_a_csv_file_is_told_with_its_line() {
    let text = "id,org_id,email,weekly_digest,opted_in_at\n\
        1,acme,ann@example.org,yes,2026-07-01\n\
        \n\
        2,acme,\"a\nb@example.org\",true,\n\
        3,acme\r\n\
        ,acme,cy@example.org,,yesterday\n";
    insta::assert_snapshot!(complaint(ImportTable::Admins, "admins.csv", text).await, @"
    nothing was imported: the file has 6 faults
      line 2, weekly_digest: “yes” is neither true nor false
      line 2, opted_in_at: “2026-07-01” lacks its offset from UTC; write 2026-07-01T00:00:00Z if it is meant in UTC
      line 4, email: the part before the @ holds characters that are not allowed there
      line 6: has 2 cells, but the first line names 5 columns
      line 7, id: must not be empty
      line 7, opted_in_at: “yesterday” is not a time such as 2026-07-06T08:00:00+02:00
    ");
}

#[tokio::test]
async fn every_fault_of_a_json_lines_file_is_told_with_its_line() {
    let text = "{\"id\": \"acme\", \"name\": \"Acme\", \"timezone\": \"UTC\"}\n\
        {\"id\": \"x\", \"name\": \"X\", \"time_zone\": \"UTC\"}\n\
        [1, 2]\n\
        {\"id\": \"y\", \"name\": \n\
        {\"id\": 1.5, \"name\": [\"Y\"], \"active\": 1}\n";
    insta::assert_snapshot!(complaint(ImportTable::Orgs, "orgs.jsonl", text).await, @r#"
    nothing was imported: the file has 7 faults
      line 2: there is no column “time_zone”; did you mean timezone?
      line 3: is not a JSON object; each line must be one, such as {"id": "7"}
      line 4: is not JSON: EOF while parsing a value at column 19
      line 5, id: must be a text or a whole number
      line 5, name: must be a text
      line 5, timezone: is missing
      line 5, active: must be true or false
    "#);
}

#[tokio::test]
async fn of_many_faults_the_first_are_shown_and_the_rest_counted() {
    let text =
        (0..5_000).fold("id,name,timezone\n".to_owned(), |text, n| text + &format!("{n},Org,Mars/Base\n"));
    let said = complaint(ImportTable::Orgs, "orgs.csv", text).await;
    assert!(
        said.starts_with("nothing was imported: the file has 5000 faults\n  line 2, timezone: "),
        "{said}"
    );
    assert!(said.ends_with("\n  and 4980 more"), "{said}");
    assert_eq!(said.lines().count(), 22);
}

#[tokio::test]
async fn files_in_other_encodings_and_empty_ones_are_recognised() {
    assert_eq!(
        complaint(ImportTable::Orgs, "orgs.csv", b"\xff\xfei\0d\0").await,
        "nothing was imported: line 1: the file is UTF-16; save it as UTF-8"
    );
    assert_eq!(
        complaint(ImportTable::Orgs, "orgs.csv", b"id,name,timezone\n1,Caf\xe9,UTC\n").await,
        "nothing was imported: line 2: is not UTF-8"
    );
    assert_eq!(
        complaint(ImportTable::Orgs, "orgs.csv", "").await,
        "nothing was imported: line 1: the file is empty; its first line must name the columns"
    );
}

/// A quotation mark that is never closed would make one record of the rest of the file.
#[tokio::test]
async fn a_record_without_end_is_refused_before_it_fills_the_memory() {
    let endless = format!("id,name,timezone\n1,One,UTC\n2,\"Two,UTC\n{}", "3,Three,UTC\n".repeat(400_000));
    assert_eq!(
        complaint(ImportTable::Orgs, "orgs.csv", endless).await,
        "nothing was imported: line 3: a record of more than 1048576 bytes starts here; is a quotation mark missing?"
    );
    let endless = "x".repeat(4_000_000);
    assert_eq!(
        complaint(ImportTable::Orgs, "orgs.jsonl", endless).await,
        "nothing was imported: line 1: a record of more than 1048576 bytes starts here; is a quotation mark missing?"
    );
}
