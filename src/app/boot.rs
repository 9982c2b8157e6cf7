//! Everything of a replica that has to be there before its parts run.

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::{AppError, await_database, cleanup_of, deliver_of, house, key_ring, source, tick_of};
use crate::cleanup::Cleanup;
use crate::config::{Config, OnUncertain};
use crate::deliver::Deliver;
use crate::domain::ids::ReplicaId;
use crate::http::{HttpState, PageSettings};
use crate::metrics::Metrics;
use crate::progress::Progress;
use crate::source::Source;
use crate::store::Store;
use crate::tick::Tick;

/// A replica whose database has answered, and whose parts are ready to run.
pub(super) struct Booted {
    pub source: Source,
    pub tick: Tick,
    pub deliver: Deliver,
    /// Ends with the last handle of `deliver`.
    pub journal: JoinHandle<()>,
    pub cleanup: Cleanup,
    pub listener: TcpListener,
    pub http: HttpState,
    pub metrics: Metrics,
    pub progress: Progress,
}

impl Booted {
    /// Waits for the database, checks what it can check, and puts the parts together.
    pub async fn boot(config: &Config, store: &Store, replica: ReplicaId) -> Result<Self, AppError> {
        let migrated = await_database(store, config).await?;
        for name in &migrated.applied {
            tracing::info!(migration = name, "a migration was applied");
        }
        store.set_uncertain_policy(config.delivery.on_uncertain == OnUncertain::Resend).await?;
        let metrics = Metrics::new();
        metrics.set_info(env!("CARGO_PKG_VERSION"), crate::domain::zone::tzdb_version());
        let progress = Progress::new();
        let listener =
            TcpListener::bind(config.listen).await.map_err(|e| AppError::Listen(config.listen, e))?;
        let keys = key_ring(config, store).await?;
        let source = source::checked(config, store).await?;
        let tick = tick_of(config, store, source.clone(), keys.clone(), replica, &metrics).await?;
        let (deliver, journal) = deliver_of(config, store, source.clone(), replica, &metrics)?;
        let write_back = source::checked_write_back(config, store).await?;
        let cleanup = cleanup_of(config, store, source.clone(), write_back, &metrics).await?;
        let page = PageSettings {
            product: config.brand.product.clone(),
            settings_url: config.opt_out.page_url.clone(),
            public_url: config.public_url.clone(),
        };
        let doors = house::doors_of(config, store).await?;
        let http = HttpState::new(store.clone(), keys, metrics.clone(), progress.clone(), page, doors);
        Ok(Self { source, tick, deliver, journal, cleanup, listener, http, metrics, progress })
    }
}
