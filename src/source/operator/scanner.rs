//! From characters to lexemes: what is a literal, a comment, a parameter.

use std::iter;

use super::param::{Named, named};
use super::scan::{Dialect, ScanError};

/// A part of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece<P> {
    Text(String),
    Param(P),
}

/// What the next characters are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lexeme {
    /// White space or a comment.
    Blank,
    Semicolon,
    Param,
    Other,
}

/// Reads a query from its beginning to its end.
pub(super) struct Scanner<'a, P> {
    sql: &'a str,
    dialect: Dialect,
    /// The byte to read next; always a character's first.
    at: usize,
    /// Where the text that is not yet in `pieces` begins.
    from: usize,
    pieces: Vec<Piece<P>>,
    /// The open parentheses and brackets.
    open: Vec<char>,
    /// Where the lexeme that was read last begins.
    began: usize,
}

impl<'a, P: Named> Scanner<'a, P> {
    pub fn new(sql: &'a str, dialect: Dialect) -> Self {
        Self { sql, dialect, at: 0, from: 0, pieces: Vec::new(), open: Vec::new(), began: 0 }
    }

    /// Whether every parenthesis and bracket has had its twin.
    pub fn is_balanced(&self) -> bool {
        self.open.is_empty()
    }

    /// How many parentheses and brackets are open.
    pub fn depth(&self) -> usize {
        self.open.len()
    }

