//! What became of every line or key of what was imported: the table that is printed, and nothing in it that is not so.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Means the same here.
    Converted,
    /// Works, but not quite as before; the note says how.
    Changed,
    /// Did nothing before either, such as a remark.
    LeftOut,
    /// Is not in what was written; the note says why and what to do.
    NotSupported,
}

impl Outcome {
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Converted => "converted",
            Outcome::Changed => "changed",
            Outcome::LeftOut => "left out",
            Outcome::NotSupported => "not supported",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The file, and the line or key in it.
    pub place: String,
    pub outcome: Outcome,
    /// What stood there, in short.
    pub what: String,
    pub note: String,
}

#[derive(Debug, Default)]
pub struct Report {
    pub rows: Vec<Row>,
}

/// What stood in the source is shown no wider than this.
const WHAT_CHARS_MAX: usize = 44;

impl Report {
    pub fn add(&mut self, place: impl Into<String>, outcome: Outcome, what: &str, note: &str) {
        let line = what.lines().next().unwrap_or_default().trim();
        let line = line.replace(char::is_control, " ");
        let mut shown: String = line.chars().take(WHAT_CHARS_MAX).collect();
        if shown.len() < what.trim().len() {
            shown.push('…');
        }
        self.rows.push(Row {
            place: place.into(),
            outcome,
            what: shown,
            note: note.to_string(),
        });
    }

    /// Removes the rows that say that this place (a file or a key in it), or a key below it, was imported: it was taken out after all. Rows of the keys
    /// that are `kept` stay.
    pub fn take_back(&mut self, place: &str, kept: &[&str]) {
        self.rows.retain(|row| {
            let is_imported = matches!(row.outcome, Outcome::Converted | Outcome::Changed);
            let is_of_it = match row.place.strip_prefix(place) {
                Some("") => true,
                Some(below) => below
                    .strip_prefix('.')
                    .or_else(|| below.strip_prefix(": "))
                    .or_else(|| below.strip_prefix('['))
                    .is_some_and(|key| !kept.contains(&key)),
                None => false,
            };
            !(is_imported && is_of_it)
        });
    }

    /// `2 converted, 8 changed, 1 left out, 1 not supported`
    pub fn summary(&self) -> String {
        let counted = [
            Outcome::Converted,
            Outcome::Changed,
            Outcome::LeftOut,
            Outcome::NotSupported,
        ];
        let counted =
            counted.map(|outcome| format!("{} {}", self.count(outcome), outcome.as_str()));
        counted.join(", ")
    }

    pub fn count(&self, outcome: Outcome) -> usize {
        let of_it = self.rows.iter().filter(|row| row.outcome == outcome);
        of_it.count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chars = |text: &str| text.chars().count();
        let width = |of: fn(&Row) -> &str| self.rows.iter().map(|row| chars(of(row))).max();
        let places = width(|row| &row.place).unwrap_or(0);
        let whats = width(|row| &row.what).unwrap_or(0);
        let outcomes = chars(Outcome::NotSupported.as_str());
        for row in &self.rows {
            let (place, outcome, what) = (&row.place, row.outcome.as_str(), &row.what);
            let line = format!(
                "{place:places$}  {outcome:outcomes$}  {what:whats$}  {}",
                row.note
            );
            writeln!(f, "{}", line.trim_end())?;
        }
        f.write_str(&self.summary())
    }
}
