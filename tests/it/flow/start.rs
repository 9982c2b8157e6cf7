//! Many replicas boot at once on an empty database.

use crate::support::backend::TestDatabase;
use crate::support::fleet::{PATIENCE, relay, replica};
use crate::support::process::Signal;

/// So often: a race that is lost once in ten times must not pass.
const ROUNDS: usize = 20;
/// Processes that boot at the same moment.
const TOGETHER: usize = 8;

/// Half of the processes died here where only the library's migrator was used on SQLite.
async fn boot_together(database: &TestDatabase) {
    let relay = relay().await;
    let mut replicas: Vec<_> =
        (0..TOGETHER).map(|n| replica(database, &relay, &format!("boot-{n}"), None)).collect();
    for replica in &mut replicas {
        replica.logged("digestd is running", PATIENCE).await;
    }
    for replica in &mut replicas {
        replica.signal(Signal::Terminate);
    }
    for replica in &mut replicas {
        assert!(replica.exit(PATIENCE).await.success(), "{}", replica.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_replicas_boot_at_once_on_an_empty_file() {
    for _ in 0..ROUNDS {
        boot_together(&TestDatabase::sqlite()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_replicas_boot_at_once_on_an_empty_server() {
    for _ in 0..ROUNDS {
        boot_together(&TestDatabase::postgres().await).await;
    }
}
