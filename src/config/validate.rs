//! From raw values to the typed configuration. Every key is read on every load, so that
//! each mistake is seen whatever else is configured; then the combinations are checked.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use chrono::TimeDelta;
use secrecy::{ExposeSecret, SecretString};

use super::layer::Raw;
use super::parts;
use super::problem::Problem;
use super::reader::Reader;
use super::relay_url::{RelayUrl, Security};
use super::settings::{
    Brand, ClaimSettings, Config, Database, Delivery, Digest, Guard, GuardStore, Log, Login, OptOut, Relay,
    Retention, Reuse, Schedule, Source, Suppression, Tick, Timeouts,
};
use super::table::KEYS;
use super::text::{Mailbox, Setting};
use super::url::{DatabaseUrl, browsable};
use super::words::GuardBackend;
use crate::domain::retry::MAX_AGE;
use crate::domain::schedule::WeeklySchedule;

/// Fewer characters can be guessed.
const MIN_TOKEN_CHARS: usize = 16;
/// 32 characters of base64 or hex hold 128 bits and more.
const MIN_KEY_CHARS: usize = 32;

/// Builds the configuration. It may be used only if no problem was added.
pub fn build(raw: &Raw, problems: &mut Vec<Problem>) -> Option<Config> {
    let sections = parts::sections(raw, problems);
    let headers = parts::headers(&raw.headers, problems);
    let mut reader = Reader::new(&raw.values, KEYS, "", problems, !raw.incomplete);
    let r = &mut reader;
    let listen: SocketAddr = r.get("http.listen");
    let relay = relay(r)?;
    let public_url = public_url(r, &relay, listen);
    let config = Config {
        database: database(r),
        public_url,
        relay,
        schedule: schedule(r),
        digest: Digest {
            period: r.get("digest.period"),
            empty: r.get("digest.empty"),
            locale: r.get("digest.locale"),
        },
        tick: tick(r),
        claim: ClaimSettings {
            lease: r.get("claim.lease"),
            batch: r.get("claim.batch"),
            max_attempts: r.get("claim.max_attempts"),
        },
        delivery: delivery(r),
        guard: guard(r),
        suppression: suppression(r),
        source: source(r, !raw.sections.is_empty()),
        sections,
        templates_dir: r.optional("templates.dir"),
        brand: brand(r),
        headers,
        listen,
        unsubscribe_keys: unsubscribe_keys(r),
        opt_out: opt_out(r),
        admin_token: token(r, "admin.token"),
        retention: retention(r),
        shutdown_grace: r.get("shutdown.grace"),
        log: Log { format: r.get("log.format"), filter: r.get("log.filter") },
    };
    times(r, &config);
    Some(config)
}

fn database(r: &mut Reader<'_>) -> Database {
    Database {
        url: r.get("database.url"),
        schema: r.get("database.schema"),
        pool: r.get("database.pool"),
        migrate: r.get("database.migrate"),
        start_timeout: r.get("database.start_timeout"),
        pgbouncer: r.get("database.pgbouncer"),
    }
}

/// `None` never happens with the table as it is: its example of a sender parses.
fn relay(r: &mut Reader<'_>) -> Option<Relay> {
    let url: RelayUrl = r.get("relay.url");
    check_transport(r, &url);
    let (username, password) = (r.optional("relay.username"), r.optional::<SecretString>("relay.password"));
    r.together("relay.username", "relay.password");
    let (cert, private) =
        (r.optional::<PathBuf>("relay.client_cert_file"), r.optional("relay.client_key_file"));
    r.together("relay.client_cert_file", "relay.client_key_file");
    if matches!(url, RelayUrl::Smtp(_)) {
        r.missing("relay.from", "an SMTP relay needs a sender");
    }
    let sample = r.key("relay.from");
    let from: Mailbox =
        r.optional("relay.from").or_else(|| Mailbox::parse(sample.example, sample.kind).ok())?;
    let relay = Relay {
        login: username.zip(password).map(|(username, password)| Login { username, password }),
        envelope_from: r.optional("relay.envelope_from").unwrap_or_else(|| from.address.clone()),
        from,
        provider: r.get("relay.provider"),
        connections: r.get("relay.connections"),
        connections_total: r.optional("relay.connections_total"),
        pace: r.optional("relay.pace"),
        daily_quota: r.optional("relay.daily_quota"),
        probe_interval: r.get("relay.probe_interval"),
        helo: r.optional("relay.helo"),
        tls_ca_file: r.optional("relay.tls_ca_file"),
        client_cert: cert.zip(private),
        timeouts: timeouts(r),
        reuse: Reuse {
            messages: r.get("relay.reuse.messages"),
            age: r.get("relay.reuse.age"),
            idle: r.get("relay.reuse.idle"),
        },
        url,
    };
    r.rule(
        relay.connections_total.is_none_or(|total| total >= relay.connections),
        &["relay.connections_total", "relay.connections"],
        "fewer connections for all replicas together than for each of them",
        "raise relay.connections_total, or lower relay.connections",
    );
    Some(relay)
}

