//! Rows and columns. On a terminal they fit its width; elsewhere they are separated by tabs, whole and without a heading, for
//! `cut` and `awk`.

use super::look::{Ink, Look};
use super::words::{fit, printable, width, wrap};

/// No column is made narrower than this.
const COLUMN_MIN: usize = 6;
const GAP: usize = 2;
const NOTE_INDENT: usize = 4;

pub struct Table {
    heading: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
    /// Below a row, on a terminal: (which one, what).
    notes: Vec<(usize, String)>,
}

pub struct Cell {
    text: String,
    ink: Option<Ink>,
    right: bool,
}

impl Cell {
    /// What a program of ours wrote.
    pub fn new(text: impl Into<String>) -> Cell {
        Cell {
            text: printable(&text.into()),
            ink: None,
            right: false,
        }
    }

    pub fn number(text: impl ToString) -> Cell {
        Cell {
            right: true,
            ..Cell::new(text.to_string())
        }
    }

    /// Sign and word; the word alone where programs read.
    pub fn status(look: &Look, status: &str) -> Cell {
        let text = match look.is_terminal {
            true => format!("{} {status}", look.sign(status)),
            false => status.to_string(),
        };
        Cell::new(text).ink(Look::ink(status))
    }

    pub fn ink(self, ink: Ink) -> Cell {
        let ink = Some(ink);
        Cell { ink, ..self }
    }
}

impl Table {
    pub fn new(heading: &[&'static str]) -> Table {
        Table {
            heading: heading.to_vec(),
            rows: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub fn row(&mut self, cells: Vec<Cell>) {
        assert_eq!(cells.len(), self.heading.len(), "a cell for each heading");
        self.rows.push(cells);
    }

    /// What does not fit into a column, below the row that came last. Terminals only.
    pub fn note(&mut self, text: &str) {
        let row = self.rows.len();
        self.notes.push((row, printable(text)));
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn text(&self, look: &Look) -> String {
        let text = match look.is_terminal {
            true => self.aligned(look),
            false => self.separated(),
        };
        match look.unicode {
            true => text,
            false => text.replace('\u{fffd}', "?"),
        }
    }

    fn separated(&self) -> String {
        let row = |cells: &Vec<Cell>| {
            let texts: Vec<&str> = cells.iter().map(|cell| cell.text.as_str()).collect();
            texts.join("\t") + "\n"
        };
        self.rows.iter().map(row).collect()
    }

    fn aligned(&self, look: &Look) -> String {
        let widths = self.widths(look.width);
        let mut text = String::new();
        let heading = self.heading.iter().zip(self.rightness());
        let heading: Vec<Cell> = heading
            .map(|(text, right)| Cell {
                right,
                ..Cell::new(*text).ink(Ink::Faint)
            })
            .collect();
        let mut notes = self.notes.iter().peekable();
        for (row, cells) in std::iter::once(&heading).chain(&self.rows).enumerate() {
            let mut line = String::new();
            for (at, (cell, columns)) in cells.iter().zip(&widths).enumerate() {
                let fitted = fit(&cell.text, *columns, look.ellipsis());
                let pad = " ".repeat(columns - width(&fitted));
                let painted = match cell.ink {
                    Some(ink) => look.paint(ink, &fitted),
                    None => fitted,
                };
                let is_last = at + 1 == cells.len();
                match cell.right {
                    true => line.push_str(&(pad + &painted)),
                    false if is_last => line.push_str(&painted),
                    false => line.push_str(&(painted + &pad)),
                }
                if !is_last {
                    line.push_str(&" ".repeat(GAP));
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
            while let Some((_, note)) = notes.next_if(|(below, _)| *below == row) {
                let room = look.width.unwrap_or(usize::MAX).saturating_sub(NOTE_INDENT);
                for line in wrap(note, room) {
                    let line = look.paint(Ink::Faint, &line);
                    text.push_str(&format!("{:NOTE_INDENT$}{line}\n", ""));
                }
            }
        }
        text
    }

    fn rightness(&self) -> Vec<bool> {
        let first = self.rows.first();
        let of = |at: usize| first.is_some_and(|cells| cells[at].right);
        (0..self.heading.len()).map(of).collect()
    }

    /// What is wider than it needs to be gives way first: the widest column, until all fit.
    fn widths(&self, room: Option<usize>) -> Vec<usize> {
        let mut widths: Vec<usize> = self.heading.iter().map(|text| width(text)).collect();
        for cells in &self.rows {
            for (columns, cell) in widths.iter_mut().zip(cells) {
                *columns = width(&cell.text).max(*columns);
            }
        }
        let Some(room) = room else {
            return widths;
        };
        let gaps = GAP * widths.len().saturating_sub(1);
        let mut over = (widths.iter().sum::<usize>() + gaps).saturating_sub(room);
        while over > 0 {
            let Some(widest) = widths
                .iter_mut()
                .max()
                .filter(|widest| **widest > COLUMN_MIN)
            else {
                break;
            };
            *widest -= 1;
            over -= 1;
        }
        widths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["JOB", "TASK", "WHY"]);
        table.row(vec![
            Cell::number(7),
            Cell::new("release"),
            Cell::new("step test failed: exit code 2"),
        ]);
        table.row(vec![
            Cell::number(12_345),
            Cell::new("a\tb"),
            Cell::new("日本"),
        ]);
        table
    }

    fn look(is_terminal: bool, width: Option<usize>) -> Look {
        Look {
            colour: false,
            unicode: true,
            is_terminal,
            width,
        }
    }

    #[test]
    fn a_table_fits_its_terminal() {
        let text = table().text(&look(true, Some(30)));
        assert_eq!(
            text,
            "  JOB  TASK     WHY\n\
             \x20   7  release  step test fai…\n\
             12345  a b      日本\n"
        );
    }

    #[test]
    fn where_no_terminal_is_tabs_separate_and_nothing_is_cut() {
        let text = table().text(&look(false, None));
        assert_eq!(
            text,
            "7\trelease\tstep test failed: exit code 2\n12345\ta b\t日本\n"
        );
    }
}
