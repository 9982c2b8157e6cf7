//! A TCP proxy before a server, for the network's and the server's worse days.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::Chance;

/// What becomes of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// They pass.
    Pass,
    /// Open connections are cut, new ones are closed at once.
    Cut,
    /// They wait, in both directions, and connections stay.
    Stall,
    /// One answer in so many, by chance, is taken from the server and lost, and its connection cut: what
    /// was asked has happened, and the client does not know.
    LoseAnswers(u64),
}

/// A running proxy; it ends with all its connections when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    weather: watch::Sender<Weather>,
    lost: Arc<Mutex<usize>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        // Pumps end at their next look at the weather.
        self.weather.send_replace(Weather::Cut);
    }
}

#[derive(Clone)]
struct Sky {
    weather: watch::Receiver<Weather>,
    chance: Arc<Mutex<Chance>>,
    lost: Arc<Mutex<usize>>,
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1 and connects each client to `target`, such as `127.0.0.1:5432`.
    pub async fn start(target: &str, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let addr = listener.local_addr().expect("an address");
        let (weather, forecast) = watch::channel(Weather::Pass);
        let lost = Arc::new(Mutex::new(0));
        let sky =
            Sky { weather: forecast, chance: Arc::new(Mutex::new(Chance(seed))), lost: Arc::clone(&lost) };
        let target = target.to_owned();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(join(client, target.clone(), sky.clone()));
            }
        });
        Self { addr, weather, lost, task }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Changes the weather for all connections.
    pub fn set(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }

    /// How many answers were lost so far.
    pub fn lost(&self) -> usize {
        *self.lost.lock().unwrap()
    }
}

async fn join(client: TcpStream, target: String, sky: Sky) {
    if *sky.weather.borrow() == Weather::Cut {
        return;
    }
    let Ok(server) = TcpStream::connect(&target).await else { return };
    client.set_nodelay(true).ok();
    server.set_nodelay(true).ok();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // Whichever direction ends first ends the connection.
    tokio::select! {
        () = pump(from_client, to_server, sky.clone(), false) => {}
        () = pump(from_server, to_client, sky, true) => {}
    }
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut sky: Sky, answers: bool) {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let read = tokio::select! {
            read = from.read(&mut bytes) => read,
            changed = sky.weather.changed() => {
                if changed.is_err() || *sky.weather.borrow() == Weather::Cut { return }
                continue;
            }
        };
        let Ok(count @ 1..) = read else { return };
        let Ok(weather) = sky.weather.wait_for(|weather| *weather != Weather::Stall).await.map(|now| *now)
        else {
            return;
        };
        if let (Weather::LoseAnswers(one_in), true) = (weather, answers)
            && sky.chance.lock().unwrap().below(one_in) == 0
        {
            *sky.lost.lock().unwrap() += 1;
            return;
        }
        if weather == Weather::Cut || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

mod tests {
    use super::{Proxy, Weather};
    use std::time::Duration;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    /// A server that echoes, and a proxy before it.
    async fn echo() -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = tcp.into_split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        Proxy::start(&addr.to_string(), 1).await
    }

    async fn say(tcp: &mut TcpStream, word: &[u8; 4]) -> std::io::Result<[u8; 4]> {
        let mut answer = [0; 4];
        tcp.write_all(word).await?;
        tcp.read_exact(&mut answer).await?;
        Ok(answer)
    }

    #[tokio::test]
    async fn bytes_pass_wait_and_are_lost_as_the_weather_has_it() {
        let proxy = echo().await;
        let mut tcp = TcpStream::connect(proxy.addr()).await.unwrap();
        assert_eq!(&say(&mut tcp, b"ping").await.unwrap(), b"ping");

        proxy.set(Weather::Stall);
        let waited = tokio::time::timeout(Duration::from_millis(100), say(&mut tcp, b"wait")).await;
        assert!(waited.is_err(), "nothing passes a stall");
        proxy.set(Weather::Pass);
        let mut answer = [0; 4];
        tcp.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"wait", "what waited comes through");

        proxy.set(Weather::LoseAnswers(1));
        assert!(say(&mut tcp, b"lost").await.is_err());
        assert_eq!(proxy.lost(), 1);

        proxy.set(Weather::Cut);
        let mut tcp = TcpStream::connect(proxy.addr()).await.unwrap();
        assert!(say(&mut tcp, b"gone").await.is_err());
    }
}
