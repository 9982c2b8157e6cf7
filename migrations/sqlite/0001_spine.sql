-- The spine: sends, messages and what surrounds them.
-- Times are milliseconds since 1970-01-01T00:00:00Z.

-- One row, made by the first replica that ever booted.
CREATE TABLE installation (
    only_one INTEGER PRIMARY KEY DEFAULT TRUE CHECK (only_one),
    installed_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    -- Signs unsubscribe links where no keys are configured; made once, the same for all replicas.
    unsubscribe_key TEXT,
    -- Whether opt-outs are kept for the application too: whether `opt_out.sql` is configured.
    write_back BOOLEAN NOT NULL DEFAULT FALSE,
    -- Since when uncertain messages are sent again by themselves; absent while they are held.
    resend_since INTEGER
);
INSERT INTO installation DEFAULT VALUES;

-- The built-in directory: who gets a digest, and what happened. Strict, because an application may
-- fill it: a time written as text is refused here and not met again on a Monday morning.
CREATE TABLE orgs (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    timezone TEXT NOT NULL,
    weekday TEXT,
    local_time TEXT,
    locale TEXT,
    active INTEGER NOT NULL DEFAULT TRUE,
    created_at INTEGER
) STRICT;

CREATE TABLE admins (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    email TEXT NOT NULL,
    name TEXT,
    locale TEXT,
    weekly_digest INTEGER NOT NULL DEFAULT TRUE,
    active INTEGER NOT NULL DEFAULT TRUE,
    opted_in_at INTEGER
) STRICT;
CREATE INDEX admins_org ON admins (org_id);

CREATE TABLE activity (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    title TEXT NOT NULL,
    occurred_at INTEGER NOT NULL,
    admin_id TEXT,
    url TEXT,
    actor TEXT,
    value REAL
) STRICT;
CREATE INDEX activity_org_time ON activity (org_id, occurred_at);

-- A slot is a schedule in a week. Its instant is computed once and compared as stored,
-- because replicas of different versions may know different zone rules.
CREATE TABLE slots (
    timezone TEXT NOT NULL,
    weekday TEXT NOT NULL,
    local_time TEXT NOT NULL,
    week_key TEXT NOT NULL,
    slot_at INTEGER NOT NULL,
    swept_at INTEGER,
    PRIMARY KEY (timezone, weekday, local_time, week_key)
);
CREATE INDEX slots_open ON slots (slot_at) WHERE swept_at IS NULL;

CREATE TABLE weeks (
    week_key TEXT PRIMARY KEY,
    closed_at INTEGER
);

-- The row that says “this org's digest for this week is mine”.
CREATE TABLE sends (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    org_id TEXT NOT NULL,
    week_key TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('claimed', 'enqueued', 'skipped', 'failed', 'missed')),
    reason TEXT,
    detail TEXT,
    slot_at INTEGER NOT NULL,
    timezone TEXT NOT NULL,
    period_first TEXT NOT NULL,
    period_start INTEGER NOT NULL,
    period_end INTEGER NOT NULL,
    -- After this moment the send is failed rather than tried again.
    give_up_at INTEGER NOT NULL,
    only_address TEXT,
    epoch BIGINT NOT NULL DEFAULT 1,
    claim_id BLOB,
    claimed_by BLOB,
    claimed_at INTEGER,
    lease_until INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0,
    messages INTEGER NOT NULL DEFAULT 0,
    settled_at INTEGER
);
CREATE UNIQUE INDEX sends_org_week_key ON sends (org_id, week_key);
CREATE INDEX sends_claimed ON sends (lease_until) WHERE state = 'claimed';
CREATE INDEX sends_week ON sends (week_key, state);
CREATE INDEX sends_slot ON sends (slot_at);

-- What happened to a send beyond its own columns: take-overs, failures, repairs.
CREATE TABLE send_events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    send_id BIGINT NOT NULL REFERENCES sends (id) ON DELETE CASCADE,
    at INTEGER NOT NULL,
    event TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    replica BLOB,
    detail TEXT
);
CREATE INDEX send_events_send ON send_events (send_id, id);

-- One recipient's mail. Narrow and hot; the bytes lie in `bodies`.
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    send_id BIGINT NOT NULL REFERENCES sends (id),
    org_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    -- The normalised address: unique within the send.
    address TEXT NOT NULL,
    -- The envelope form of it; absent where the address cannot be parsed.
    mailbox TEXT,
    uid TEXT NOT NULL,
    fingerprint TEXT,
    state TEXT NOT NULL CHECK (state IN ('pending', 'leased', 'sending', 'accepted', 'failed', 'uncertain',
        'suppressed', 'expired', 'cancelled')),
    reason TEXT,
    attempts INTEGER NOT NULL DEFAULT 0,
    token BIGINT NOT NULL DEFAULT 0,
    owner BLOB,
    lease_until INTEGER,
    next_attempt_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    marked_at INTEGER,
    resend INTEGER NOT NULL DEFAULT FALSE,
    note TEXT,
    created_at INTEGER NOT NULL,
    settled_at INTEGER
);
CREATE UNIQUE INDEX outbox_send_address ON outbox (send_id, address);
CREATE INDEX outbox_due ON outbox (next_attempt_at, id) WHERE state = 'pending';
CREATE INDEX outbox_leases ON outbox (lease_until) WHERE state IN ('leased', 'sending');
CREATE INDEX outbox_uncertain ON outbox (marked_at) WHERE state = 'uncertain';

