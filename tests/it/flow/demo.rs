//! The demo, as a newcomer runs it.

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
