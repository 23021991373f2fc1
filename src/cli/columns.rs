//! A table of which a narrow terminal shows the most important columns alone. What is piped has them all.

use super::look::Look;
use super::table::{Cell, Table};

/// A column, and whether it stays where there is little room.
pub type Column = (&'static str, Room);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// However little there is.
    Any,
    /// A wide terminal, or no terminal at all.
    Wide,
}

pub struct Columns {
    is_shown: Vec<bool>,
    table: Table,
}

impl Columns {
    pub fn new(look: &Look, columns: &[Column]) -> Columns {
        let is_shown = |column: &Column| column.1 == Room::Any || !look.is_narrow();
        let shown = columns.iter().filter(|column| is_shown(column));
        let heading: Vec<&'static str> = shown.map(|(name, _)| *name).collect();
        Columns {
            is_shown: columns.iter().map(is_shown).collect(),
            table: Table::new(&heading),
        }
    }

    pub fn row(&mut self, cells: Vec<Cell>) {
        assert_eq!(cells.len(), self.is_shown.len(), "a cell for each column");
        let cells = cells.into_iter().zip(&self.is_shown);
        let shown = cells.filter(|(_, is_shown)| **is_shown);
        self.table.row(shown.map(|(cell, _)| cell).collect());
    }

    pub fn text(&self, look: &Look) -> String {
        self.table.text(look)
    }
}
