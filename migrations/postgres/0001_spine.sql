-- The spine: sends, messages and what surrounds them.
-- `digestd.` stands for the configured schema and is replaced when the file is applied.

-- One row, made by the first replica that ever booted.
CREATE TABLE digestd.installation (
    only_one BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (only_one),
    installed_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    -- Signs unsubscribe links where no keys are configured; made once, the same for all replicas.
    unsubscribe_key TEXT,
    -- Whether opt-outs are kept for the application too: whether `opt_out.sql` is configured.
    write_back BOOLEAN NOT NULL DEFAULT FALSE,
    -- Since when uncertain messages are sent again by themselves; absent while they are held.
    resend_since TIMESTAMPTZ
);
INSERT INTO digestd.installation DEFAULT VALUES;

-- The built-in directory: who gets a digest, and what happened.
CREATE TABLE digestd.orgs (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    timezone TEXT NOT NULL,
    weekday TEXT,
    local_time TEXT,
    locale TEXT,
    active BOOLEAN NOT NULL DEFAULT TRUE,
    created_at TIMESTAMPTZ
);

CREATE TABLE digestd.admins (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES digestd.orgs (id) ON DELETE CASCADE,
    email TEXT NOT NULL,
    name TEXT,
    locale TEXT,
    weekly_digest BOOLEAN NOT NULL DEFAULT TRUE,
    active BOOLEAN NOT NULL DEFAULT TRUE,
    opted_in_at TIMESTAMPTZ
);
CREATE INDEX admins_org ON digestd.admins (org_id);

CREATE TABLE digestd.activity (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES digestd.orgs (id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    title TEXT NOT NULL,
    occurred_at TIMESTAMPTZ NOT NULL,
    admin_id TEXT,
    url TEXT,
    actor TEXT,
    value DOUBLE PRECISION
);
CREATE INDEX activity_org_time ON digestd.activity (org_id, occurred_at);

-- A slot is a schedule in a week. Its instant is computed once and compared as stored,
-- because replicas of different versions may know different zone rules.
CREATE TABLE digestd.slots (
    timezone TEXT NOT NULL,
    weekday TEXT NOT NULL,
    local_time TEXT NOT NULL,
    week_key TEXT NOT NULL,
    slot_at TIMESTAMPTZ NOT NULL,
    swept_at TIMESTAMPTZ,
    PRIMARY KEY (timezone, weekday, local_time, week_key)
);
CREATE INDEX slots_open ON digestd.slots (slot_at) WHERE swept_at IS NULL;

CREATE TABLE digestd.weeks (
    week_key TEXT PRIMARY KEY,
    closed_at TIMESTAMPTZ
);

-- The row that says “this org's digest for this week is mine”.
CREATE TABLE digestd.sends (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    org_id TEXT NOT NULL,
    week_key TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('claimed', 'enqueued', 'skipped', 'failed', 'missed')),
    reason TEXT,
    detail TEXT,
    slot_at TIMESTAMPTZ NOT NULL,
    timezone TEXT NOT NULL,
    period_first TEXT NOT NULL,
    period_start TIMESTAMPTZ NOT NULL,
    period_end TIMESTAMPTZ NOT NULL,
    -- After this moment the send is failed rather than tried again.
    give_up_at TIMESTAMPTZ NOT NULL,
    only_address TEXT,
    epoch BIGINT NOT NULL DEFAULT 1,
    claim_id UUID,
    claimed_by UUID,
    claimed_at TIMESTAMPTZ,
    lease_until TIMESTAMPTZ,
    attempts INTEGER NOT NULL DEFAULT 0,
    messages INTEGER NOT NULL DEFAULT 0,
    settled_at TIMESTAMPTZ
);
CREATE UNIQUE INDEX sends_org_week_key ON digestd.sends (org_id, week_key);
CREATE INDEX sends_claimed ON digestd.sends (lease_until) WHERE state = 'claimed';
CREATE INDEX sends_week ON digestd.sends (week_key, state);
CREATE INDEX sends_slot ON digestd.sends (slot_at);

-- What happened to a send beyond its own columns: take-overs, failures, repairs.
CREATE TABLE digestd.send_events (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    send_id BIGINT NOT NULL REFERENCES digestd.sends (id) ON DELETE CASCADE,
    at TIMESTAMPTZ NOT NULL,
    event TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    replica UUID,
    detail TEXT
);
CREATE INDEX send_events_send ON digestd.send_events (send_id, id);

