//! The demo, as a newcomer runs it.

use crate::support::eventually;
use crate::support::fleet::PATIENCE;
use crate::support::process::Launch;

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_delivers_everything_once_though_a_replica_is_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = ["demo", "--exit", "--kill", "--orgs", "60", "--dir", "demo"];
    let mut demo = Launch::new(folder.path(), "demo", &arguments).start();
    let status = demo.exit(PATIENCE).await;
    let (output, log) = (demo.output(), demo.log());
    assert!(status.success(), "{status}\n{output}\n{log}");
    assert!(output.contains("killed"), "{output}");
    assert!(output.contains("duplicates     0"), "{output}");
    let mails = std::fs::read_dir(folder.path().join("demo/mails")).expect("the mails");
    let eml =
        mails.filter(|mail| mail.as_ref().is_ok_and(|m| m.path().extension().is_some_and(|e| e == "eml")));
    // Org n has 1 + n % 4 admins.
    assert!(eml.count() + 4 >= 150, "{output}");
}

// Two demos that were started in one folder took each other's database and inbox away; one of them then said
// that no mail had arrived.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_demo_in_the_same_folder_is_refused_and_the_first_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = ["demo", "--exit", "--orgs", "20", "--dir", "demo"];
    let mut first = Launch::new(folder.path(), "first", &arguments).start();
    let mark = folder.path().join("demo/digestd.toml");
    eventually("the first demo has begun", PATIENCE, async || mark.exists().then_some(())).await;
    let mut second = Launch::new(folder.path(), "second", &arguments).start();
    assert_eq!(second.exit(PATIENCE).await.code(), Some(64), "{}", second.log());
    assert!(second.log().contains("another demo runs in demo"), "{}", second.log());
    let status = first.exit(PATIENCE).await;
    assert!(status.success() && first.output().contains("mails arrived  50"), "{}", first.output());
    // What it has left is emptied by the next.
    let mut third = Launch::new(folder.path(), "third", &arguments).start();
    assert!(third.exit(PATIENCE).await.success(), "{}", third.log());
}
