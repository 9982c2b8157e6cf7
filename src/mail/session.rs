//! One connection to a relay, phase by phase, so that for every failure it is known how far the
//! message had come.

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use lettre::transport::smtp::client::AsyncSmtpConnection;
use lettre::transport::smtp::extension::ClientId;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::{Instant, timeout};

use super::hello;
use super::lenient::RawReply;
use super::offers::{AuthMechanism, Offers, refused_by_us};
use super::stream::{Control, SmtpStream};
use super::transport::SmtpRelay;
use super::wire;
use crate::domain::address::Address;
use crate::domain::reply::{HandOver, Phase, RelayFailure, RelayFailureKind};

/// How long a relay that broke off a body gets to say why.
pub(super) const LATE_REPLY: Duration = Duration::from_secs(1);

/// An open, authenticated connection.
pub struct Session {
    smtp: AsyncSmtpConnection,
    control: Control,
    relay: SmtpRelay,
    /// By this the relay's open sessions are counted.
    _open: Arc<()>,
    offers: Offers,
    opened: Instant,
    last_used: Instant,
    /// Messages whose body was answered or whose envelope was refused.
    used: u32,
    /// Whether question and answer are in step. False while a step runs, so that a step that was
    /// dropped half-way leaves it false.
    in_step: bool,
    /// Whether a refused envelope left a transaction open.
    needs_reset: bool,
    /// Whether the relay waits for a body.
    in_data: bool,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("offers", &self.offers)
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
}

/// No usable answer to a command.
struct Silence(String);

impl Session {
    /// Connects, up to and with AUTH.
    pub(super) async fn open(relay: &SmtpRelay) -> Result<Self, RelayFailure> {
        let settings = relay.settings();
        let io = hello::connect(settings, relay.tls()).await?;
        let (stream, control) =
            SmtpStream::new(io).map_err(|error| RelayFailure::io(Phase::Greeting, &error))?;
        let limit = settings.timeouts.hello;
        control.begin(limit, limit);
        control.end_after_refusal(true);
        let name = ClientId::Domain(settings.helo.clone());
        let connected = AsyncSmtpConnection::connect_with_transport(Box::new(stream), &name).await;
        control.end_after_refusal(false);
        let (smtp, reply) = match (connected, control.take_reply()) {
            (_, Some(reply)) if !reply.is_ok() => return Err(RelayFailure::refused(Phase::Ehlo, &reply)),
            (Ok(smtp), Some(reply)) => (smtp, reply),
            (Err(error), _) => {
                return Err(RelayFailure::new(Phase::Ehlo, RelayFailureKind::Unreachable, what(&error)));
            }
            (Ok(_), None) => {
                let error = "the relay did not answer EHLO".to_owned();
                return Err(RelayFailure::new(Phase::Ehlo, RelayFailureKind::Unreachable, error));
            }
        };
        let now = Instant::now();
        let mut session = Self {
            smtp,
            control,
            relay: relay.clone(),
            _open: relay.count_session(),
            offers: Offers::read(&reply),
            opened: now,
            last_used: now,
            used: 0,
            in_step: true,
            needs_reset: false,
            in_data: false,
        };
        if let Some((user, password)) = &settings.credentials {
            session.authenticate(user, password).await?;
        }
        Ok(session)
    }

    async fn authenticate(&mut self, user: &str, password: &SecretString) -> Result<(), RelayFailure> {
        let limit = self.relay.settings().timeouts.hello;
        let code = |text: &str| BASE64.encode(text);
        let steps = match self.offers.auth {
            Some(AuthMechanism::Plain) => {
                vec![format!("AUTH PLAIN {}", code(&format!("\0{user}\0{}", password.expose_secret())))]
            }
            Some(AuthMechanism::Login) => {
                vec!["AUTH LOGIN".to_owned(), code(user), code(password.expose_secret())]
            }
            None => {
                let error = "the relay offers neither AUTH PLAIN nor AUTH LOGIN".to_owned();
                return Err(RelayFailure::new(Phase::Auth, RelayFailureKind::Auth(None), error));
            }
        };
        let last = steps.len() - 1;
        for (i, step) in steps.iter().enumerate() {
            let reply = self.ask(&format!("{step}\r\n"), limit).await.map_err(|Silence(error)| {
                RelayFailure::new(Phase::Auth, RelayFailureKind::Unreachable, error)
            })?;
            let expected = if i == last { 235 } else { 334 };
            if reply.code == expected || (i == last && reply.is_ok()) {
                continue;
            }
            if (400..500).contains(&reply.code) {
                return Err(RelayFailure::refused(Phase::Auth, &reply));
            }
            let error = format!("the relay answered {} to AUTH", reply.code);
            return Err(RelayFailure::new(
                Phase::Auth,
                RelayFailureKind::Auth(Some(reply.to_reply())),
                error,
            ));
        }
        Ok(())
    }

