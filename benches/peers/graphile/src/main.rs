//! Drains jobs that do nothing, by `graphile_worker` as it is tuned for small jobs: a local queue and
//! completions in groups.
//!
//! ```text
//! digestd-peer-graphile DATABASE JOBS
//! ```
//!
//! Prints the jobs per second from the first call of the handler until no job is left in its table.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, WorkerContext, WorkerOptions,
};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

/// As many as our drain has connections.
const CONCURRENCY: usize = 50;
/// Jobs that are leased at once.
const LOCAL_QUEUE: usize = 500;
/// How long ended jobs wait for company.
const COMPLETION_DELAY: Duration = Duration::from_millis(2);
/// Jobs that are added by one statement.
const ADDED_AT_ONCE: usize = 1_000;

#[derive(Deserialize, Serialize)]
struct NoWork {
    message: usize,
}

#[derive(Clone, Debug, Default)]
struct Done {
    jobs: Arc<AtomicUsize>,
}

impl TaskHandler for NoWork {
    const IDENTIFIER: &'static str = "no_work";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        if let Some(done) = context.get_ext::<Done>() {
            done.jobs.fetch_add(1, Ordering::Relaxed);
        }
        Ok::<(), String>(())
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let database = arguments.next().ok_or("the database's address is missing")?;
    let jobs: usize = arguments.next().ok_or("the number of jobs is missing")?.parse()?;
    let pool = PgPoolOptions::new().max_connections(10).connect(&database).await?;
    let done = Done::default();
    let worker = WorkerOptions::default()
        .schema("graphile_worker")
        .concurrency(CONCURRENCY)
        .poll_interval(Duration::from_millis(50))
        .local_queue(LocalQueueConfig::default().with_size(LOCAL_QUEUE))
        .complete_job_batch_delay(COMPLETION_DELAY)
        .listen_os_shutdown_signals(false)
        .add_extension(done.clone())
        .define_job::<NoWork>()
        .pg_pool(pool.clone())
        .init()
        .await?;
    let utils = worker.create_utils();
    let all: Vec<RawJobSpec> = (0..jobs)
        .map(|message| RawJobSpec {
            identifier: NoWork::IDENTIFIER.to_owned(),
            payload: serde_json::json!({ "message": message }),
            spec: JobSpec::default(),
        })
        .collect();
    for some in all.chunks(ADDED_AT_ONCE) {
        utils.add_raw_jobs(some).await?;
    }
    sqlx::query("VACUUM ANALYZE").execute(&pool).await?;
    sqlx::query("CHECKPOINT").execute(&pool).await?;

    let worker = Arc::new(worker);
    let running = tokio::spawn({
        let worker = Arc::clone(&worker);
        async move { worker.run().await.map_err(|error| error.to_string()) }
    });
    while done.jobs.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let started = Instant::now();
    while done.jobs.load(Ordering::Relaxed) < jobs || left(&pool).await? {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    println!("{}", jobs as f64 / started.elapsed().as_secs_f64());
    worker.request_shutdown();
    Ok(running.await??)
}

/// Whether a job is in the table still.
async fn left(pool: &PgPool) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM graphile_worker._private_jobs)").fetch_one(pool).await
}
