//! One SMTP connection, RFC 5321 as far as an inbox needs it.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{Mail, Shared};

/// The longest command line in bytes: four times what RFC 5321 §4.5.3.1.4 asks for, for SMTPUTF8 paths.
const MAX_COMMAND: usize = 2048;

/// The largest mail in bytes, announced by SIZE. A digest stays far below.
const MAX_MESSAGE: usize = 10 * 1024 * 1024;

/// RFC 5321 §4.5.3.1.8 asks for at least 100.
const MAX_RECIPIENTS: usize = 100;

/// Silence after which a connection is given up (RFC 5321 §4.5.3.2.7).
const IDLE: Duration = Duration::from_mins(5);

/// Speaks with one client until it says QUIT, breaks off, or the inbox stops.
pub(super) async fn serve(stream: TcpStream, shared: &Shared, stop: &CancellationToken) -> io::Result<()> {
    // Small replies must not wait for each other.
    stream.set_nodelay(true)?;
    let (reader, writer) = stream.into_split();
    let mut session = Session {
        reader: BufReader::new(reader),
        writer,
        replies: b"220 inbox ESMTP digestd\r\n".to_vec(),
        shared,
        transaction: Transaction::default(),
    };
    loop {
        session.flush().await?;
        let line = tokio::select! {
            () = stop.cancelled() => Err(io::Error::other("the inbox stops")),
            line = timeout(IDLE, read_line(&mut session.reader, MAX_COMMAND)) => line.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
        };
        let line = match line {
            Ok(Line::Whole(line)) => line,
            Ok(Line::TooLong) => return session.close("500 5.5.6 line too long").await,
            Ok(Line::End) => return Ok(()),
            Err(_) => return session.close("421 4.3.2 closing").await,
        };
        if session.obey(&line).await? == Next::Close {
            return session.close("221 2.0.0 bye").await;
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Next {
    Command,
    Close,
}

/// What MAIL and RCPT said so far.
#[derive(Debug, Default)]
struct Transaction {
    begun: bool,
    to: Vec<String>,
}

struct Session<'a> {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    /// Replies to pipelined commands, written together.
    replies: Vec<u8>,
    shared: &'a Shared,
    transaction: Transaction,
}

impl Session<'_> {
    async fn obey(&mut self, line: &[u8]) -> io::Result<Next> {
        let line = String::from_utf8_lossy(line);
        let line = line.trim_end();
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match verb.to_ascii_uppercase().as_str() {
            "EHLO" => {
                self.transaction = Transaction::default();
                self.reply("250-inbox");
                self.reply("250-PIPELINING");
                self.reply(&format!("250-SIZE {MAX_MESSAGE}"));
                self.reply("250-8BITMIME");
                self.reply("250-ENHANCEDSTATUSCODES");
                self.reply("250 SMTPUTF8");
            }
            "HELO" => {
                self.transaction = Transaction::default();
                self.reply("250 inbox");
            }
            "MAIL" => {
                let answer = self.mail(rest);
                self.reply(answer);
            }
            "RCPT" => {
                let answer = self.rcpt(rest);
                self.reply(answer);
            }
            "DATA" => self.data().await?,
            "RSET" => {
                self.transaction = Transaction::default();
                self.reply("250 2.0.0 reset");
            }
            "NOOP" => self.reply("250 2.0.0 yes"),
            "VRFY" => self.reply("252 2.5.0 send it and see"),
            "QUIT" => return Ok(Next::Close),
            _ => self.reply("500 5.5.1 no such command"),
        }
        Ok(Next::Command)
    }

    fn mail(&mut self, rest: &str) -> &'static str {
        if self.transaction.begun {
            return "503 5.5.1 one sender a mail";
        }
        let Some((_, parameters)) = path(rest, "FROM:") else { return "501 5.5.4 MAIL FROM:<address>" };
        for parameter in parameters.split_ascii_whitespace() {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match (name.to_ascii_uppercase().as_str(), value) {
                ("SIZE", size) if size.parse().is_ok_and(|size: usize| size <= MAX_MESSAGE) => {}
                ("SIZE", _) => return "552 5.3.4 too large",
                ("BODY" | "SMTPUTF8", _) => {}
                _ => return "555 5.5.4 parameter not known",
            }
        }
        self.transaction.begun = true;
        "250 2.1.0 sender ok"
    }

    fn rcpt(&mut self, rest: &str) -> &'static str {
        if !self.transaction.begun {
            return "503 5.5.1 MAIL first";
        }
        if self.transaction.to.len() == MAX_RECIPIENTS {
            return "452 4.5.3 too many recipients";
        }
        match path(rest, "TO:") {
            Some((address, _)) if address.contains('@') => {
                self.transaction.to.push(address.to_owned());
                "250 2.1.5 recipient ok"
            }
            _ => "501 5.1.3 RCPT TO:<address>",
        }
    }

    async fn data(&mut self) -> io::Result<()> {
        if self.transaction.to.is_empty() {
            self.reply("503 5.5.1 MAIL and RCPT first");
            return Ok(());
        }
        self.reply("354 go on, end with a dot");
        self.write_out().await?;
        let bytes = timeout(IDLE, read_message(&mut self.reader)).await??;
        let to = std::mem::take(&mut self.transaction).to;
        let Some(bytes) = bytes else {
            self.reply("552 5.3.4 too large");
            return Ok(());
        };
        match self.shared.keep(Mail { to, bytes }).await {
            Ok(number) => self.reply(&format!("250 2.0.0 kept as {number}")),
            Err(error) => {
                tracing::warn!(error = %error, "the inbox could not keep a mail");
                self.reply("451 4.3.0 could not be kept");
            }
        }
        Ok(())
    }

    fn reply(&mut self, text: &str) {
        self.replies.extend_from_slice(text.as_bytes());
        self.replies.extend_from_slice(b"\r\n");
    }

    /// Writes the replies, unless the client's next whole command is here already.
    async fn flush(&mut self) -> io::Result<()> {
        if self.reader.buffer().contains(&b'\n') { Ok(()) } else { self.write_out().await }
    }

    async fn write_out(&mut self) -> io::Result<()> {
        // A client that reads nothing must not hold its place for ever.
        timeout(IDLE, self.writer.write_all(&self.replies)).await??;
        self.replies.clear();
        Ok(())
    }

    async fn close(mut self, text: &str) -> io::Result<()> {
        self.reply(text);
        self.write_out().await?;
        self.writer.shutdown().await
    }
}