    /// The lexeme that was read last.
    pub fn lexeme(&self) -> &'a str {
        self.sql.get(self.began..self.at).unwrap_or_default()
    }

    /// What was read, up to the end.
    pub fn into_pieces(mut self) -> Vec<Piece<P>> {
        self.flush(self.sql.len());
        self.pieces
    }

    /// The next lexeme; `None` at the end.
    pub fn next(&mut self) -> Result<Option<Lexeme>, ScanError> {
        let Some(c) = self.rest().chars().next() else { return Ok(None) };
        self.began = self.at;
        let second = self.rest().chars().nth(1);
        let postgres = self.dialect == Dialect::Postgres;
        match (c, second) {
            ('-', Some('-')) => {
                self.at += self.rest().find('\n').unwrap_or(self.rest().len());
                return Ok(Some(Lexeme::Blank));
            }
            ('/', Some('*')) => {
                self.comment()?;
                return Ok(Some(Lexeme::Blank));
            }
            ('e' | 'E', Some('\'')) if postgres => {
                self.at += 1;
                self.quoted('\'', true, "a string literal")?;
            }
            ('\'', _) => self.quoted('\'', false, "a string literal")?,
            ('"', _) => self.quoted('"', false, "a quoted name")?,
            ('`', _) if !postgres => self.quoted('`', false, "a quoted name")?,
            ('[', _) if !postgres => self.until("]", 1, "a name in brackets")?,
            ('$', Some(d)) if postgres && d.is_ascii_digit() => return Err(self.positional()),
            ('$', _) if postgres => self.dollar_quoted()?,
            ('?' | '$' | '@', _) if !postgres => return Err(self.positional()),
            (':', Some(':' | '=')) => self.at += 2,
            (':', Some(first)) if is_name_start(first) && !self.is_slice() => return self.param().map(Some),
            (';', _) => {
                self.flush(self.began);
                self.at += 1;
                self.from = self.at;
                return Ok(Some(Lexeme::Semicolon));
            }
            ('(' | '[', _) => {
                self.open.push(c);
                self.at += 1;
            }
            (')' | ']', _) => self.close(c)?,
            _ if c.is_whitespace() => {
                self.at += c.len_utf8();
                return Ok(Some(Lexeme::Blank));
            }
            _ if is_name_part(c) => self.word(),
            _ => self.at += c.len_utf8(),
        }
        Ok(Some(Lexeme::Other))
    }

    fn rest(&self) -> &str {
        self.sql.get(self.at..).unwrap_or_default()
    }

    /// The line that is being read, from 1.
    pub fn line(&self) -> usize {
        1 + self.sql.bytes().take(self.at).filter(|b| *b == b'\n').count()
    }

    /// Ends the text before byte `to`.
    fn flush(&mut self, to: usize) {
        let text = self.sql.get(self.from..to).unwrap_or_default();
        if !text.is_empty() {
            self.pieces.push(Piece::Text(text.to_owned()));
        }
        self.from = to;
    }

    fn param(&mut self) -> Result<Lexeme, ScanError> {
        let name: String = self.rest().chars().skip(1).take_while(|c| is_param_part(*c)).collect();
        let line = self.line();
        let param = match named::<P>(&name) {
            Ok(param) => param,
            Err(hint) => return Err(ScanError::Unknown { name, hint, line }),
        };
        self.flush(self.at);
        self.pieces.push(Piece::Param(param));
        self.at += 1 + name.len();
        self.from = self.at;
        Ok(Lexeme::Param)
    }

    /// Whether a colon within brackets divides a slice: then an operand stands before it.
    fn is_slice(&self) -> bool {
        let before = self.sql.get(..self.at).unwrap_or_default().trim_end().chars().next_back();
        self.open.last() == Some(&'[')
            && before.is_some_and(|c| is_name_part(c) || matches!(c, ')' | ']' | '"' | '\''))
    }

    /// A keyword, name or number. What is glued to it is part of it, such as the `$` of `a$b$` and the dot of `1.`.
    fn word(&mut self) {
        let dollar = self.dialect == Dialect::Postgres;
        let number = self.rest().starts_with(|c: char| c.is_ascii_digit());
        let part = |c: char| is_name_part(c) || c == '$' && dollar || c == '.' && number;
        self.at += self.rest().find(|c| !part(c)).unwrap_or(self.rest().len());
    }

    fn close(&mut self, closing: char) -> Result<(), ScanError> {
        let opening = if closing == ')' { '(' } else { '[' };
        if self.open.pop() != Some(opening) {
            return Err(ScanError::Unbalanced { line: self.line() });
        }
        self.at += 1;
        Ok(())
    }

    /// From a quote to its twin; two in a row stand for one, and so does one after a backslash.
    fn quoted(&mut self, quote: char, backslash: bool, what: &'static str) -> Result<(), ScanError> {
        let mut chars = self.rest().char_indices().skip(1).peekable();
        let mut end = None;
        while let Some((i, c)) = chars.next() {
            let doubled = c == quote && chars.peek().is_some_and(|(_, next)| *next == quote);
            if doubled || backslash && c == '\\' {
                chars.next();
            } else if c == quote {
                end = Some(i + quote.len_utf8());
                break;
            }
        }
        self.at += end.ok_or(ScanError::Unterminated { what, line: self.line() })?;
        Ok(())
    }

    /// Up to and with `end`, which is looked for after the first `skip` bytes.
    fn until(&mut self, end: &str, skip: usize, what: &'static str) -> Result<(), ScanError> {
        let found = self.rest().get(skip..).and_then(|rest| rest.find(end));
        let found = found.ok_or(ScanError::Unterminated { what, line: self.line() })?;
        self.at += skip + found + end.len();
        Ok(())
    }

    /// `$$…$$` or `$tag$…$tag$`; a dollar that begins neither is passed over.
    fn dollar_quoted(&mut self) -> Result<(), ScanError> {
        let inner = self.rest().chars().skip(1).take_while(|c| is_name_part(*c));
        let tag: String = iter::once('$').chain(inner).chain(['$']).collect();
        if self.rest().starts_with(&tag) {
            return self.until(&tag, tag.len(), "a dollar-quoted literal");
        }
        self.at += 1;
        Ok(())
    }

    /// PostgreSQL's comments hold comments, SQLite's do not, and may lack their end.
    fn comment(&mut self) -> Result<(), ScanError> {
        let what = "a comment";
        if self.dialect == Dialect::Sqlite {
            return self.until("*/", 2, what);
        }
        let line = self.line();
        let mut depth = 0_usize;
        loop {
            let rest = self.rest();
            if rest.starts_with("/*") {
                depth += 1;
                self.at += 2;
            } else if rest.starts_with("*/") {
                depth -= 1;
                self.at += 2;
                if depth == 0 {
                    return Ok(());
                }
            } else {
                let next = rest.chars().next().ok_or(ScanError::Unterminated { what, line })?;
                self.at += next.len_utf8();
            }
        }
    }

    fn positional(&self) -> ScanError {
        let rest = self.rest().chars().skip(1).take_while(|c| is_param_part(*c)).take(20);
        let text = self.rest().chars().take(1).chain(rest).collect();
        let instead = P::ALL.first().map(|param| format!(":{}", param.name())).unwrap_or_default();
        ScanError::Positional { text, instead, line: self.line() }
    }
}

fn is_name_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

fn is_param_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Both databases take every character beyond ASCII for a letter.
fn is_name_part(c: char) -> bool {
    is_param_part(c) || !c.is_ascii() && !c.is_whitespace()
}