fn timeouts(r: &mut Reader<'_>) -> Timeouts {
    Timeouts {
        connect: r.get("relay.timeouts.connect"),
        tls: r.get("relay.timeouts.tls"),
        greeting: r.get("relay.timeouts.greeting"),
        login: r.get("relay.timeouts.login"),
        envelope: r.get("relay.timeouts.envelope"),
        body: r.get("relay.timeouts.body"),
        reply: r.get("relay.timeouts.reply"),
    }
}

fn check_transport(r: &mut Reader<'_>, url: &RelayUrl) {
    let allowed: bool = r.get("relay.allow_plaintext");
    let RelayUrl::Smtp(smtp) = url else { return };
    r.rule(
        smtp.security != Security::Plaintext || allowed || smtp.is_loopback(),
        &["relay.url", "relay.allow_plaintext"],
        "smtp+plaintext:// to a host that is not loopback: mails and password would be readable on the way",
        "use smtps:// or smtp://…?tls=starttls, or set relay.allow_plaintext = true",
    );
}

fn public_url(r: &mut Reader<'_>, relay: &Relay, listen: SocketAddr) -> String {
    let url = r.optional("public_url");
    if matches!(relay.url, RelayUrl::Smtp(_)) {
        r.missing("public_url", "mails that leave the machine need links that recipients can reach");
    }
    url.unwrap_or_else(|| browsable(listen))
}

/// A default gives way where a longer interval is written.
fn tick(r: &mut Reader<'_>) -> Tick {
    let (interval, resweep) = (r.get::<Duration>("tick.interval"), r.get::<TimeDelta>("tick.resweep"));
    let least = TimeDelta::from_std(interval).unwrap_or(resweep);
    Tick { interval, resweep: if r.is_set("tick.resweep") { resweep } else { resweep.max(least) } }
}

fn schedule(r: &mut Reader<'_>) -> Schedule {
    let (catch_up, late_alarm) =
        (r.get::<TimeDelta>("schedule.catch_up"), r.get::<TimeDelta>("schedule.late_alarm"));
    // A default gives way where a shorter window is written.
    let late_alarm = if r.is_set("schedule.late_alarm") { late_alarm } else { late_alarm.min(catch_up / 2) };
    Schedule {
        default: WeeklySchedule {
            weekday: r.get("schedule.weekday"),
            time: r.get("schedule.time"),
            zone: r.get("schedule.timezone"),
        },
        catch_up,
        first_start: r.get("schedule.first_start"),
        late_alarm,
    }
}

fn delivery(r: &mut Reader<'_>) -> Delivery {
    Delivery {
        lease: r.get("delivery.lease"),
        poll: r.get("delivery.poll"),
        max_age: r.get("delivery.max_age"),
        max_attempts: r.get("delivery.max_attempts"),
        retry: r.get("delivery.retry"),
        on_uncertain: r.get("delivery.on_uncertain"),
        redirect_to: r.optional("delivery.redirect_to"),
    }
}

fn guard(r: &mut Reader<'_>) -> Option<Guard> {
    let backend: GuardBackend = r.get("guard.backend");
    let (url, prefix) = (r.optional::<SecretString>("guard.url"), r.get("guard.prefix"));
    let (ttl, on_unavailable, timeout) =
        (r.get("guard.ttl"), r.get("guard.on_unavailable"), r.get("guard.timeout"));
    if backend == GuardBackend::Redis {
        r.missing("guard.url", "guard.backend = \"redis\" needs it");
        let hint = "build with --features redis, or use guard.backend = \"sql\"";
        r.rule(cfg!(feature = "redis"), &["guard.backend"], "this build has no Redis support", hint);
    } else {
        let hint = "set guard.backend = \"redis\", or remove guard.url";
        r.rule(url.is_none(), &["guard.url", "guard.backend"], "used by the redis backend only", hint);
    }
    let store = match backend {
        GuardBackend::Off => return None,
        GuardBackend::Sql => GuardStore::Sql,
        GuardBackend::Redis => GuardStore::Redis { url: url?, prefix },
    };
    Some(Guard { store, ttl, on_unavailable, timeout })
}

fn suppression(r: &mut Reader<'_>) -> Suppression {
    Suppression {
        hard_after: r.get("suppression.hard_after"),
        soft_after: r.get("suppression.soft_after"),
        soft_decay: r.get("suppression.soft_decay"),
        token: token(r, "suppression.token"),
    }
}

fn source(r: &mut Reader<'_>, has_sections: bool) -> Option<Source> {
    let (url, recipients) = (r.optional("source.url"), r.optional("source.recipients"));
    let (pool, statement_timeout) = (r.get("source.pool"), r.get("source.statement_timeout"));
    r.together("source.url", "source.recipients");
    if has_sections {
        r.missing("source.url", "[[section]] queries run against it");
    } else {
        let hint = "write at least one [[section]], or remove [source]";
        r.rule(
            !r.is_set("source.url"),
            &["source.url"],
            "a source without any [[section]]: digests would be empty",
            hint,
        );
    }
    Some(Source { url: url?, recipients: recipients?, pool, statement_timeout })
}

