//! Reads just enough of SQL to find its named parameters, and to be sure that it is one query.
//!
//! Everything that only looks like a parameter stays as it is: casts, literals, quoted names,
//! comments, dollar quotes, slices. Pure functions over text.

use std::fmt;
use std::iter;

/// Names that are at most this unlike count as a slip of the pen (Jaro-Winkler).
const ALIKE: f64 = 0.7;

/// Whose SQL it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// PostgreSQL: `E'…'`, dollar quotes, nested comments, `::`, slices.
    Postgres,
    /// SQLite: names in backticks and brackets, `?` as a parameter.
    Sqlite,
}

/// What a section's query may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Param {
    /// The orgs of the batch.
    OrgIds,
    /// The first instant of the period.
    From,
    /// The first instant after the period.
    To,
    /// The first instant of the period before.
    PreviousFrom,
    /// The first instant after the period before, which begins the period.
    PreviousTo,
    /// The digest's week, such as `2026-W28`.
    WeekKey,
}

impl Param {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::OrgIds, Self::From, Self::To, Self::PreviousFrom, Self::PreviousTo, Self::WeekKey];

    /// The name, without its colon.
    pub fn name(self) -> &'static str {
        match self {
            Self::OrgIds => "org_ids",
            Self::From => "from",
            Self::To => "to",
            Self::PreviousFrom => "previous_from",
            Self::PreviousTo => "previous_to",
            Self::WeekKey => "week_key",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|param| param.name() == name)
    }
}

impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ":{}", self.name())
    }
}

/// Why a text is not a query that can be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// Nothing but white space and comments.
    #[error("the query is empty")]
    Empty,
    /// A `:name` that nobody knows.
    #[error("line {line}: unknown parameter :{name}{}", hint(name))]
    Unknown {
        /// The name.
        name: String,
        /// Where it stands.
        line: usize,
    },
    /// A literal, name or comment without an end.
    #[error("line {line}: {what} does not end")]
    Unterminated {
        /// What it is.
        what: &'static str,
        /// Where it begins.
        line: usize,
    },
    /// Something after a semicolon.
    #[error("line {line}: more than one statement")]
    SeveralStatements {
        /// Where the second begins.
        line: usize,
    },
    /// A parameter without a name would shift ours.
    #[error("line {line}: {text} is a parameter without a name of ours; use :org_ids and the like")]
    Positional {
        /// Its beginning.
        text: String,
        /// Where it stands.
        line: usize,
    },
    /// A parenthesis without its twin.
    #[error("line {line}: a parenthesis has no twin")]
    Unbalanced {
        /// Where it stands, or the last line.
        line: usize,
    },
}

fn hint(name: &str) -> String {
    let likeness = |param: &Param| strsim::jaro_winkler(&name.to_lowercase(), param.name());
    let nearest = Param::ALL.into_iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    match nearest.filter(|param| likeness(param) >= ALIKE) {
        Some(param) => format!("; did you mean {param}?"),
        None => format!("; there are {}", Param::ALL.map(|param| param.to_string()).join(", ")),
    }
}

/// A query taken apart at its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scanned {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Param(Param),
}

impl Scanned {
    /// The query with each parameter spelt by `spell`.
    pub fn spelt(&self, spell: impl Fn(Param) -> String) -> String {
        let pieces = self.pieces.iter().map(|piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Param(param) => spell(*param),
        });
        pieces.collect()
    }

    /// The parameters that occur, each once, in the order of [`Param::ALL`].
    pub fn params(&self) -> Vec<Param> {
        let occurs = |param: &Param| self.pieces.contains(&Piece::Param(*param));
        Param::ALL.into_iter().filter(occurs).collect()
    }
}

