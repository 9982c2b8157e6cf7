//! The table of keys: it drives parsing, error hints, `config/digestd.toml` and
//! `docs/configuration.md`, so that none of them can disagree with another.

use super::keys::{Key, key, optional, secret};
use super::kind::Kind;
use super::text::PERIODS;
use super::words::{
    Empty, FirstStart, GuardBackend, LogFormat, Migrate, OnError, OnUnavailable, OnUncertain, Provider,
    SectionKind,
};

/// The tables, in the order of the reference, each with a sentence about it.
pub const TABLES: &[(&str, &str)] = &[
    ("database", "Where digestd keeps its own tables."),
    ("relay", "The SMTP server that mails are handed to."),
    ("relay.timeouts", "Deadlines of the SMTP dialogue. Each holds for one read or write of its phase."),
    ("relay.reuse", "When a connection to the relay is closed and opened anew."),
    ("schedule", "When digests go out. Each org may have its own weekday, time and zone."),
    ("digest", "What a digest is about."),
    ("tick", "How often each replica looks for due orgs."),
    ("claim", "How orgs are claimed and worked."),
    ("delivery", "How messages are handed over, tried again and given up."),
    ("guard", "A second check across all sends, against a restored backup or a second installation."),
    ("suppression", "When an address that keeps failing is left out."),
    ("source", "Your own database and who gets a digest. Without it the built-in directory serves."),
    ("templates", "Your own templates."),
    ("brand", "How a digest looks."),
    ("http", "Health, metrics and the unsubscribe page."),
    ("unsubscribe", "The keys that sign unsubscribe links."),
    ("opt_out", "Writing opt-outs back to your application."),
    ("admin", "The admin pages."),
    ("retention", "How long finished rows are kept."),
    ("shutdown", "Stopping."),
    ("log", "Logs, on standard error."),
];

