//! Reads just enough of SQL to find its named parameters, and to be sure that it is one query.
//!
//! Everything that only looks like a parameter stays as it is: casts, literals, quoted names,
//! comments, dollar quotes, slices. Pure functions over text.

use super::cut::Cut;
use super::param::Named;
use super::scanner::{Lexeme, Piece, Scanner};

/// Whose SQL it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// PostgreSQL: `E'…'`, dollar quotes, nested comments, `::`, slices.
    Postgres,
    /// SQLite: names in backticks and brackets, `?` as a parameter.
    Sqlite,
}

/// Why a text is not a query that can be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// Nothing but white space and comments.
    #[error("the query is empty")]
    Empty,
    /// A `:name` that nobody knows.
    #[error("line {line}: unknown parameter :{name}{hint}")]
    Unknown {
        /// The name.
        name: String,
        /// What may have been meant.
        hint: String,
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
    #[error("line {line}: {text} is a parameter without a name of ours; use {instead} and the like")]
    Positional {
        /// Its beginning.
        text: String,
        /// One that has a name.
        instead: String,
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

/// A query taken apart at its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scanned<P> {
    pieces: Vec<Piece<P>>,
    cut_at: Option<usize>,
}

impl<P: Named> Scanned<P> {
    /// The query with each parameter spelt by `spell`.
    pub fn spelt(&self, spell: impl Fn(P) -> String) -> String {
        let pieces = self.pieces.iter().map(|piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Param(param) => spell(*param),
        });
        pieces.collect()
    }

    /// The line of a LIMIT, OFFSET or FETCH that cuts the answer as a whole, not that of a part.
    pub fn cut_at(&self) -> Option<usize> {
        self.cut_at
    }

    /// The parameters that occur, each once, in the order of [`Named::ALL`].
    pub fn params(&self) -> Vec<P> {
        let occurs = |param: &P| self.pieces.contains(&Piece::Param(*param));
        P::ALL.iter().copied().filter(occurs).collect()
    }
}

/// Takes a query apart.
pub fn scan<P: Named>(sql: &str, dialect: Dialect) -> Result<Scanned<P>, ScanError> {
    let mut scanner = Scanner::<P>::new(sql, dialect);
    let mut ended = false;
    let mut any = false;
    let (mut cut, mut cut_at) = (Cut::new(dialect), None);
    while let Some(lexeme) = scanner.next()? {
        if lexeme != Lexeme::Blank && cut.take(scanner.lexeme(), scanner.depth()) {
            cut_at = Some(scanner.line());
        }
        match lexeme {
            Lexeme::Blank => {}
            // Several semicolons after each other end one statement as well as one does.
            Lexeme::Semicolon => ended = any,
            _ if ended => return Err(ScanError::SeveralStatements { line: scanner.line() }),
            Lexeme::Param | Lexeme::Other => any = true,
        }
    }
    if !any {
        return Err(ScanError::Empty);
    }
    if !scanner.is_balanced() {
        return Err(ScanError::Unbalanced { line: scanner.line() });
    }
    Ok(Scanned { cut_at, pieces: scanner.into_pieces() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::param::Param;
    use super::Dialect::{Postgres, Sqlite};
    use super::*;

    fn scan(sql: &str, dialect: Dialect) -> Result<Scanned<Param>, ScanError> {
        super::scan(sql, dialect)
    }

    fn marked(sql: &str, dialect: Dialect) -> String {
        scan(sql, dialect)
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
            .spelt(|p| format!("<{}>", p.name()))
    }

    #[test]
    fn a_limit_of_the_whole_answer_is_told_from_others() {
        #[track_caller]
        fn check(dialect: Dialect, sql: &str, line: Option<usize>) {
            let scanned = scan(sql, dialect).unwrap_or_else(|error| panic!("{sql}: {error}"));
            assert_eq!(scanned.cut_at(), line, "{sql}");
        }
        for (sql, line) in [
            ("SELECT a FROM t\nORDER BY a Limit 10", 2),
            ("SELECT a FROM t WHERE b > 1. LIMIT 10", 1),
            ("SELECT a AS \"as\" FROM t LIMIT 10", 1),
            ("SELECT a FROM t WHERE org_id = ANY(:org_ids)/* all */LIMIT(10)", 1),
            ("WITH l AS (SELECT a FROM t LIMIT 1)\nSELECT a FROM l\nLIMIT 2", 3),
        ] {
            check(Postgres, sql, Some(line));
            check(Sqlite, sql, Some(line));
        }
        for sql in [
            "SELECT a FROM t FETCH FIRST 3 ROWS ONLY;",
            "SELECT a FROM t OFFSET 3",
            "(SELECT a FROM t LIMIT 3)",
            "((SELECT a FROM t) LIMIT 3)",
            "(SELECT a FROM t LIMIT 3) UNION ALL (SELECT a FROM u)",
        ] {
            check(Postgres, sql, Some(1));
        }
        for sql in [
            "SELECT a FROM o, LATERAL (SELECT a FROM t WHERE t.o = o.id LIMIT 3) AS t",
            "SELECT plan.limit, \"limit\", 'limit 3', x AS limit, limits FROM t -- LIMIT 3",
            "SELECT plan /* of */ . /* its */ limit, x AS -- a\n limit FROM t /* LIMIT 3 */",
            "WITH l AS (SELECT a FROM t OFFSET 3) SELECT a FROM l WHERE a = ANY(ARRAY(SELECT 1 LIMIT 1))",
        ] {
            check(Postgres, sql, None);
            check(Sqlite, sql, None);
        }
        check(
            Postgres,
            "(SELECT a FROM t) UNION SELECT b FROM o, LATERAL (SELECT b FROM t LIMIT 3) AS l",
            None,
        );
        check(Postgres, "SELECT $$ LIMIT 3 $$, E'\\' LIMIT 3' FROM t", None);
        check(Sqlite, "SELECT fetch, offset, [limit 3], `limit` FROM t", None);
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
                    let again = scanned.spelt(|param| format!(":{}", param.name()));
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
                    sql = format!("{sql} :{} ", param.name());
                    spelt = format!("{spelt} <{}> ", param.name());
                }
            }
            prop_assert_eq!(marked(&sql, Postgres), spelt);
        }
    }
}
