//! Whether a query cuts its answer as a whole, and not only that of a part.

use super::scan::Dialect;

/// Follows a query from its first word to its last.
#[derive(Debug)]
pub(super) struct Cut {
    words: &'static [&'static str],
    /// How many parentheses stand around all that is cut: `(SELECT … LIMIT 3)` is cut as a whole.
    around: usize,
    /// Whether anything but those parentheses has come.
    begun: bool,
    /// Whether a name comes next, whatever it looks like: `plan.limit`, `AS limit`.
    names: bool,
}

impl Cut {
    pub fn new(dialect: Dialect) -> Self {
        // None of these is a column's name without `AS`, a dot or quotes: SQLite knows no FETCH, and an OFFSET only
        // behind a LIMIT.
        let words: &[_] = match dialect {
            Dialect::Postgres => &["limit", "offset", "fetch"],
            Dialect::Sqlite => &["limit"],
        };
        Self { words, around: 0, begun: false, names: false }
    }

    /// Takes the next word, literal or sign, behind which `depth` parentheses are open. Whether it cuts the answer.
    pub fn take(&mut self, text: &str, depth: usize) -> bool {
        if !self.begun && text == "(" {
            self.around = depth;
            return false;
        }
        self.begun = true;
        self.around = self.around.min(depth);
        let cuts = !self.names && self.words.iter().any(|word| text.eq_ignore_ascii_case(word));
        self.names = text == "." || text.eq_ignore_ascii_case("as");
        cuts && depth <= self.around
    }
}