/// All keys outside `[[section]]` and `[headers]`, grouped as [`TABLES`] orders them.
pub const KEYS: &[Key] = &[
    optional(
        "public_url",
        Kind::HttpUrl,
        "https://digest.example.com",
        "Where recipients reach `http.listen`, for the links in mails. Required with an SMTP relay; with `file:` it defaults to `http.listen`.",
    ),
    // database
    secret("database.url", Kind::DatabaseUrl, "", "PostgreSQL for any number of hosts, SQLite for one host.")
        .with_default("sqlite:./digestd.db"),
    key(
        "database.schema",
        Kind::Name,
        "digestd",
        "The PostgreSQL schema that holds our tables, apart from your application's.",
    ),
    key(
        "database.pool",
        Kind::Int(4, 200),
        "10",
        "Connections that each replica opens at most. Claim renewal, delivery, HTTP and the tick must each find one, hence at least 4.",
    ),
    key(
        "database.migrate",
        Kind::Choice(Migrate::NAMES),
        "auto",
        "`auto` brings the schema up to date at start; `check` only refuses to start when it is not.",
    ),
    key(
        "database.start_timeout",
        Kind::Duration("1s", "1h"),
        "1m",
        "How long a start waits for the database before it gives up with exit code 69. Later outages never end the process.",
    ),
    key(
        "database.pgbouncer",
        Kind::Bool,
        "false",
        "Set it behind PgBouncer in transaction mode: no prepared statements, no session state.",
    ),
    // relay
    key(
        "relay.url",
        Kind::RelayUrl,
        "file:./mail",
        "`smtps://` is TLS from the first byte, `smtp://…?tls=starttls` upgrades, `smtp+plaintext://` is for loopback, `file:DIR` writes each mail as a file.",
    ),
    optional(
        "relay.username",
        Kind::Text,
        "digests",
        "The login at the relay. Needs `relay.password` or `relay.password_file`.",
    ),
    secret("relay.password", Kind::Secret, "", "The password at the relay."),
    optional(
        "relay.from",
        Kind::Mailbox,
        "Example digests <digests@example.com>",
        "The sender that recipients see. Required with an SMTP relay.",
    ),
    optional(
        "relay.envelope_from",
        Kind::Address,
        "bounces@example.com",
        "Where bounces go (MAIL FROM). Defaults to the address of `relay.from`.",
    ),
    key(
        "relay.provider",
        Kind::Choice(Provider::NAMES),
        "generic",
        "Whose reply codes to expect; the outcome table has exceptions per provider.",
    ),
    key(
        "relay.connections",
        Kind::Int(1, 50),
        "4",
        "Connections that each replica keeps open at most. A killed replica leaves at most so many uncertain messages.",
    ),
    optional(
        "relay.connections_total",
        Kind::Int(1, 1000),
        "20",
        "Connections of all replicas together. No limit when absent.",
    ),
    optional(
        "relay.pace",
        Kind::Pace,
        "14/s",
        "Messages per second, minute or hour, all replicas together. No limit when absent.",
    ),
    optional(
        "relay.daily_quota",
        Kind::Int(1, 100_000_000),
        "50000",
        "Messages in any 24 hours, all replicas together. No limit when absent.",
    ),
    key(
        "relay.probe_interval",
        Kind::Duration("1s", "1h"),
        "30s",
        "How often all replicas together try a relay that is down or refuses us.",
    ),
    key(
        "relay.allow_plaintext",
        Kind::Bool,
        "false",
        "Allows `smtp+plaintext://` to a host that is not loopback. Mails and password are then readable on the way.",
    ),
    optional(
        "relay.helo",
        Kind::Host,
        "digest.example.com",
        "The name given in EHLO. Defaults to the host's name.",
    ),
    optional(
        "relay.tls_ca_file",
        Kind::Path,
        "/etc/digestd/relay-ca.pem",
        "Certificates to trust besides the system's, in PEM.",
    ),
    optional(
        "relay.client_cert_file",
        Kind::Path,
        "/etc/digestd/client.pem",
        "The client certificate, in PEM. Needs `relay.client_key_file`.",
    ),
    optional(
        "relay.client_key_file",
        Kind::Path,
        "/run/secrets/client-key.pem",
        "The key of the client certificate, in PEM.",
    ),
    key(
        "relay.timeouts.connect",
        Kind::Duration("10ms", "5m"),
        "30s",
        "Name lookup and TCP, over all addresses.",
    ),
    key("relay.timeouts.tls", Kind::Duration("10ms", "5m"), "15s", "The TLS handshake."),
    key(
        "relay.timeouts.greeting",
        Kind::Duration("10ms", "10m"),
        "1m",
        "The relay's first line; some delay it on purpose.",
    ),
    key("relay.timeouts.login", Kind::Duration("10ms", "10m"), "30s", "EHLO, STARTTLS and AUTH."),
    key("relay.timeouts.envelope", Kind::Duration("10ms", "10m"), "1m", "MAIL, RCPT and DATA."),
    key("relay.timeouts.body", Kind::Duration("10ms", "10m"), "1m", "The body, without progress."),
    key(
        "relay.timeouts.reply",
        Kind::Duration("10ms", "30m"),
        "10m",
        "The reply after the final dot. Cut short, it makes uncertain messages: RFC 5321 §4.5.3.2.6 asks for 10 minutes.",
    ),
    key("relay.reuse.messages", Kind::Int(1, 10_000), "100", "Messages over one connection."),
    key("relay.reuse.age", Kind::Duration("1s", "1h"), "5m", "A connection's age."),
    key("relay.reuse.idle", Kind::Duration("100ms", "10m"), "5s", "How long an idle connection is kept."),
    // schedule
    key("schedule.weekday", Kind::Weekday, "monday", "The day of the week."),
    key("schedule.time", Kind::Time, "08:00", "The local time."),
    key("schedule.timezone", Kind::Zone, "UTC", "The zone of orgs that have none of their own."),
    key(
        "schedule.catch_up",
        Kind::Duration("1m", "167h"),
        "36h",
        "How long after its slot a digest may still be made. Later it is reported as missed. Less than 7 days, so that no week reaches into the next.",
    ),
    key(
        "schedule.first_start",
        Kind::Choice(FirstStart::NAMES),
        "wait",
        "Whether a new installation sends for a slot that opened before it: `wait` for the next one, or `catch_up`.",
    ),
    key(
        "schedule.late_alarm",
        Kind::Duration("1m", "167h"),
        "2h",
        "A slot that is so long past its start with unsettled orgs raises the alarm in logs and metrics. Half of `schedule.catch_up` where that is shorter and this key is absent.",
    ),
    // digest
    key(
        "digest.period",
        Kind::Choice(PERIODS),
        "previous_week",
        "The days a digest is about: the ISO week before the slot's, or the seven days before the slot's date.",
    ),
    key(
        "digest.empty",
        Kind::Choice(Empty::NAMES),
        "skip",
        "What to do for a week in which nothing happened: `skip` it, or `send` a short note.",
    ),
    key("digest.locale", Kind::Locale, "en", "The language of recipients that have none of their own."),
    // tick
    key(
        "tick.interval",
        Kind::Duration("50ms", "1h"),
        "10s",
        "Time between two looks, with jitter. An idle look costs one small query.",
    ),
    key(
        "tick.resweep",
        Kind::Duration("50ms", "24h"),
        "15m",
        "How often open slots are read again for orgs that appeared or changed after the first sweep. `tick.interval` where that is longer and this key is absent.",
    ),
    // claim
    key(
        "claim.lease",
        Kind::Duration("1s", "1h"),
        "2m",
        "How long a claim holds without renewal; it is renewed at a third of it. After a crash another replica takes over so much later.",
    ),
    key("claim.batch", Kind::Int(1, 1000), "200", "Orgs claimed, gathered and enqueued together."),
    key(
        "claim.max_attempts",
        Kind::Int(1, 50),
        "5",
        "How often an org's digest is tried before its send is failed.",
    ),
    // delivery
    key(
        "delivery.lease",
        Kind::Duration("1s", "2h"),
        "5m",
        "How long a replica holds a message before the hand-over begins. Longer than connect, tls, greeting, login and envelope of `relay.timeouts` together.",
    ),
    key(
        "delivery.poll",
        Kind::Duration("50ms", "1m"),
        "1s",
        "How often an idle replica looks for messages, with jitter.",
    ),
    key(
        "delivery.max_age",
        Kind::Duration("1h", "144h"),
        "48h",
        "A message older than this is given up as expired. At most 6 days, so that no digest meets the next one.",
    ),
    key(
        "delivery.max_attempts",
        Kind::Int(1, 50),
        "8",
        "Attempts that fail because of the message or its recipient. A relay that is down costs none.",
    ),
    key(
        "delivery.retry",
        Kind::Durations,
        "1m, 5m, 15m, 30m, 1h, 2h, 4h",
        "The waits between attempts, each varied a little; the last one repeats.",
    ),
    key(
        "delivery.on_uncertain",
        Kind::Choice(OnUncertain::NAMES),
        "hold",
        "A message that the relay may or may not have accepted: `hold` it for a person, or `resend` it after 30 minutes and risk a second copy.",
    ),
    optional(
        "delivery.redirect_to",
        Kind::Address,
        "staging@example.com",
        "Sends every mail to this address instead, the original recipient in a header. For staging.",
    ),
    // guard
    key(
        "guard.backend",
        Kind::Choice(GuardBackend::NAMES),
        "off",
        "`sql` keeps fingerprints in the database itself; `redis` also protects from a restore of that database.",
    ),
    secret(
        "guard.url",
        Kind::RedisUrl,
        "rediss://redis.example.com:6379/0",
        "Where Redis is. Required with `redis`, refused otherwise.",
    ),
    key(
        "guard.ttl",
        Kind::Duration("1h", "400d"),
        "30d",
        "How long a fingerprint is kept: at least catch-up, maximum age and a week together.",
    ),
    key(
        "guard.on_unavailable",
        Kind::Choice(OnUnavailable::NAMES),
        "open",
        "When the guard cannot be asked: `open` sends, as the database's own uniqueness still holds; `closed` waits.",
    ),
    key("guard.prefix", Kind::Text, "email:fp:", "What the fingerprint's key begins with in Redis."),
    key(
        "guard.timeout",
        Kind::Duration("10ms", "1m"),
        "2s",
        "How long an answer of the guard is waited for.",
    ),
    // suppression
    key(
        "suppression.hard_after",
        Kind::Int(1, 100),
        "1",
        "Permanent failures (such as 5.1.1, no such user) after which an address is left out.",
    ),
    key(
        "suppression.soft_after",
        Kind::Int(1, 100),
        "5",
        "Digests in a row that failed otherwise, after which an address is left out.",
    ),
    key("suppression.soft_decay", Kind::Duration("1d", "400d"), "90d", "How long such a failure counts."),
    secret(
        "suppression.token",
        Kind::Secret,
        "",
        "The bearer token of the HTTP endpoint for bounce processors. Off when absent.",
    ),
    // source
    secret(
        "source.url",
        Kind::DatabaseUrl,
        "postgres://digest_reader@db.example.com/app",
        "Your application's database, by a role that may only read.",
    ),
    optional(
        "source.recipients",
        Kind::Sql,
        "SELECT org_id, org_name, user_id, email FROM digest_recipients",
        "Who gets a digest. Required with `source.url`. Columns: `org_id`, `org_name`, `user_id`, `email`; optional `name`, `locale`, `timezone`, `weekday`, `time`, `org_created_at`, `opted_in_at`.",
    ),
    key("source.pool", Kind::Int(3, 100), "4", "Connections that each replica opens to it at most."),
    key(
        "source.statement_timeout",
        Kind::Duration("100ms", "1h"),
        "30s",
        "How long the recipients query may run.",
    ),
    // templates
    optional(
        "templates.dir",
        Kind::Path,
        "./templates",
        "Files here replace the built-in templates of the same name.",
    ),
    // brand
    key("brand.product", Kind::Text, "Weekly digest", "The product's name, in the heading and the subject."),
    key(
        "brand.accent",
        Kind::Colour,
        "#1d4ed8",
        "The colour of bars, links and buttons; dark enough to be read on white.",
    ),
    optional(
        "brand.logo_url",
        Kind::Link,
        "https://example.com/logo.png",
        "An image for the heading, served over HTTPS.",
    ),
    optional(
        "brand.address",
        Kind::Lines,
        "Example Ltd, 1 Example Street, Example Town",
        "A postal address for the footer, on several lines if need be; many countries require one.",
    ),
    optional("brand.reply_to", Kind::Mailbox, "Support <support@example.com>", "Where replies go."),
    // http
    key("http.listen", Kind::Listen, "127.0.0.1:8080", "Where to listen. Port 0 takes any free one."),
    // unsubscribe
    secret(
        "unsubscribe.keys",
        Kind::Secret,
        "",
        "One key a line, each of 32 characters or more; the first signs, the others are still accepted. The same for all replicas. When absent, one is made and kept in the database.",
    ),
    // opt_out
    secret(
        "opt_out.url",
        Kind::DatabaseUrl,
        "postgres://digest_optout@db.example.com/app",
        "The database that opt-outs are also written to, by a role of its own.",
    ),
    optional(
        "opt_out.sql",
        Kind::Sql,
        "UPDATE members SET weekly_digest = NOT :opted_out WHERE org_id = :org_id AND user_id = :user_id",
        "The statement that writes one choice. Required with `opt_out.url`. Parameters: `:org_id`, `:user_id`, `:email`, `:opted_out` (false after a re-subscription; a statement without it is run for opt-outs only), `:at`. It waits while that database is away, may run twice, and never holds up an unsubscribe.",
    ),
    optional(
        "opt_out.page_url",
        Kind::HttpUrl,
        "https://app.example.com/settings/digest",
        "A settings page of your application that mails and the unsubscribe page link to.",
    ),
    // admin
    secret(
        "admin.token",
        Kind::Secret,
        "",
        "The token that opens `/admin`, of 16 characters or more. The pages are off without it.",
    ),
    // retention
    key(
        "retention.bodies",
        Kind::Duration("1h", "400d"),
        "7d",
        "Bodies of messages in a final state. Uncertain ones keep theirs until they are settled.",
    ),
    key("retention.attempts", Kind::Duration("1d", "4000d"), "90d", "Attempts, with the relay's replies."),
    key(
        "retention.sends",
        Kind::Duration("35d", "4000d"),
        "400d",
        "Sends and their messages, once their week is closed.",
    ),
    key("retention.replicas", Kind::Duration("1h", "400d"), "7d", "Replicas that are gone."),
    // shutdown
    key(
        "shutdown.grace",
        Kind::Duration("1s", "1h"),
        "25s",
        "How long a stopping replica may finish what it began.",
    ),
    key(
        "shutdown.kill_after",
        Kind::Duration("1s", "2h"),
        "30s",
        "When the orchestrator kills (`terminationGracePeriodSeconds`, `stop_grace_period`). Longer than the grace.",
    ),
    // log
    key("log.format", Kind::Choice(LogFormat::NAMES), "text", "`text` for people, `json` for collectors."),
    key("log.filter", Kind::Text, "info", "Levels, as `RUST_LOG` has them; `RUST_LOG` wins over it."),
];