-- One recipient's mail. Narrow and hot; the bytes lie in `bodies`.
CREATE TABLE digestd.outbox (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    send_id BIGINT NOT NULL REFERENCES digestd.sends (id),
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
    owner UUID,
    lease_until TIMESTAMPTZ,
    next_attempt_at TIMESTAMPTZ NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL,
    marked_at TIMESTAMPTZ,
    resend BOOLEAN NOT NULL DEFAULT FALSE,
    note TEXT,
    created_at TIMESTAMPTZ NOT NULL,
    settled_at TIMESTAMPTZ
) WITH (fillfactor = 75, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE UNIQUE INDEX outbox_send_address ON digestd.outbox (send_id, address);
CREATE INDEX outbox_due ON digestd.outbox (next_attempt_at, id) WHERE state = 'pending';
CREATE INDEX outbox_leases ON digestd.outbox (lease_until) WHERE state IN ('leased', 'sending');
CREATE INDEX outbox_uncertain ON digestd.outbox (marked_at) WHERE state = 'uncertain';

-- The final bytes, deleted after a final state plus retention.
CREATE TABLE digestd.bodies (
    message_id BIGINT PRIMARY KEY REFERENCES digestd.outbox (id) ON DELETE CASCADE,
    bytes BYTEA NOT NULL
);
-- lz4 halves the cost of an enqueue; a server built without it keeps the default.
DO $$
BEGIN
    ALTER TABLE digestd.bodies ALTER COLUMN bytes SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END
$$;

-- Hand-overs that did not end in an acceptance, and operators' acts. An acceptance stands in `outbox`.
CREATE TABLE digestd.attempts (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id BIGINT NOT NULL REFERENCES digestd.outbox (id) ON DELETE CASCADE,
    at TIMESTAMPTZ NOT NULL,
    replica UUID,
    token BIGINT NOT NULL,
    phase TEXT NOT NULL,
    outcome TEXT NOT NULL,
    note TEXT,
    -- What the guard would hold if this hand-over had not given its fingerprint back.
    guard_owner TEXT
);
CREATE INDEX attempts_message ON digestd.attempts (message_id, id);

-- Messages that a command has ended: it has no metrics, so the leader counts them in its own and deletes the row.
CREATE TABLE digestd.uncounted_ends (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    state TEXT NOT NULL,
    reason TEXT,
    messages BIGINT NOT NULL
);

-- Whom an unsubscribe link means. One row per org and address that ever got a message, kept when org,
-- admin and message are gone: a link in an old mail must still work.
CREATE TABLE digestd.subscriptions (
    ref TEXT PRIMARY KEY,
    org_id TEXT NOT NULL,
    -- As the newest message had it, for the page behind the link.
    org_name TEXT NOT NULL,
    user_id TEXT NOT NULL,
    address TEXT NOT NULL
);
CREATE INDEX subscriptions_address ON digestd.subscriptions (address);

-- Choices that `opt_out.sql` has still to write to the application, one for each subscription: a later
-- choice takes an earlier one's place, in the next turn.
CREATE TABLE digestd.write_backs (
    ref TEXT PRIMARY KEY,
    turn BIGINT NOT NULL DEFAULT 0,
    org_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    address TEXT NOT NULL,
    opted_out BOOLEAN NOT NULL,
    said_at TIMESTAMPTZ NOT NULL,
    due_at TIMESTAMPTZ NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX write_backs_due ON digestd.write_backs (due_at);

-- `org_id` is empty for “all digests from here”.
CREATE TABLE digestd.opt_outs (
    address TEXT NOT NULL,
    org_id TEXT NOT NULL DEFAULT '',
    at TIMESTAMPTZ NOT NULL,
    source TEXT NOT NULL,
    PRIMARY KEY (address, org_id)
);

CREATE TABLE digestd.suppressions (
    address TEXT PRIMARY KEY,
    suppressed BOOLEAN NOT NULL,
    hard_failures INTEGER NOT NULL DEFAULT 0,
    soft_failures DOUBLE PRECISION NOT NULL DEFAULT 0,
    at TIMESTAMPTZ NOT NULL,
    source TEXT NOT NULL,
    note TEXT
);

-- The guard's SQL backend.
CREATE TABLE digestd.fingerprints (
    fingerprint TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL
);
CREATE INDEX fingerprints_expiry ON digestd.fingerprints (expires_at);

CREATE TABLE digestd.replicas (
    id UUID PRIMARY KEY,
    host TEXT NOT NULL,
    version TEXT NOT NULL,
    started_at TIMESTAMPTZ NOT NULL,
    seen_at TIMESTAMPTZ NOT NULL,
    clock_offset_ms BIGINT NOT NULL DEFAULT 0,
    connections INTEGER NOT NULL DEFAULT 0
);

-- Named leases: leadership, with a term that fences what is done under it.
CREATE TABLE digestd.leases (
    name TEXT PRIMARY KEY,
    holder UUID,
    term BIGINT NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL
);

-- The relay's state, shared by all replicas.
CREATE TABLE digestd.relays (
    name TEXT PRIMARY KEY,
    state TEXT NOT NULL DEFAULT 'closed' CHECK (state IN ('closed', 'open', 'half_open')),
    paused BOOLEAN NOT NULL DEFAULT FALSE,
    reason TEXT,
    note TEXT,
    -- Failures in a row while closed, and openings in a row since the last success.
    failures INTEGER NOT NULL DEFAULT 0,
    openings INTEGER NOT NULL DEFAULT 0,
    opened_at TIMESTAMPTZ,
    open_until TIMESTAMPTZ,
    closed_at TIMESTAMPTZ,
    probe_owner UUID,
    probe_until TIMESTAMPTZ,
    rate_factor DOUBLE PRECISION NOT NULL DEFAULT 1,
    throttled_at TIMESTAMPTZ,
    -- The token bucket of the pace, and the day's count.
    bucket DOUBLE PRECISION NOT NULL DEFAULT 0,
    bucket_at TIMESTAMPTZ,
    day_used BIGINT NOT NULL DEFAULT 0,
    day_started_at TIMESTAMPTZ
);
