//! What the world looks like: rows, replicas, the guard's memory, and what the relay has accepted.

/// An organisation, counted from 0.
pub type Org = usize;

/// A message's place: the organisation and which of its admins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The organisation.
    pub org: Org,
    /// The admin, counted from 0.
    pub admin: usize,
}

/// One life of one replica. A crash begins the next.
pub type Life = u8;

/// The guard's name for a hand-over: how often the database was restored, and the message's token.
pub type Owner = (u8, u8);

/// How a send stands. Its uniqueness is that there is one place for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SendState {
    /// Held under a lease.
    Claimed,
    /// Its messages are in the outbox.
    Enqueued,
    /// Nobody came in time.
    Missed,
}

/// A row of `sends`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Send {
    /// How it stands.
    pub state: SendState,
    /// Rises with every holder.
    pub epoch: u8,
    /// The identity of the claim.
    pub claim: Life,
    /// Whether the lease has time left.
    pub leased: bool,
}

/// How a message stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageState {
    /// To be handed over.
    Pending,
    /// With a replica.
    Leased,
    /// The marker: its body may leave.
    Sending,
    /// The relay has it.
    Accepted,
    /// The relay does not want it.
    Failed,
    /// Nobody knows.
    Uncertain,
    /// Not to be sent, because its reader has opted out.
    OptedOut,
    /// Not to be sent, because the guard knows the digest.
    Duplicate,
    /// Somebody called it off.
    Cancelled,
}

impl MessageState {
    /// Whether nothing changes it any more. `Uncertain` ends on its own only by a known answer.
    #[must_use]
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Pending | Self::Leased | Self::Sending | Self::Uncertain)
    }
}

/// A row of `outbox`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Message {
    /// How it stands.
    pub state: MessageState,
    /// Rises with every lease.
    pub token: u8,
    /// Who has leased it.
    pub owner: Option<Life>,
    /// Whether the lease has time left.
    pub leased: bool,
    /// Definite refusals.
    pub attempts: u8,
    /// The last hand-over that was definitely refused.
    pub refused: Option<Owner>,
    /// History: a marker was committed at some time.
    pub was_marked: bool,
}

/// What a replica's tick is at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Tick {
    /// Between two ticks.
    Idle,
    /// Has read these candidates and not claimed them yet.
    Sweeping {
        /// Candidates without an answer.
        left: Vec<Org>,
    },
    /// As the leader, has read these orgs; those without a send were missed.
    Closing {
        /// Orgs not yet looked at.
        left: Vec<Org>,
    },
}

/// A claim in a replica's hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Claim {
    /// Whose digest.
    pub org: Org,
    /// Under which epoch.
    pub epoch: u8,
}

/// A lease in a replica's hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Leased {
    /// Which message.
    pub place: Place,
    /// Under which token.
    pub token: u8,
}

/// What a hand-over came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    /// 250 after the final dot.
    Accepted,
    /// A definite no.
    Refused,
    /// Silence after the final dot.
    Unknown,
    /// The guard knew the digest, and nothing left.
    Duplicate,
    /// The answer to the marker was lost, and nothing left.
    TakenBack,
}

/// What a replica's one connection is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Connection {
    /// Nothing.
    Free,
    /// The fingerprint is taken and the marker is not (a mutation).
    Reserved(Leased),
    /// The marker was asked for, and the answer was lost.
    Unsure(Leased),
    /// The marker is set.
    Marked(Leased),
    /// The marker is set and the guard lets it pass.
    Guarded(Leased),
    /// The hand-over is over and its result not recorded.
    Answered {
        /// Of which message.
        leased: Leased,
        /// What came of it.
        answer: Answer,
        /// Whether the guard still has its fingerprint.
        holds: bool,
        /// The next one, already marked (a mutation).
        next: Option<Leased>,
    },
}

/// One replica.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Replica {
    /// Which life of which replica this is.
    pub life: Life,
    /// Its tick.
    pub tick: Tick,
    /// The claim that it works on.
    pub claim: Option<Claim>,
    /// Leased messages, not begun.
    pub queue: Vec<Leased>,
    /// Its connection.
    pub connection: Connection,
}

impl Replica {
    /// A process that has just started.
    #[must_use]
    pub fn new(life: Life) -> Self {
        Self { life, tick: Tick::Idle, claim: None, queue: Vec::new(), connection: Connection::Free }
    }

    /// Whether this message is in the replica's hands.
    #[must_use]
    pub fn has(&self, place: Place) -> bool {
        let in_hand = match self.connection {
            Connection::Free => None,
            Connection::Reserved(leased)
            | Connection::Unsure(leased)
            | Connection::Marked(leased)
            | Connection::Guarded(leased)
            | Connection::Answered { leased, .. } => Some(leased),
        };
        in_hand.into_iter().chain(self.queue.iter().copied()).any(|leased| leased.place == place)
    }
}

/// What has happened, told by nobody inside: the properties read it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct History {
    /// Bodies accepted by the relay, by organisation and admin.
    pub accepted: Vec<Vec<u8>>,
    /// Bodies that left, by organisation and admin.
    pub bodies: Vec<Vec<u8>>,
    /// Sends that were enqueued at some time, by organisation.
    pub enqueued: Vec<bool>,
    /// Sends that were written down as missed, by organisation.
    pub missed: Vec<bool>,
    /// A write under an old epoch or token took effect.
    pub stale_write: bool,
    /// A final state was left.
    pub left_final: bool,
    /// A known acceptance found no row to be recorded in.
    pub thrown_away: bool,
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct State {
    /// `sends`, by organisation.
    pub sends: Vec<Option<Send>>,
    /// `outbox`, by organisation and admin.
    pub outbox: Vec<Vec<Option<Message>>>,
    /// Who has opted out.
    pub opted_out: Vec<Vec<bool>>,
    /// Whether the slot is remembered as swept.
    pub swept: bool,
    /// Whether the slot's window is open.
    pub window_open: bool,
    /// Whether the week is closed.
    pub week_closed: bool,
    /// Whether the week is older than retention's horizon.
    pub old: bool,
    /// The guard's fingerprints, in a database of their own.
    pub fingerprints: Vec<Vec<Option<Owner>>>,
    /// Requests to give a fingerprint back that are still under way.
    pub late_give_backs: Vec<(Place, Owner)>,
    /// The replicas.
    pub replicas: Vec<Replica>,
    /// The next life.
    pub next_life: Life,
    /// How often the database was restored.
    pub restored: u8,
    /// Faults still to come.
    pub faults: u8,
    /// History.
    pub history: History,
}

impl State {
    /// Every message that exists, with its place.
    pub fn messages(&self) -> impl Iterator<Item = (Place, &Message)> {
        self.outbox.iter().enumerate().flat_map(|(org, admins)| {
            let place = move |admin| Place { org, admin };
            admins.iter().enumerate().filter_map(move |(admin, m)| m.as_ref().map(|m| (place(admin), m)))
        })
    }

    /// The message at a place.
    #[must_use]
    pub fn message(&self, place: Place) -> Option<&Message> {
        self.outbox[place.org][place.admin].as_ref()
    }
}