-- The final bytes, deleted after a final state plus retention.
CREATE TABLE bodies (
    message_id BIGINT PRIMARY KEY REFERENCES outbox (id) ON DELETE CASCADE,
    bytes BLOB NOT NULL
);

-- Hand-overs that did not end in an acceptance, and operators' acts. An acceptance stands in `outbox`.
CREATE TABLE attempts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id BIGINT NOT NULL REFERENCES outbox (id) ON DELETE CASCADE,
    at INTEGER NOT NULL,
    replica BLOB,
    token BIGINT NOT NULL,
    phase TEXT NOT NULL,
    outcome TEXT NOT NULL,
    note TEXT,
    -- What the guard would hold if this hand-over had not given its fingerprint back.
    guard_owner TEXT
);
CREATE INDEX attempts_message ON attempts (message_id, id);

-- Messages that a command has ended: it has no metrics, so the leader counts them in its own and deletes the row.
CREATE TABLE uncounted_ends (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    state TEXT NOT NULL,
    reason TEXT,
    messages BIGINT NOT NULL
);

-- Whom an unsubscribe link means. One row per org and address that ever got a message, kept when org,
-- admin and message are gone: a link in an old mail must still work.
CREATE TABLE subscriptions (
    ref TEXT PRIMARY KEY,
    org_id TEXT NOT NULL,
    -- As the newest message had it, for the page behind the link.
    org_name TEXT NOT NULL,
    user_id TEXT NOT NULL,
    address TEXT NOT NULL
);
CREATE INDEX subscriptions_address ON subscriptions (address);

-- Choices that `opt_out.sql` has still to write to the application, one for each subscription: a later
-- choice takes an earlier one's place, in the next turn.
CREATE TABLE write_backs (
    ref TEXT PRIMARY KEY,
    turn INTEGER NOT NULL DEFAULT 0,
    org_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    address TEXT NOT NULL,
    opted_out BOOLEAN NOT NULL,
    said_at INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX write_backs_due ON write_backs (due_at);

-- `org_id` is empty for “all digests from here”.
CREATE TABLE opt_outs (
    address TEXT NOT NULL,
    org_id TEXT NOT NULL DEFAULT '',
    at INTEGER NOT NULL,
    source TEXT NOT NULL,
    PRIMARY KEY (address, org_id)
);

CREATE TABLE suppressions (
    address TEXT PRIMARY KEY,
    suppressed INTEGER NOT NULL,
    hard_failures INTEGER NOT NULL DEFAULT 0,
    soft_failures REAL NOT NULL DEFAULT 0,
    at INTEGER NOT NULL,
    source TEXT NOT NULL,
    note TEXT
);

-- The guard's SQL backend.
CREATE TABLE fingerprints (
    fingerprint TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    expires_at INTEGER NOT NULL
);
CREATE INDEX fingerprints_expiry ON fingerprints (expires_at);

CREATE TABLE replicas (
    id BLOB PRIMARY KEY,
    host TEXT NOT NULL,
    version TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    seen_at INTEGER NOT NULL,
    clock_offset_ms BIGINT NOT NULL DEFAULT 0,
    connections INTEGER NOT NULL DEFAULT 0
);

-- Named leases: leadership, with a term that fences what is done under it.
CREATE TABLE leases (
    name TEXT PRIMARY KEY,
    holder BLOB,
    term BIGINT NOT NULL,
    expires_at INTEGER NOT NULL
);

-- The relay's state, shared by all replicas.
CREATE TABLE relays (
    name TEXT PRIMARY KEY,
    state TEXT NOT NULL DEFAULT 'closed' CHECK (state IN ('closed', 'open', 'half_open')),
    paused INTEGER NOT NULL DEFAULT FALSE,
    reason TEXT,
    note TEXT,
    -- Failures in a row while closed, and openings in a row since the last success.
    failures INTEGER NOT NULL DEFAULT 0,
    openings INTEGER NOT NULL DEFAULT 0,
    opened_at INTEGER,
    open_until INTEGER,
    closed_at INTEGER,
    probe_owner BLOB,
    probe_until INTEGER,
    rate_factor REAL NOT NULL DEFAULT 1,
    throttled_at INTEGER,
    -- The token bucket of the pace, and the day's count.
    bucket REAL NOT NULL DEFAULT 0,
    bucket_at INTEGER,
    day_used BIGINT NOT NULL DEFAULT 0,
    day_started_at INTEGER
);