fn brand(r: &mut Reader<'_>) -> Brand {
    Brand {
        product: r.get("brand.product"),
        accent: r.get("brand.accent"),
        logo_url: r.optional("brand.logo_url"),
        address: r.optional("brand.address"),
        reply_to: r.optional("brand.reply_to"),
    }
}

fn opt_out(r: &mut Reader<'_>) -> OptOut {
    let (url, sql) = (r.optional::<DatabaseUrl>("opt_out.url"), r.optional("opt_out.sql"));
    r.together("opt_out.url", "opt_out.sql");
    OptOut { write_back: url.zip(sql), page_url: r.optional("opt_out.page_url") }
}

fn unsubscribe_keys(r: &mut Reader<'_>) -> Vec<SecretString> {
    let Some(text) = r.optional::<SecretString>("unsubscribe.keys") else { return Vec::new() };
    let lines = || text.expose_secret().lines().map(str::trim).filter(|line| !line.is_empty());
    r.rule(
        lines().all(|line| line.chars().count() >= MIN_KEY_CHARS),
        &["unsubscribe.keys"],
        &format!("a key is shorter than {MIN_KEY_CHARS} characters"),
        "make one with: openssl rand -base64 32",
    );
    lines().map(SecretString::from).collect()
}

fn token(r: &mut Reader<'_>, path: &str) -> Option<SecretString> {
    let token = r.optional::<SecretString>(path)?;
    r.rule(
        token.expose_secret().chars().count() >= MIN_TOKEN_CHARS,
        &[path],
        &format!("shorter than {MIN_TOKEN_CHARS} characters"),
        "make one with: openssl rand -base64 24",
    );
    Some(token)
}

fn retention(r: &mut Reader<'_>) -> Retention {
    Retention {
        bodies: r.get("retention.bodies"),
        attempts: r.get("retention.attempts"),
        sends: r.get("retention.sends"),
        replicas: r.get("retention.replicas"),
    }
}

/// The combinations of times that cannot work.
fn times(r: &mut Reader<'_>, config: &Config) {
    let until_body = config.relay.timeouts.until_body();
    r.rule(
        config.delivery.lease.to_std().is_ok_and(|lease| lease > until_body)
            || matches!(config.relay.url, RelayUrl::Directory(_)),
        &["delivery.lease", "relay.timeouts.connect", "relay.timeouts.tls", "relay.timeouts.greeting", "relay.timeouts.login", "relay.timeouts.envelope"],
        &format!("the lease can end before the hand-over begins: connect, tls, greeting, login and envelope may take {} s together", until_body.as_secs_f64()),
        "raise delivery.lease above that, or lower the timeouts",
    );
    let kill_after: Duration = r.get("shutdown.kill_after");
    r.rule(
        config.shutdown_grace < kill_after,
        &["shutdown.grace", "shutdown.kill_after"],
        "the grace is not shorter than shutdown.kill_after: the process would be killed while it drains",
        "lower shutdown.grace, or raise shutdown.kill_after and the orchestrator's own setting with it",
    );
    let remembered = config.schedule.catch_up + config.delivery.max_age + TimeDelta::days(7);
    r.rule(
        config.guard.as_ref().is_none_or(|guard| guard.ttl >= remembered),
        &["guard.ttl", "schedule.catch_up", "delivery.max_age"],
        "shorter than schedule.catch_up, delivery.max_age and 7 days together: a late copy would not be recognised",
        &format!("set it to {} h or more", remembered.num_hours()),
    );
    // A message may be put back by hand that long. Unless its refusals are still known then, the guard takes
    // a fingerprint that could not be given back for a copy that was sent.
    r.rule(
        config.guard.is_none() || config.retention.attempts >= MAX_AGE,
        &["retention.attempts", "guard.backend"],
        "shorter than the 6 days in which `digestd queue retry` puts a message back: the guard would not know any more that the relay had refused it",
        &format!("set it to {} h or more", MAX_AGE.num_hours()),
    );
    r.rule(
        TimeDelta::from_std(config.tick.interval).is_ok_and(|interval| interval <= config.tick.resweep),
        &["tick.resweep", "tick.interval"],
        "the re-sweep is more frequent than the tick that does it",
        "raise tick.resweep, or lower tick.interval",
    );
    r.rule(
        TimeDelta::from_std(config.tick.interval).is_ok_and(|interval| interval < config.schedule.catch_up),
        &["tick.interval", "schedule.catch_up"],
        "not shorter than schedule.catch_up: a slot could pass between two looks",
        "lower tick.interval",
    );
    r.rule(
        config.schedule.late_alarm < config.schedule.catch_up,
        &["schedule.late_alarm", "schedule.catch_up"],
        "the alarm would come when it is too late: not shorter than schedule.catch_up",
        "lower schedule.late_alarm",
    );
}
