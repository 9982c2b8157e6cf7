//! Mail into a folder.

use digestd::domain::reply::Phase;
use digestd::mail::folder::MailFolder;
use digestd::mail::transport::Transport;

use super::{MESSAGE, assert_accepted, assert_broken, hand_over, uid};

#[tokio::test]
async fn the_same_message_written_twice_is_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let transport = Transport::Folder(MailFolder::new(folder.path()));
    let mut connection = transport.connect().await.unwrap();
    for _ in 0..2 {
        assert_accepted(&hand_over(&mut connection, "b@x.org", MESSAGE).await);
        assert!(connection.reusable());
    }
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, [format!("{}.eml", uid()).as_str()]);
    assert_eq!(std::fs::read(folder.path().join(&names[0])).unwrap(), MESSAGE);
}

#[tokio::test]
async fn a_missing_folder_is_a_definite_failure() {
    let folder = tempfile::tempdir().unwrap();
    let transport = Transport::Folder(MailFolder::new(folder.path().join("not there")));
    let mut connection = transport.connect().await.unwrap();
    assert_broken(&hand_over(&mut connection, "b@x.org", MESSAGE).await, Phase::Body, false);
}
