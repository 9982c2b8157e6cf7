//! Who wants no digest, and what unsubscribe links mean.

use chrono::{DateTime, Utc};
use secrecy::SecretString;
use serde::Serialize;
use sqlx::types::Json;
use uuid::Uuid;

use super::dialect::At;
use super::write_backs::{self, QUEUE};
use super::{Store, StoreError, run, transact, uncancelled};
use crate::domain::address::Address;
use crate::domain::ids::{OrgId, UserId};
use crate::domain::token::{Scope, SubscriptionRef};

/// One address's place in one org's digest, as it was when its first message was enqueued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// The org, which may be gone by now.
    pub org: OrgId,
    /// The org's name in the newest message.
    pub org_name: String,
    /// The admin who had the address.
    pub user: UserId,
    /// The address.
    pub address: Address,
}

/// An opt-out as it stands in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptOut {
    /// The address in its normal form.
    pub address: String,
    /// Whose digest is not wanted; `None` means all digests from here.
    pub org: Option<OrgId>,
    /// When that was last said. An application's later opt-in overrules it.
    pub at: DateTime<Utc>,
    /// Where it was said: `link`, `cli`, `import`.
    pub source: String,
}

/// An application's word that an admin wants an org's digest.
#[derive(Debug, Clone, Copy)]
pub struct OptIn<'a> {
    /// The address in its normal form.
    pub address: &'a str,
    /// Whose digest.
    pub org: &'a OrgId,
    /// Since when.
    pub at: DateTime<Utc>,
}

const SUBSCRIPTION: &str = "
    SELECT org_id, org_name, user_id, address
    FROM digestd.subscriptions
    WHERE ref = $1";

/// Said again, it counts from then on: an opt-in between the two must not overrule the second.
const ADD: &str = "
    INSERT INTO digestd.opt_outs (address, org_id, at, source)
    VALUES ($2, $3, {now}, $4)
    ON CONFLICT (address, org_id) DO UPDATE
    SET at = excluded.at, source = excluded.source";

const REMOVE: &str = "
    DELETE FROM digestd.opt_outs
    WHERE address = $1 AND org_id = $2";

/// Whoever wants this org's digest again cannot also want none at all.
const RESUBSCRIBE: &str = "
    DELETE FROM digestd.opt_outs
    WHERE address = $1 AND org_id IN ('', $2)";

/// Keyset pages by primary key.
const LIST: &str = "
    SELECT address, org_id, at, source
    FROM digestd.opt_outs
    WHERE address > $1 OR (address = $1 AND org_id > $2)
    ORDER BY address, org_id
    LIMIT $3";

const OF: &str = "
    SELECT o.address, o.org_id, o.at, o.source
    FROM digestd.opt_outs AS o
    JOIN {each}($1) AS u ON o.address = u.value->>'address'
    ORDER BY o.address, o.org_id";

/// The time is compared for equality too, so that an opt-out said again meanwhile stays.
const OVERRULE: &str = "
    DELETE FROM digestd.opt_outs AS o
    WHERE (o.address, o.org_id, o.at) IN (
        SELECT p.address, p.org_id, p.at
        FROM digestd.opt_outs AS p
        JOIN {each}($1) AS u ON p.address = u.value->>'address' AND p.org_id = u.value->>'org'
        WHERE p.at < {epoch} + CAST(u.value->>'at' AS BIGINT){ms}
    )";

/// The first replica's key stays: the condition and the write are one statement.
const MAKE_KEY: &str = "
    UPDATE digestd.installation
    SET unsubscribe_key = $1
    WHERE unsubscribe_key IS NULL";

const KEY: &str = "
    SELECT unsubscribe_key
    FROM digestd.installation";

#[derive(Serialize)]
struct AddressKey<'a> {
    address: &'a str,
}

#[derive(Serialize)]
struct OptInRow<'a> {
    address: &'a str,
    org: &'a str,
    at: i64,
}

