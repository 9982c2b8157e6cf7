//! Transactions on PostgreSQL, directly or through a pooler in transaction mode.
//!
//! The driver prepares a statement and executes it in two steps. Only a transaction makes a pooler take both
//! to the same server connection, and a name that one client gave a statement there may be another's
//! already. So behind a pooler every statement runs in a transaction, and none has a name.

use std::ops::{Deref, DerefMut};

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArguments, PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::{Either, Error, Execute, Executor, PgTransaction, Postgres as Database, SqlStr};

use super::Postgres;

impl Postgres {
    /// Begins a transaction.
    pub(super) async fn begin(&self) -> Result<PgTx, Error> {
        let inner = self.pool.begin().await?;
        Ok(PgTx(Statements { inner, pooler: self.pooler }))
    }
}

/// A transaction; rolled back when dropped.
#[derive(Debug)]
pub(super) struct PgTx(Statements);

/// What executes a transaction's statements.
#[derive(Debug)]
pub(super) struct Statements {
    inner: PgTransaction<'static>,
    pooler: bool,
}

impl PgTx {
    /// Commits it.
    pub(super) async fn commit(self) -> Result<(), Error> {
        self.0.inner.commit().await
    }

    /// Rolls it back.
    pub(super) async fn rollback(self) -> Result<(), Error> {
        self.0.inner.rollback().await
    }
}

impl Deref for PgTx {
    type Target = Statements;

    fn deref(&self) -> &Statements {
        &self.0
    }
}

impl DerefMut for PgTx {
    fn deref_mut(&mut self) -> &mut Statements {
        &mut self.0
    }
}

/// A statement that keeps its name only where there is no pooler.
struct Named<E> {
    statement: E,
    pooler: bool,
}

impl<'q, E: Execute<'q, Database>> Execute<'q, Database> for Named<E> {
    fn sql(self) -> SqlStr {
        self.statement.sql()
    }

    fn statement(&self) -> Option<&PgStatement> {
        self.statement.statement()
    }

    fn take_arguments(&mut self) -> Result<Option<PgArguments>, BoxDynError> {
        self.statement.take_arguments()
    }

    fn persistent(&self) -> bool {
        !self.pooler && self.statement.persistent()
    }
}

impl<'c> Executor<'c> for &'c mut Statements {
    type Database = Database;

    fn fetch_many<'e, 'q: 'e, E>(
        self,
        statement: E,
    ) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Database>,
    {
        let pooler = self.pooler;
        (&mut *self.inner).fetch_many(Named { statement, pooler })
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, statement: E) -> BoxFuture<'e, Result<Option<PgRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Database>,
    {
        let pooler = self.pooler;
        (&mut *self.inner).fetch_optional(Named { statement, pooler })
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, Result<PgStatement, Error>>
    where
        'c: 'e,
    {
        (&mut *self.inner).prepare_with(sql, parameters)
    }
}