    /// See [`super::transport::Connection::envelope`].
    pub(super) async fn envelope(
        &mut self,
        from: &Address,
        to: &Address,
        size: usize,
    ) -> Result<(), HandOver> {
        self.offers.check(from, to, size)?;
        let reused = self.used > 0;
        let in_step = std::mem::replace(&mut self.in_step, false);
        if !in_step || self.in_data {
            return Err(broken(Phase::Mail, reused, "the connection cannot be used any more"));
        }
        self.used += 1;
        let mail = self.offers.mail_command(from, size, to.needs_smtputf8());
        let rcpt = format!("RCPT TO:<{}>\r\n", to.mailbox());
        let commands = [(Phase::Mail, mail), (Phase::Rcpt, rcpt), (Phase::Data, "DATA\r\n".to_owned())];
        let result = if self.offers.pipelining {
            self.pipelined(&commands, reused).await
        } else {
            self.one_by_one(&commands, reused).await
        };
        self.last_used = Instant::now();
        self.in_data = result.is_ok();
        self.needs_reset = matches!(result, Err(HandOver::Refused { .. }));
        result
    }

    async fn one_by_one(&mut self, commands: &[(Phase, String)], reused: bool) -> Result<(), HandOver> {
        let limit = self.relay.settings().timeouts.command;
        if self.needs_reset {
            let reset = self.ask("RSET\r\n", limit).await;
            check_reset(reset)?;
        }
        for (phase, command) in commands {
            let reply = self.ask(command, limit).await;
            judge(*phase, reply, reused).inspect_err(|hand_over| self.in_step = keeps_step(hand_over))?;
        }
        self.in_step = true;
        Ok(())
    }

    /// All commands in one write, then all replies in order. The first refusal is the outcome; the
    /// replies after it are read, so that the connection stays in step.
    async fn pipelined(&mut self, commands: &[(Phase, String)], reused: bool) -> Result<(), HandOver> {
        let limit = self.relay.settings().timeouts.command;
        let mut text = if self.needs_reset { "RSET\r\n".to_owned() } else { String::new() };
        text.extend(commands.iter().map(|(_, command)| command.as_str()));
        let mut next = self.ask(&text, limit).await;
        if self.needs_reset {
            check_reset(next)?;
            next = self.listen(limit).await;
        }
        let mut outcome = Ok(());
        let mut codes = [0; 3];
        for (i, (phase, _)) in commands.iter().enumerate() {
            if i > 0 {
                next = self.listen(limit).await;
            }
            codes[i] = next.as_ref().map_or(0, |reply| reply.code);
            let in_step = match judge(*phase, next, reused) {
                Ok(()) => true,
                Err(hand_over) => {
                    let in_step = keeps_step(&hand_over);
                    outcome = outcome.and(Err(hand_over));
                    in_step
                }
            };
            if !in_step {
                return outcome;
            }
            next = Err(Silence(String::new()));
        }
        self.in_step = match (&outcome, codes) {
            (Err(_), [_, rcpt, 354]) if rcpt >= 400 => self.end_without_recipient(limit).await,
            // The sender was refused, and yet the relay wants a body for a recipient that it took.
            (Err(_), [.., 354]) => false,
            _ => true,
        };
        outcome
    }

    /// After a 354 without a valid recipient: ends the data at once (RFC 2920 §3.1).
    async fn end_without_recipient(&mut self, limit: Duration) -> bool {
        self.ask(".\r\n", limit).await.is_ok_and(|reply| reply.is_refusal() && reply.code != 421)
    }

    /// See [`super::transport::Connection::body`].
    pub(super) async fn body(&mut self, bytes: &[u8]) -> HandOver {
        self.in_step = false;
        if !std::mem::take(&mut self.in_data) {
            return broken(Phase::Body, false, "no envelope was accepted before the body");
        }
        // Checked when it was stored, too; what another reading of line ends could smuggle must
        // not leave whatever happened to the row.
        if let Err(fault) = wire::check(bytes, true) {
            let text = format!("the stored message cannot be sent: {fault}");
            return refused_by_us(Phase::Body, 554, (5, 6, 0), &text);
        }
        let timeouts = self.relay.settings().timeouts;
        self.control.begin(timeouts.body, timeouts.dot);
        // lettre ends the message with CRLF, dot, CRLF, whatever it ends with itself.
        let content = bytes.strip_suffix(b"\r\n").unwrap_or(bytes);
        let sent = self.smtp.message_iter(std::iter::once(content)).await;
        let left = self.control.has_left();
        let error = sent.as_ref().err().map(what).unwrap_or_default();
        let mut reply = self.control.take_reply();
        if reply.is_none() && !left {
            reply = self.listen(LATE_REPLY).await.ok();
        }
        self.last_used = Instant::now();
        let coded = sent.as_ref().map_or_else(|error| error.status().is_some(), |_| true);
        match reply {
            Some(reply) if left && reply.is_ok() => {
                self.in_step = coded;
                HandOver::Accepted(reply.to_reply())
            }
            Some(reply) if reply.is_refusal() => {
                self.in_step = left && coded && reply.code != 421;
                let phase = if left { Phase::Dot } else { Phase::Body };
                HandOver::Refused { phase, reply: reply.to_reply() }
            }
            Some(reply) if left => {
                HandOver::Unknown { error: format!("the relay answered {} to the message", reply.code) }
            }
            Some(reply) => {
                broken(Phase::Body, false, &format!("the relay answered {} too early", reply.code))
            }
            None if left => HandOver::Unknown { error },
            None => broken(Phase::Body, false, &error),
        }
    }

