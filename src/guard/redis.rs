//! Fingerprints in Redis: `SET NX PX`, and two scripts that compare before they write.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, RedisError, Script};
use secrecy::{ExposeSecret, SecretString};

use super::GuardError;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::GuardOwner;
use crate::store::guard::Wish;

/// Takes over from one known holder only, or from none. May be run again after a lost answer.
const TAKE_OVER: &str = "
    local held = redis.call('GET', KEYS[1])
    if held and held ~= ARGV[1] and held ~= ARGV[3] then return 0 end
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
    return 1";

/// Whoever lost it meanwhile deletes nothing.
const GIVE_BACK: &str = "
    if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
    return 0";

/// A Redis that remembers fingerprints. Connects at the first question, and again whenever it has to.
pub struct RedisMemory {
    client: Client,
    config: ConnectionManagerConfig,
    /// Replaced as a whole when answers stay out: a connection whose other end is gone without a word
    /// would be waited for again and again.
    connection: Mutex<Option<ConnectionManager>>,
    prefix: Arc<str>,
    take_over: Script,
    give_back: Script,
}

impl fmt::Debug for RedisMemory {
    /// The URL may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisMemory").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl RedisMemory {
    /// `url` is `redis://` or, with TLS, `rediss://`. Fails for a URL that is none; does not connect.
    pub fn new(url: &SecretString, prefix: &str, timeout: Duration) -> Result<Self, RedisError> {
        // No retries of its own: while a connection is being made again, every question would wait.
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(timeout))
            .set_response_timeout(Some(timeout))
            .set_number_of_retries(0);
        Ok(Self {
            client: Client::open(url.expose_secret())?,
            config,
            connection: Mutex::new(None),
            prefix: prefix.into(),
            take_over: Script::new(TAKE_OVER),
            give_back: Script::new(GIVE_BACK),
        })
    }

    /// Asks whether it is there.
    pub async fn ping(&self) -> Result<(), RedisError> {
        redis::cmd("PING").query_async(&mut self.connection()?).await
    }

    /// Takes a free fingerprint, or anybody's for a resend. Returns the holder that is in the way, if any.
    pub(super) async fn take(&self, wish: &Wish) -> Result<Option<String>, GuardError> {
        let holder = self.again(|| self.set(wish)).await?;
        // Our own name: the first answer was lost on the way.
        Ok(holder.filter(|holder| *holder != wish.owner.to_string()))
    }

    /// Takes a fingerprint from a known holder, or from none. False: it is somebody else's by now.
    pub(super) async fn take_over(&self, wish: &Wish, holder: &str) -> Result<bool, GuardError> {
        self.again(|| self.swap(wish, holder)).await
    }

    /// Gives a fingerprint back, if this hand-over holds it.
    pub(super) async fn give_back(
        &self,
        fingerprint: &Fingerprint,
        owner: GuardOwner,
    ) -> Result<bool, GuardError> {
        let key = self.key(fingerprint);
        self.again(|| self.delete(&key, owner)).await
    }

    /// Makes the next question go over a fresh connection.
    pub(super) fn forget_connection(&self) {
        *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The holder, or `None` if the wish was granted.
    async fn set(&self, wish: &Wish) -> Result<Option<String>, RedisError> {
        let key = self.key(&wish.fingerprint);
        let mut connection = self.connection()?;
        let mut set = redis::cmd("SET");
        set.arg(&key).arg(wish.owner.to_string()).arg("PX").arg(millis(wish.ttl));
        if !wish.resend {
            set.arg("NX");
        }
        let done: Option<String> = set.query_async(&mut connection).await?;
        if done.is_some() {
            return Ok(None);
        }
        // It may expire just now: then nobody holds it, and the script takes it.
        let holder: Option<String> = redis::cmd("GET").arg(&key).query_async(&mut connection).await?;
        match holder {
            Some(holder) => Ok(Some(holder)),
            None => Ok((!self.swap(wish, "").await?).then(String::new)),
        }
    }

    async fn swap(&self, wish: &Wish, holder: &str) -> Result<bool, RedisError> {
        let mut call = self.take_over.key(self.key(&wish.fingerprint));
        call.arg(wish.owner.to_string()).arg(millis(wish.ttl)).arg(holder);
        call.invoke_async(&mut self.connection()?).await
    }

    async fn delete(&self, key: &str, owner: GuardOwner) -> Result<bool, RedisError> {
        let mut call = self.give_back.key(key);
        call.arg(owner.to_string());
        call.invoke_async(&mut self.connection()?).await
    }

    /// Asks once more over a fresh connection if the first one breaks: the other end may have restarted
    /// long ago, and that shows at the next question only.
    async fn again<T, F>(&self, ask: impl Fn() -> F) -> Result<T, GuardError>
    where
        F: Future<Output = Result<T, RedisError>>,
    {
        match ask().await {
            Err(error) if error.is_io_error() || error.is_unrecoverable_error() => {
                self.forget_connection();
                Ok(ask().await?)
            }
            answer => Ok(answer?),
        }
    }

    fn connection(&self) -> Result<ConnectionManager, RedisError> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = connection.as_ref() {
            return Ok(open.clone());
        }
        let fresh = self.client.get_connection_manager_lazy(self.config.clone())?;
        *connection = Some(fresh.clone());
        Ok(fresh)
    }

    fn key(&self, fingerprint: &Fingerprint) -> String {
        format!("{}{fingerprint}", self.prefix)
    }
}

fn millis(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX / 4)
}
