//! Processor time of processes, as the kernel counts it.

use crate::world::World;

/// What `/proc` counts in: hundredths of a second, whatever the kernel's own tick is.
const TICKS_PER_SECOND: f64 = 100.0;

/// Seconds that a process has used, and its children, whether they have ended or not.
pub fn used(pid: u32) -> f64 {
    let own = stat(pid).expect("the process runs");
    let children: f64 = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(stat)
        .filter(|child| child.parent == pid)
        .map(|child| child.seconds)
        .sum();
    own.seconds + own.ended_children + children
}

/// The process whose children are the server's sessions.
pub async fn postmaster(world: &World) -> u32 {
    let session = world.count("SELECT CAST(pg_backend_pid() AS BIGINT)").await;
    stat(u32::try_from(session).unwrap()).expect("the session is open").parent
}

struct Stat {
    parent: u32,
    seconds: f64,
    ended_children: f64,
}

/// `None`: it has ended.
fn stat(pid: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // A name may hold blanks and brackets; after it come the state, the parent and further numbers.
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        seconds: (ticks(11)? + ticks(12)?) / TICKS_PER_SECOND,
        ended_children: (ticks(13)? + ticks(14)?) / TICKS_PER_SECOND,
    })
}