/// The keys of each `[[section]]`.
pub const SECTION_KEYS: &[Key] = &[
    optional("name", Kind::Name, "open_incidents", "A short name, unique, for logs and templates. Required."),
    optional("title", Kind::Text, "Open incidents", "The heading. Required."),
    optional(
        "sql",
        Kind::Sql,
        "SELECT org_id, title, url FROM incidents WHERE org_id = ANY(:org_ids) AND opened_at >= :from AND opened_at < :to",
        "The query, for a batch of orgs, without a LIMIT over them all. Required. Parameters: `:org_ids`, `:from`, `:to`, `:previous_from`, `:previous_to`, `:week_key`.",
    ),
    key(
        "kind",
        Kind::Choice(SectionKind::NAMES),
        "rows",
        "`rows` is a list; `figures` are numbers, with the columns `label`, `value` and at will `previous`.",
    ),
    key("limit", Kind::Int(1, 200), "10", "Rows or figures shown; the rest becomes “and N more”."),
    key("personal", Kind::Bool, "false", "Rows carry `user_id` and reach only that admin. For `rows` only."),
    key("timeout", Kind::Duration("100ms", "1h"), "30s", "How long the query may run."),
    key(
        "on_error",
        Kind::Choice(OnError::NAMES),
        "fail",
        "`fail` tries the org's digest again; `omit_with_note` sends it without this section and says so.",
    ),
];
