//! A real `PgBouncer` in transaction mode before a PostgreSQL server.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

use super::{eventually, variable};

/// Server connections of the pooler: fewer than its clients, so that they have to share.
const SERVERS: usize = 3;

/// A running pooler; it ends with this value.
#[derive(Debug)]
pub struct Pooler {
    /// The URL of the database through the pooler.
    pub url: String,
    _child: Child,
}

impl Pooler {
    /// Starts one before the database of `url`, with its files in `folder`.
    pub async fn start(url: &str, folder: &Path) -> Self {
        let program = variable("DIGESTD_TEST_PGBOUNCER").unwrap_or("pgbouncer".to_owned());
        let (_, rest) = url.split_once("://").expect("a scheme");
        let (login, place) = rest.split_once('@').expect("a login");
        let (user, password) = login.split_once(':').expect("a password");
        let (server, path) = place.split_once('/').expect("a path");
        let (host, port) = server.split_once(':').expect("a port");
        let name = path.split_once('?').map_or(path, |(name, _)| name);
        let mine = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let listen = mine.local_addr().expect("an address").port();
        drop(mine);
        let users = folder.join("users.txt");
        fs::write(&users, format!("\"{user}\" \"{password}\"\n")).expect("a file");
        let settings = format!(
            "[databases]\n{name} = host={host} port={port} dbname={name}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {listen}\nunix_socket_dir =\n\
             auth_type = plain\nauth_file = {}\npool_mode = transaction\ndefault_pool_size = {SERVERS}\n\
             max_client_conn = 100\nserver_login_retry = 1\n",
            users.display()
        );
        let file = folder.join("pgbouncer.ini");
        fs::write(&file, settings).expect("a file");
        // It refuses to run as root, and then reads its files as somebody else.
        let as_root =
            fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0);
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
        Self { url: format!("postgres://{login}@127.0.0.1:{listen}/{path}"), _child: child }
    }
}