/// `FROM:<a@b> SIZE=1` with `FROM:` gives `a@b` and ` SIZE=1`.
fn path<'a>(text: &'a str, keyword: &str) -> Option<(&'a str, &'a str)> {
    let start = text.get(..keyword.len())?;
    if !start.eq_ignore_ascii_case(keyword) {
        return None;
    }
    let rest = text[keyword.len()..].trim_start().strip_prefix('<')?;
    // The last one: a quoted local part may hold the sign itself.
    let end = rest.split_once("> ").map_or(rest.len().checked_sub(1), |(address, _)| Some(address.len()))?;
    let parameters = rest.get(end..)?.strip_prefix('>')?;
    Some((&rest[..end], parameters))
}

#[derive(Debug, PartialEq, Eq)]
enum Line {
    /// With its end, if it has one within the limit.
    Whole(Vec<u8>),
    TooLong,
    End,
}

async fn read_line(reader: &mut (impl AsyncBufRead + Unpin), most: usize) -> io::Result<Line> {
    let mut line = Vec::new();
    loop {
        let seen = reader.fill_buf().await?;
        if seen.is_empty() {
            // A command without its end was cut off and must not be obeyed.
            return Ok(Line::End);
        }
        let end = seen.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(seen.len(), |at| at + 1);
        if line.len() + taken > most {
            return Ok(Line::TooLong);
        }
        line.extend_from_slice(&seen[..taken]);
        reader.consume(taken);
        if end.is_some() {
            return Ok(Line::Whole(line));
        }
    }
}

/// Reads to the dot alone between two CRLFs; no other form ends a mail, so that nobody can smuggle a second
/// one in. `None`: it was too large, and was read to its end all the same.
async fn read_message(reader: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Vec<u8>>> {
    let mut message = Vec::new();
    let mut fits = true;
    let mut after_crlf = true;
    loop {
        let mut line = Vec::new();
        let mut limited = tokio::io::AsyncReadExt::take(&mut *reader, MAX_MESSAGE as u64);
        if limited.read_until(b'\n', &mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if after_crlf && line == b".\r\n" {
            return Ok(fits.then_some(message));
        }
        // Only a line's first dot was doubled (RFC 5321 §4.5.2).
        let text = if after_crlf && line.starts_with(b".") { &line[1..] } else { &line[..] };
        after_crlf = line.ends_with(b"\r\n");
        fits = fits && message.len() + text.len() <= MAX_MESSAGE;
        if fits {
            message.extend_from_slice(text);
        } else {
            message.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, MAX_MESSAGE, path, read_line, read_message};

    #[test]
    fn a_path_stands_between_angle_brackets() {
        assert_eq!(path("FROM:<a@b.c>", "FROM:"), Some(("a@b.c", "")));
        assert_eq!(path("from: <a@b.c> SIZE=3", "FROM:"), Some(("a@b.c", " SIZE=3")));
        assert_eq!(path("FROM:<>", "FROM:"), Some(("", "")));
        assert_eq!(path("TO:<\"a>b\"@c.d>", "TO:"), Some(("\"a>b\"@c.d", "")));
        for wrong in ["", "FROM", "FROM:a@b.c", "FROM:<a@b.c", "TO:<a@b.c>", "FROM:<"] {
            assert_eq!(path(wrong, "FROM:"), None, "{wrong}");
        }
    }

    #[tokio::test]
    async fn lines_are_bounded_and_a_cut_off_command_is_none() {
        let mut reader = &b"NOOP\r\nQUIT"[..];
        assert_eq!(read_line(&mut reader, 10).await.unwrap(), Line::Whole(b"NOOP\r\n".to_vec()));
        assert_eq!(read_line(&mut reader, 10).await.unwrap(), Line::End);
        assert_eq!(read_line(&mut &b"NOOP NOOP NOOP\r\n"[..], 10).await.unwrap(), Line::TooLong);
    }

    #[tokio::test]
    async fn only_a_dot_between_two_line_ends_ends_a_mail() {
        for (sent, kept) in [
            ("a\r\n.\r\n", "a\r\n"),
            (".\r\n", ""),
            ("..a\r\n...\r\n.\r\n", ".a\r\n..\r\n"),
            ("a\n.\r\nb\r\n.\nc\r\n.\r\n", "a\n.\r\nb\r\n\nc\r\n"),
        ] {
            let message = read_message(&mut sent.as_bytes()).await.unwrap();
            assert_eq!(message.as_deref(), Some(kept.as_bytes()), "{sent:?}");
        }
        assert!(read_message(&mut &b"a\r\n"[..]).await.is_err());
    }

    #[tokio::test]
    async fn a_mail_that_is_too_large_is_read_to_its_end_and_refused() {
        let mut sent = vec![b'x'; MAX_MESSAGE + 1];
        sent.extend_from_slice(b"\r\n.\r\nNOOP\r\n");
        let mut reader = &sent[..];
        assert_eq!(read_message(&mut reader).await.unwrap(), None);
        assert_eq!(reader, b"NOOP\r\n");
    }
}
