//! docs/adopting.md, done as it says.

use std::time::Duration;

use crate::support::backend::TestDatabase;
use crate::support::process::Launch;

/// The fenced blocks of a language, in their order.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    page.split(&fence).skip(1).map(|rest| rest.split("```").next().expect("a first part")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_walk_through_does_what_it_says() {
    let page = include_str!("../../../docs/adopting.md");
    let database = TestDatabase::postgres().await;
    // Roles belong to the whole server.
    let own = uuid::Uuid::new_v4().simple().to_string();
    let renamed = |text: &str| {
        let text = text.replace("digest_reader", &format!("reader_{own}"));
        text.replace("digest_optout", &format!("optout_{own}"))
    };
    for script in blocks(page, "sql") {
        super::execute(&database, &renamed(script)).await;
    }
    let (_, place) = database.url.split_once('@').expect("a URL with a user");
    let toml = blocks(page, "toml")[..2].join("\n");
    let toml = renamed(&toml).replace("db.example.com/app", place);
    std::fs::write(database.folder().join("digestd.toml"), toml).expect("a file");

    let mut shown = String::new();
    for (n, command) in blocks(page, "console")[0].lines().enumerate() {
        let words: Vec<&str> = command.split_whitespace().collect();
        assert_eq!(words[..2], ["$", "digestd"]);
        let mut process = Launch::new(database.folder(), &format!("step-{n}"), &words[2..]).start();
        let status = process.exit(Duration::from_mins(1)).await;
        assert!(status.success(), "{command}: {}{}", process.output(), process.log());
        shown = process.output();
    }
    let expected = blocks(page, "text")[0];
    assert!(shown.starts_with(expected), "the page shows\n{expected}\nbut the preview begins\n{shown}");
}
