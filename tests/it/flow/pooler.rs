//! The whole job through a real `PgBouncer` in transaction mode.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

use crate::support::backend::TestDatabase;
use crate::support::fleet::{PATIENCE, relay, replica_with, stop};
use crate::support::world::World;
use crate::support::{eventually, variable};

/// Server connections of the pooler: fewer than its clients, so that they have to share.
const SERVERS: usize = 3;

/// Starts a pooler before the test's server; the URL of the test's database through it.
async fn pooler(database: &TestDatabase) -> (Child, String) {
    let program = variable("DIGESTD_TEST_PGBOUNCER").unwrap_or("pgbouncer".to_owned());
    let (_, rest) = database.url.split_once("://").expect("a scheme");
    let (login, place) = rest.split_once('@').expect("a login");
    let (user, password) = login.split_once(':').expect("a password");
    let (server, path) = place.split_once('/').expect("a path");
    let (host, port) = server.split_once(':').expect("a port");
    let name = path.split_once('?').map_or(path, |(name, _)| name);
    let mine = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let listen = mine.local_addr().expect("an address").port();
    drop(mine);
    let folder = database.folder();
    let users = folder.join("users.txt");
    fs::write(&users, format!("\"{user}\" \"{password}\"\n")).expect("a file");
    let settings = format!(
        "[databases]\n{name} = host={host} port={port} dbname={name}\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {listen}\nunix_socket_dir =\n\
         auth_type = plain\nauth_file = {}\npool_mode = transaction\ndefault_pool_size = {SERVERS}\n\
         max_client_conn = 100\n",
        users.display()
    );
    let file = folder.join("pgbouncer.ini");
    fs::write(&file, settings).expect("a file");
    // It refuses to run as root, and then reads its files as somebody else.
    let as_root = fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0);
    let mut command = Command::new(&program);
    if as_root {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(folder, open).expect("our own folder");
        command.args(["-u", "nobody"]);
    }
    let child = command
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(fs::File::create(folder.join("pgbouncer.log")).expect("a file"))
        .kill_on_drop(true)
        .spawn()
        .expect("PgBouncer starts; DIGESTD_TEST_PGBOUNCER names it, scripts/unpack-pgbouncer fetches it");
    eventually("the pooler listens", Duration::from_secs(10), async || {
        tokio::net::TcpStream::connect(("127.0.0.1", listen)).await.ok()
    })
    .await;
    (child, format!("postgres://{login}@127.0.0.1:{listen}/{path}"))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PgBouncer; scripts/test-long fetches it"]
async fn the_whole_job_runs_through_a_pooler_in_transaction_mode() {
    let database = TestDatabase::postgres().await;
    let (_pooler, url) = pooler(&database).await;
    let relay = relay().await;
    let changes = [("DIGESTD__DATABASE__URL", url.as_str()), ("DIGESTD__DATABASE__PGBOUNCER", "true")];
    // They migrate the empty database through the pooler, too.
    let mut replicas: Vec<_> =
        (0..2).map(|n| replica_with(&database, &relay, &format!("replica-{n}"), &changes)).collect();
    for replica in &mut replicas {
        replica.logged("digestd is running", PATIENCE).await;
    }
    let world = World::fill(&database, 100).await;
    let counts = world.settled(&database, PATIENCE).await;
    assert_eq!(world.check(&counts, &relay), 0);
    stop(&mut replicas).await;
    for replica in &replicas {
        let log = replica.log();
        assert!(!log.contains("ERROR") && !log.contains("WARN"), "{log}");
    }
}
