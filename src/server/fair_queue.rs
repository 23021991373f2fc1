//! A queue in which every caller has a line of its own, and the lines take turns.
//!
//! In one common line, a caller with a thousand slow requests would make everybody else wait for all of them. With lines that take
//! turns, everybody else waits for one of them at most.

use std::collections::{HashMap, VecDeque};

use super::shares::ShareOwner;

/// Items of one owner leave in the order in which they came. Items without an owner share one line.
pub struct FairQueue<T> {
    /// The line of items without an owner. It is kept when it is empty, because most servers on loopback use no other.
    unowned: VecDeque<T>,
    /// Lines that are not empty.
    lines: HashMap<ShareOwner, VecDeque<T>>,
    /// Every line that is not empty, once, in the order in which they have their turn.
    turns: VecDeque<Option<ShareOwner>>,
    len: usize,
}

impl<T> Default for FairQueue<T> {
    fn default() -> FairQueue<T> {
        FairQueue {
            unowned: VecDeque::new(),
            lines: HashMap::new(),
            turns: VecDeque::new(),
            len: 0,
        }
    }
}

impl<T> FairQueue<T> {
    pub fn len(&self) -> usize {
        self.len
    }

    /// The number of items of this owner.
    pub fn len_of(&self, owner: ShareOwner) -> usize {
        self.lines.get(&owner).map_or(0, VecDeque::len)
    }

    pub fn push(&mut self, owner: Option<ShareOwner>, item: T) {
        let line = match owner {
            None => &mut self.unowned,
            Some(owner) => self.lines.entry(owner).or_default(),
        };
        if line.is_empty() {
            self.turns.push_back(owner);
        }
        line.push_back(item);
        self.len += 1;
    }

    /// The next item of an owner that is free, with its owner. The lines of the others keep their turns.
    pub fn pop(&mut self, is_free: impl Fn(ShareOwner) -> bool) -> Option<(Option<ShareOwner>, T)> {
        let is_free = |owner: &Option<ShareOwner>| owner.is_none_or(&is_free);
        let turn = self.turns.iter().position(is_free)?;
        let owner = self.turns.remove(turn)?;
        let line = match owner {
            None => Some(&mut self.unowned),
            Some(owner) => self.lines.get_mut(&owner),
        };
        let line = line.expect("a line with a turn exists");
        let item = line.pop_front();
        if !line.is_empty() {
            self.turns.push_back(owner);
        } else if let Some(owner) = owner {
            self.lines.remove(&owner);
        }
        self.len -= 1;
        item.map(|item| (owner, item))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::TokenId;

    const ANN: Option<ShareOwner> = Some(ShareOwner::Token(TokenId(1)));
    const BOB: Option<ShareOwner> = Some(ShareOwner::Token(TokenId(2)));
    const EVERYBODY: fn(ShareOwner) -> bool = |_| true;

    #[test]
    fn whoever_comes_late_waits_for_one_item_of_each_other_owner() {
        let mut queue = FairQueue::default();
        for item in ["ann 1", "ann 2", "ann 3"] {
            queue.push(ANN, item);
        }
        queue.push(BOB, "bob 1");
        queue.push(None, "local 1");
        queue.push(BOB, "bob 2");
        assert_eq!(
            (queue.len(), queue.len_of(ShareOwner::Token(TokenId(1)))),
            (6, 3)
        );
        let next = || queue.pop(EVERYBODY).map(|(_, item)| item);
        let order: Vec<&str> = std::iter::from_fn(next).collect();
        assert_eq!(
            order,
            ["ann 1", "bob 1", "local 1", "ann 2", "bob 2", "ann 3"]
        );
        assert!(queue.len() == 0 && queue.lines.is_empty() && queue.turns.is_empty());
    }

    #[test]
    fn a_line_that_was_empty_has_its_turn_last() {
        let mut queue = FairQueue::default();
        queue.push(ANN, 1);
        queue.push(BOB, 2);
        assert_eq!(queue.pop(EVERYBODY), Some((ANN, 1)));
        queue.push(ANN, 3);
        assert_eq!(
            (
                queue.pop(EVERYBODY),
                queue.pop(EVERYBODY),
                queue.pop(EVERYBODY)
            ),
            (Some((BOB, 2)), Some((ANN, 3)), None)
        );
    }

    #[test]
    fn the_line_of_a_busy_owner_waits_and_keeps_its_turn() {
        let mut queue = FairQueue::default();
        for (owner, item) in [(ANN, 1), (ANN, 2), (BOB, 3), (BOB, 4), (None, 5)] {
            queue.push(owner, item);
        }
        let not_ann = |owner| Some(owner) != ANN;
        assert_eq!(queue.pop(not_ann), Some((BOB, 3)));
        assert_eq!(queue.pop(not_ann), Some((None, 5)));
        assert_eq!(queue.pop(EVERYBODY), Some((ANN, 1)));
        assert_eq!(queue.pop(not_ann), Some((BOB, 4)));
        assert_eq!((queue.pop(not_ann), queue.len()), (None, 1));
    }
}