    /// See [`super::transport::Connection::reusable`].
    pub(super) fn reusable(&self) -> bool {
        let settings = self.relay.settings();
        self.in_step
            && !self.in_data
            && !self.control.has_unasked()
            && self.used < settings.max_messages_per_connection
            && self.opened.elapsed() < settings.max_connection_age
            && self.last_used.elapsed() < settings.max_idle
    }

    /// See [`super::transport::Connection::quit`]. While the relay waits for a body, QUIT would be
    /// its first line: then the socket is closed without a word.
    pub(super) async fn quit(mut self) {
        if self.in_step && !self.in_data {
            let limit = self.relay.settings().timeouts.quit;
            self.control.begin(limit, limit);
            // Whatever comes of it, the messages before have their outcome.
            let _ = timeout(limit, self.smtp.command("QUIT\r\n")).await;
        }
    }

    /// Sends commands and reads the first reply.
    async fn ask(&mut self, commands: &str, limit: Duration) -> Result<RawReply, Silence> {
        if self.control.has_unasked() {
            return Err(Silence("the relay said more than it was asked".to_owned()));
        }
        self.control.begin(limit, limit);
        let result = self.smtp.command(commands).await;
        self.heard(result.err())
    }

    /// Reads the next reply.
    async fn listen(&mut self, limit: Duration) -> Result<RawReply, Silence> {
        self.control.begin(limit, limit);
        let result = self.smtp.read_response().await;
        self.heard(result.err())
    }

    /// The true reply, if lettre came to the end of one.
    fn heard(&self, error: Option<lettre::transport::smtp::Error>) -> Result<RawReply, Silence> {
        match error {
            Some(error) if error.status().is_none() => Err(Silence(what(&error))),
            _ => self.control.take_reply().ok_or_else(|| Silence("no answer".to_owned())),
        }
    }
}

/// Whether an answer lets the envelope go on.
fn judge(phase: Phase, reply: Result<RawReply, Silence>, reused: bool) -> Result<(), HandOver> {
    let stale = reused && phase == Phase::Mail;
    match reply {
        Err(Silence(error)) => Err(broken(phase, stale, &error)),
        // The relay had said goodbye to a connection that lay idle; nothing was refused.
        Ok(reply) if reply.code == 421 && stale => Err(broken(phase, true, "the relay answered 421")),
        Ok(reply) if reply.is_refusal() => Err(HandOver::Refused { phase, reply: reply.to_reply() }),
        Ok(reply) if phase == Phase::Data && reply.code == 354 => Ok(()),
        Ok(reply) if phase != Phase::Data && reply.is_ok() => Ok(()),
        Ok(reply) => Err(broken(phase, false, &format!("the relay answered {} out of step", reply.code))),
    }
}

/// Whether the connection can be used after this end of an envelope.
fn keeps_step(hand_over: &HandOver) -> bool {
    matches!(hand_over, HandOver::Refused { reply, .. } if reply.code != 421)
}

fn check_reset(reply: Result<RawReply, Silence>) -> Result<(), HandOver> {
    match reply {
        Ok(reply) if reply.is_ok() => Ok(()),
        Ok(reply) => Err(broken(Phase::Mail, true, &format!("the relay answered {} to RSET", reply.code))),
        Err(Silence(error)) => Err(broken(Phase::Mail, true, &error)),
    }
}

fn broken(phase: Phase, stale: bool, error: &str) -> HandOver {
    HandOver::Broken { phase, stale, error: error.to_owned() }
}

/// What lettre's error is about: its innermost cause, which is the stream's.
fn what(error: &lettre::transport::smtp::Error) -> String {
    let mut cause = error.source();
    while let Some(inner) = cause.and_then(std::error::Error::source) {
        cause = Some(inner);
    }
    match cause {
        Some(cause) if cause.to_string() == "incomplete response" => "the relay closed the connection".into(),
        Some(cause) => cause.to_string(),
        None => error.to_string(),
    }
}