/// Takes a query apart.
pub fn scan(sql: &str, dialect: Dialect) -> Result<Scanned, ScanError> {
    let mut scanner = Scanner { sql, dialect, at: 0, from: 0, pieces: Vec::new(), open: Vec::new() };
    let mut ended = false;
    let mut any = false;
    while let Some(lexeme) = scanner.next()? {
        match lexeme {
            Lexeme::Blank => {}
            // Several semicolons after each other end one statement as well as one does.
            Lexeme::Semicolon => ended = any,
            _ if ended => return Err(ScanError::SeveralStatements { line: scanner.line() }),
            Lexeme::Param(_) | Lexeme::Other => any = true,
        }
    }
    if !any {
        return Err(ScanError::Empty);
    }
    if !scanner.open.is_empty() {
        return Err(ScanError::Unbalanced { line: scanner.line() });
    }
    scanner.flush(sql.len());
    Ok(Scanned { pieces: scanner.pieces })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lexeme {
    /// White space or a comment.
    Blank,
    Semicolon,
    Param(Param),
    Other,
}

struct Scanner<'a> {
    sql: &'a str,
    dialect: Dialect,
    /// The byte to read next; always a character's first.
    at: usize,
    /// Where the text that is not yet in `pieces` begins.
    from: usize,
    pieces: Vec<Piece>,
    /// The open parentheses and brackets.
    open: Vec<char>,
}

