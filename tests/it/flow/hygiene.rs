//! What a log may never hold, at whatever level.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::backend::Kind;
use crate::support::fleet::{PATIENCE, migrate, replica_with, stop};
use crate::support::process::Process;
use crate::support::smtp_server::{Act, At, Script, ServerTls, SmtpServer};
use crate::support::world::World;

const PASSWORD: &str = "correct-horse-battery";
const ADMIN_TOKEN: &str = "staple-of-the-admin-pages";
const GUARD_PASSWORD: &str = "staple-of-the-guard";
const BOUNCE_TOKEN: &str = "staple-of-the-bounce-feed";

/// One request to a replica's pages; the status line of the answer.
async fn ask(port: u16, method: &str, path: &str) -> String {
    send(port, method, path, "x: y", "List-Unsubscribe=One-Click").await
}

async fn send(port: u16, method: &str, path: &str, header: &str, body: &str) -> String {
    let mut tcp = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("the replica listens");
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{header}\r\n\
         content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    tcp.write_all(request.as_bytes()).await.expect("written");
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).await.expect("an answer");
    answer.lines().next().unwrap_or_default().to_owned()
}

/// The paths of the unsubscribe links in the accepted mails.
fn unsubscribe_paths(relay: &SmtpServer) -> Vec<String> {
    let link = |data: Vec<u8>| {
        let mail = String::from_utf8_lossy(&data).replace("\r\n ", "").replace("\r\n\t", "");
        let header = mail.lines().find(|line| line.starts_with("List-Unsubscribe:"))?.to_owned();
        let url = header.split_once('<')?.1.split_once('>')?.0.to_owned();
        url.strip_prefix("http://127.0.0.1:9").map(str::to_owned)
    };
    relay.accepted().into_iter().filter_map(|message| link(message.data)).collect()
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address").port()
}

both_databases! {
    /// Passwords and tokens were found in the logs of senders, plain and in base64, once the level was raised.
    async fn no_secret_address_token_or_text_of_a_mail_is_logged_at_trace(database: TestDatabase) {
        migrate(&database).await;
        let world = World::fill(&database, 12).await;
        let relay = SmtpServer::start(
            Script::new()
                .offer("PIPELINING")
                .tls(ServerTls::StartTls)
                .login("digest-login", PASSWORD)
                .mechanisms(if database.kind == Kind::Postgres { "PLAIN" } else { "LOGIN" })
                .times(1, At::Dot, [Act::reply("451 4.3.0 not now for <admin-0@org-1.example>")])
                .times(1, At::Dot, [Act::reply("554 5.6.0 I do not like <admin-1@org-2.example>")])
                .to("admin-0@org-3.example", At::Rcpt, [Act::reply("550 5.1.1 <admin-0@org-3.example> unknown")])
                .to("admin-1@org-3.example", At::Rcpt, [Act::Close])
                .to("admin-2@org-3.example", At::Dot, [Act::Accept, Act::Close]),
        )
        .await;
        let ca = database.folder().join("ca.pem");
        std::fs::write(&ca, &relay.certs().ca).expect("a file");
        let url = format!("smtp://127.0.0.1:{}?tls=starttls", relay.port());
        // Nobody answers there, which is told for every message.
        let guard = format!("redis://guard-login:{GUARD_PASSWORD}@127.0.0.1:{}/", free_port());
        let start = |name: &str, format: &str, port: u16| {
            replica_with(&database, &relay, name, &[
                ("RUST_LOG", "trace"),
                ("DIGESTD__LOG__FORMAT", format),
                ("DIGESTD__HTTP__LISTEN", &format!("127.0.0.1:{port}")),
                ("DIGESTD__RELAY__URL", &url),
                ("DIGESTD__RELAY__TLS_CA_FILE", ca.to_str().expect("a path")),
                ("DIGESTD__RELAY__USERNAME", "digest-login"),
                ("DIGESTD__RELAY__PASSWORD", PASSWORD),
                ("DIGESTD__GUARD__BACKEND", "redis"),
                ("DIGESTD__GUARD__URL", &guard),
                ("DIGESTD__GUARD__ON_UNAVAILABLE", "open"),
                ("DIGESTD__ADMIN__TOKEN", ADMIN_TOKEN),
                ("DIGESTD__SUPPRESSION__TOKEN", BOUNCE_TOKEN),
            ])
        };
        let port = free_port();
        let mut replicas = [start("text", "text", port), start("json", "json", free_port())];
        let most = world.expected.len() - 6;
        relay.wait(PATIENCE, "most mails", |relay| relay.accepted().len() >= most).await;
        let paths = unsubscribe_paths(&relay);
        assert!(paths.len() >= most, "{paths:?}");
        for path in &paths[..3] {
            assert!(ask(port, "GET", path).await.contains("200"));
            assert!(ask(port, "POST", path).await.contains("200"));
            // A token that somebody has mistyped is a token still.
            ask(port, "POST", &path[..path.len() - 2]).await;
        }
        let form = format!("token={ADMIN_TOKEN}");
        for header in ["x: y", "cookie: digestd_admin=AAAA", "sec-fetch-site: cross-site"] {
            assert!(send(port, "POST", "/admin/login", header, &form).await.contains("403"));
        }
        let bounce = "{\"address\": \"zoe@org-1.example\", \"kind\": \"hard\"}";
        let bearer = format!("authorization: Bearer {BOUNCE_TOKEN}");
        assert!(send(port, "POST", "/bounces", &bearer, bounce).await.contains("200"));
        assert!(send(port, "POST", "/bounces", &bearer, &format!("{bounce}\nnonsense")).await.contains("422"));
        // A replica that finds all its work at once has nothing to say below info until the next tick.
        for replica in &mut replicas {
            replica.logged("DEBUG", PATIENCE).await;
        }
        stop(&mut replicas).await;

        let plain = STANDARD.encode(format!("\0digest-login\0{PASSWORD}"));
        let mut forbidden = vec![
            PASSWORD.to_owned(),
            ADMIN_TOKEN.to_owned(),
            BOUNCE_TOKEN.to_owned(),
            GUARD_PASSWORD.to_owned(),
            STANDARD.encode(PASSWORD),
            URL_SAFE_NO_PAD.encode(PASSWORD),
            plain[..plain.len() - 4].to_owned(),
            "@org-".to_owned(),
            "A change".to_owned(),
            "Org 1".to_owned(),
        ];
        let database_password = database.url.split_once("postgres:").and_then(|(_, rest)| {
            rest.trim_start_matches("//postgres:").split_once('@').map(|(password, _)| password.to_owned())
        });
        forbidden.extend(database_password);
        // The token is the last part of its path.
        forbidden.extend(paths.iter().map(|path| path.rsplit('/').next().expect("a part")[..24].to_owned()));
        let of_the_guard = |replica: &Process| replica.log().contains("the guard cannot be asked");
        assert!(replicas.iter().any(of_the_guard), "nobody missed the guard");
        for replica in &replicas {
            let log = replica.log();
            assert!(log.contains("TRACE") || log.contains("DEBUG"), "the level was raised:\n{log}");
            for word in &forbidden {
                let found = log.lines().find(|line| line.contains(word.as_str()));
                assert!(found.is_none(), "{word} in: {found:?}");
            }
        }
    }
}