impl Store {
    /// What an unsubscribe link means; `None` if no such message was ever enqueued here.
    pub async fn subscription(&self, reference: SubscriptionRef) -> Result<Option<Subscription>, StoreError> {
        let reference = reference.to_string();
        let row: Option<(String, String, String, String)> = run!(self, read, db => {
            sqlx::query_as(self.sql(SUBSCRIPTION)).bind(&reference).fetch_optional(db).await
        })
        .map_err(StoreError::doing("looking up a subscription"))?;
        let unknown = |column| StoreError::inconsistent("subscriptions", column, &reference);
        row.map(|(org, org_name, user, address)| {
            Ok(Subscription {
                org: OrgId::parse(&org).map_err(|_| unknown("org_id"))?,
                org_name,
                user: UserId::parse(&user).map_err(|_| unknown("user_id"))?,
                address: Address::parse(&address).map_err(|_| unknown("address"))?,
            })
        })
        .transpose()
    }

    /// Writes down that an address wants no digest of this org, or none at all (`None`), and that the
    /// application is to know. Messages that wait in the outbox are stopped by it too.
    pub async fn opt_out(
        &self,
        address: &Address,
        org: Option<&OrgId>,
        source: &str,
    ) -> Result<(), StoreError> {
        let store = self.clone();
        let (address, org, source) =
            (address.normal().to_owned(), org_column(org).to_owned(), source.to_owned());
        uncancelled(async move {
            transact!(&store, tx => {
                sqlx::query(store.sql(ADD))
                    .bind(store.given())
                    .bind(&address)
                    .bind(&org)
                    .bind(source)
                    .execute(&mut *tx)
                    .await?;
                sqlx::query(store.sql(QUEUE))
                    .bind(store.given())
                    .bind(&address)
                    .bind(&org)
                    .bind(true)
                    .execute(&mut *tx)
                    .await?;
                Ok(())
            })
        })
        .await
        .map_err(StoreError::doing("storing an opt-out"))
    }

    /// Takes one opt-out back. Says whether there was one. The application is told of an org's; which of an
    /// address's digests to turn on again, after all were off, is not ours to say.
    pub async fn remove_opt_out(&self, address: &Address, org: Option<&OrgId>) -> Result<bool, StoreError> {
        let removed = self.subscribe_again(REMOVE, address, org).await;
        Ok(removed.map_err(StoreError::doing("removing an opt-out"))? > 0)
    }

    /// Takes back whatever keeps this org's digest from this address. Opt-outs of other orgs' digests stay.
    pub async fn resubscribe(&self, address: &Address, org: &OrgId) -> Result<(), StoreError> {
        let done = self.subscribe_again(RESUBSCRIBE, address, Some(org)).await;
        done.map(drop).map_err(StoreError::doing("subscribing again"))
    }

    async fn subscribe_again(
        &self,
        delete: &'static str,
        address: &Address,
        org: Option<&OrgId>,
    ) -> Result<u64, sqlx::Error> {
        let store = self.clone();
        let (address, org) = (address.normal().to_owned(), org_column(org).to_owned());
        uncancelled(async move {
            transact!(&store, tx => {
                let deleted = sqlx::query(store.sql(delete)).bind(&address).bind(&org).execute(&mut *tx).await?;
                if deleted.rows_affected() > 0 && !org.is_empty() {
                    sqlx::query(store.sql(QUEUE))
                        .bind(store.given())
                        .bind(&address)
                        .bind(&org)
                        .bind(false)
                        .execute(&mut *tx)
                        .await?;
                }
                Ok(deleted.rows_affected())
            })
        })
        .await
    }