impl Scanner<'_> {
    fn next(&mut self) -> Result<Option<Lexeme>, ScanError> {
        let Some(c) = self.rest().chars().next() else { return Ok(None) };
        let start = self.at;
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
                self.flush(start);
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

    fn line(&self) -> usize {
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
        let Some(param) = Param::named(&name) else { return Err(ScanError::Unknown { name, line }) };
        self.flush(self.at);
        self.pieces.push(Piece::Param(param));
        self.at += 1 + name.len();
        self.from = self.at;
        Ok(Lexeme::Param(param))
    }

    /// Whether a colon within brackets divides a slice: then an operand stands before it.
    fn is_slice(&self) -> bool {
        let before = self.sql.get(..self.at).unwrap_or_default().trim_end().chars().next_back();
        self.open.last() == Some(&'[')
            && before.is_some_and(|c| is_name_part(c) || matches!(c, ')' | ']' | '"' | '\''))
    }

    /// A keyword, name or number. What is glued to it is part of it, such as the `$` of `a$b$`.
    fn word(&mut self) {
        let part = |c: char| is_name_part(c) || c == '$' && self.dialect == Dialect::Postgres;
        let end = self.rest().find(|c| !part(c)).unwrap_or(self.rest().len());
        self.at += end;
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
        ScanError::Positional { text, line: self.line() }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Dialect::{Postgres, Sqlite};
    use super::*;

    fn marked(sql: &str, dialect: Dialect) -> String {
        scan(sql, dialect)
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
            .spelt(|p| format!("<{}>", p.name()))
    }

    #[test]
    fn parameters_are_found_wherever_they_stand() {
        for (sql, spelt) in [
            ("SELECT 1 WHERE o = ANY(:org_ids)", "SELECT 1 WHERE o = ANY(<org_ids>)"),
            ("SELECT :from::date,:to", "SELECT <from>::date,<to>"),
            (
                "SELECT a FROM t WHERE x>=:previous_from AND x<:previous_to",
                "SELECT a FROM t WHERE x>=<previous_from> AND x<<previous_to>",
            ),
            ("SELECT ARRAY[:from, :to]", "SELECT ARRAY[<from>, <to>]"),
            ("SELECT 'a' || :week_key -- :nonsense\n", "SELECT 'a' || <week_key> -- :nonsense\n"),
            ("SELECT 1; -- the end\n ", "SELECT 1 -- the end\n "),
            ("SELECT 1 ;;", "SELECT 1 "),
        ] {
            assert_eq!(marked(sql, Postgres), spelt);
        }
    }

    #[test]
    fn what_only_looks_like_a_parameter_stays() {
        for sql in [
            "SELECT x::text, '12:from', ':to''s:to', \":org_ids\", \"a\"\":from\"",
            r"SELECT E'it\'s :from \\', e'\\'",
            "SELECT U&'\\0041:from', B'01', N':x'",
            "SELECT $$ :from ' $$, $tag$ $$ :to $other$ $tag$, a$b$ FROM t",
            "SELECT /* :a /* :b */ ' */ 1",
            "SELECT a[1:2], a[lo:hi], a[f(x) :hi], a[\"q\":from]",
            "SELECT f(x := 1), 1 -- don't :panic",
            "SELECT über.ß, 'ü:from' FROM über",
            "SELECT a ? 'b', a ?| ARRAY['c'], a @> '{}' FROM t",
        ] {
            assert_eq!(marked(sql, Postgres), sql);
        }
        for sql in ["SELECT [a:from], `b:to`, \"c:from\", ':to'", r"SELECT '\', 1", "SELECT /* /* */ 1"] {
            assert_eq!(marked(sql, Sqlite), sql);
        }
    }

    #[test]
    fn what_cannot_be_asked_is_refused_with_its_place() {
        let error = |sql: &str, dialect| scan(sql, dialect).unwrap_err().to_string();
        for (sql, told) in [
            ("SELECT 1\nWHERE a = :orgs_ids", "line 2: unknown parameter :orgs_ids; did you mean :org_ids?"),
            ("SELECT :From", "line 1: unknown parameter :From; did you mean :from?"),
            ("SELECT 1; SELECT 2", "line 1: more than one statement"),
            ("SELECT 1) AS r WHERE TRUE", "line 1: a parenthesis has no twin"),
            ("SELECT (1", "line 1: a parenthesis has no twin"),
            ("SELECT\n'abc", "line 2: a string literal does not end"),
            ("SELECT E'abc\\'", "line 1: a string literal does not end"),
            ("SELECT $a$ $b$", "line 1: a dollar-quoted literal does not end"),
            ("SELECT /* /* */", "line 1: a comment does not end"),
            ("SELECT \"a", "line 1: a quoted name does not end"),
            (" -- nothing\n;", "the query is empty"),
        ] {
            assert_eq!(error(sql, Postgres), told, "{sql}");
        }
        assert!(error("SELECT $12", Postgres).starts_with("line 1: $12 is a parameter"));
        assert!(error("SELECT ?1", Sqlite).starts_with("line 1: ?1 is a parameter"));
        assert!(
            error("SELECT :zzz", Postgres)
                .ends_with("there are :org_ids, :from, :to, :previous_from, :previous_to, :week_key")
        );
        assert_eq!(
            scan("SELECT :from, :org_ids, :from", Sqlite).unwrap().params(),
            [Param::OrgIds, Param::From]
        );
    }

    /// Pieces of SQL that hold no parameter whatever stands beside them.
    fn piece() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a-z0-9,.=<>+* \n]{0,8}".prop_map(|text| format!(" {text} ")),
            "[^']{0,8}".prop_map(|text| format!(" '{text}' ")),
            "[^\"]{1,8}".prop_map(|text| format!(" \"{text}\" ")),
            "[^$]{0,8}".prop_map(|text| format!(" $q${text}$q$ ")),
            "[^\n]{0,8}".prop_map(|text| format!(" --{text}\n")),
            "[^*/]{0,8}".prop_map(|text| format!(" /*{text}/*{text}*/*/ ")),
            "[^'\\\\]{0,8}".prop_map(|text| format!(" E'{text}\\'' ")),
            Just("::text".to_owned()),
            Just("(a[1:2])".to_owned()),
        ]
    }

    proptest! {
        #[test]
        fn no_text_makes_the_scanner_panic_and_what_it_takes_it_gives_back(sql in "\\PC{0,60}") {
            for dialect in [Postgres, Sqlite] {
                if let Ok(scanned) = scan(&sql, dialect) {
                    let again = scanned.spelt(|param| param.to_string());
                    prop_assert_eq!(again.replace(';', ""), sql.replace(';', ""));
                }
            }
        }

        #[test]
        fn exactly_the_parameters_put_between_pieces_are_found(
            pieces in prop::collection::vec((piece(), prop::option::of(0..6_usize)), 1..12),
        ) {
            let mut sql = "SELECT 1".to_owned();
            let mut spelt = sql.clone();
            for (text, param) in pieces {
                sql += &text;
                spelt += &text;
                if let Some(param) = param.map(|n| Param::ALL[n]) {
                    sql = format!("{sql} {param} ");
                    spelt = format!("{spelt} <{}> ", param.name());
                }
            }
            prop_assert_eq!(marked(&sql, Postgres), spelt);
        }
    }
}