    /// Removes the opt-outs of one org's digest that are older than the admin's opt-in to it. An opt-out of
    /// all digests stays until the person takes it back: an opt-in to one org says nothing of the others.
    pub async fn overrule_opt_outs(&self, opt_ins: &[OptIn<'_>]) -> Result<u64, StoreError> {
        let rows: Vec<OptInRow<'_>> = opt_ins
            .iter()
            .map(|o| OptInRow { address: o.address, org: o.org.as_str(), at: o.at.timestamp_millis() })
            .collect();
        // What waits to be written to the application is older than the application's word, too.
        run!(self, write, db => {
            sqlx::query(self.sql(write_backs::OVERRULE)).bind(Json(&rows)).execute(db).await.map(drop)
        })
        .map_err(StoreError::doing("overruling opt-outs"))?;
        run!(self, write, db => {
            sqlx::query(self.sql(OVERRULE)).bind(Json(&rows)).execute(db).await.map(|done| done.rows_affected())
        })
        .map_err(StoreError::doing("overruling opt-outs"))
    }

    /// What keeps this org's digest from this address: one scope, or both, or nothing.
    pub async fn scopes_opted_out(&self, address: &Address, org: &OrgId) -> Result<Vec<Scope>, StoreError> {
        let rows = self.opt_outs_of(&[address.normal()]).await?;
        let scope = |row: &OptOut| match &row.org {
            None => Some(Scope::All),
            Some(of) if of == org => Some(Scope::Org),
            Some(_) => None,
        };
        Ok(rows.iter().filter_map(scope).collect())
    }

    /// Every opt-out of these addresses (in their normal form), by address.
    pub async fn opt_outs_of(&self, addresses: &[&str]) -> Result<Vec<OptOut>, StoreError> {
        let keys: Vec<AddressKey<'_>> = addresses.iter().map(|address| AddressKey { address }).collect();
        let rows: Vec<(String, String, At, String)> = run!(self, read, db => {
            sqlx::query_as(self.sql(OF)).bind(Json(&keys)).fetch_all(db).await
        })
        .map_err(StoreError::doing("looking up opt-outs"))?;
        rows.into_iter().map(opt_out).collect()
    }

    /// One page of all opt-outs, by address and org, after the given one.
    pub async fn list_opt_outs(&self, after: Option<&OptOut>, limit: u32) -> Result<Vec<OptOut>, StoreError> {
        let (address, org) = after.map_or(("", ""), |last| (&last.address, org_column(last.org.as_ref())));
        let rows: Vec<(String, String, At, String)> = run!(self, read, db => {
            sqlx::query_as(self.sql(LIST)).bind(address).bind(org).bind(i64::from(limit)).fetch_all(db).await
        })
        .map_err(StoreError::doing("listing opt-outs"))?;
        rows.into_iter().map(opt_out).collect()
    }

    /// The installation's own key of unsubscribe links, made by whichever replica asks first.
    /// Links keep working over restarts and on all replicas. Where keys are configured, this one goes
    /// last into the ring, so that links from before they were configured keep working too.
    pub async fn unsubscribe_key(&self) -> Result<SecretString, StoreError> {
        // Two random UUIDs hold 244 random bits.
        let fresh = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let doing = "reading the key of unsubscribe links";
        run!(self, write, db => {
            sqlx::query(self.sql(MAKE_KEY)).bind(&fresh).execute(db).await.map(drop)
        })
        .map_err(StoreError::doing(doing))?;
        let key: Option<String> =
            run!(self, read, db => sqlx::query_scalar(self.sql(KEY)).fetch_one(db).await)
                .map_err(StoreError::doing(doing))?;
        key.map(SecretString::from)
            .ok_or_else(|| StoreError::inconsistent("installation", "unsubscribe_key", 1))
    }
}

fn org_column(org: Option<&OrgId>) -> &str {
    org.map_or("", OrgId::as_str)
}

fn opt_out((address, org, at, source): (String, String, At, String)) -> Result<OptOut, StoreError> {
    let org = if org.is_empty() {
        None
    } else {
        Some(OrgId::parse(&org).map_err(|_| StoreError::inconsistent("opt_outs", "org_id", &org))?)
    };
    Ok(OptOut { address, org, at: at.0, source })
}
