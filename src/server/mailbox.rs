//! Where a thread is told what commits mean for it and what handlers have brought. One lock and one bell for both: it is woken
//! once, and does not spin while it waits, which would take the processor from those that it waits for.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use crate::store::Notice;

pub struct Mailbox<M> {
    state: Mutex<State<M>>,
    bell: Condvar,
}

struct State<M> {
    messages: Vec<M>,
    notice: Notice,
    /// Of the last notice.
    number: u64,
    has_notice: bool,
    /// Notices are let through only while somebody wants them: a wake-up for nothing delays the commit that it follows.
    wants_notices: bool,
    is_closed: bool,
}

/// What was in it.
pub struct Mail<M> {
    pub messages: Vec<M>,
    pub notice: Notice,
    pub number: u64,
    /// There was a notice.
    pub is_noticed: bool,
}

impl<M> Default for Mailbox<M> {
    fn default() -> Mailbox<M> {
        let state = State {
            messages: Vec::new(),
            notice: Notice::default(),
            number: 0,
            has_notice: false,
            wants_notices: true,
            is_closed: false,
        };
        Mailbox {
            state: Mutex::new(state),
            bell: Condvar::new(),
        }
    }
}

impl<M> Mailbox<M> {
    pub fn put(&self, notice: Notice) {
        let mut state = self.state();
        state.number += 1;
        if !state.wants_notices {
            return;
        }
        state.notice.absorb(notice);
        state.has_notice = true;
        drop(state);
        self.bell.notify_one();
    }

    pub fn send(&self, message: M) {
        let mut state = self.state();
        if state.is_closed {
            // Only a server that stops has nobody here: an answer is dropped, and its client told so.
            drop(state);
            return drop(message);
        }
        state.messages.push(message);
        drop(state);
        self.bell.notify_one();
    }

    /// What there is, as soon as there is something, but not later than after the pause.
    pub fn wait(&self, pause: Duration) -> Mail<M> {
        let is_empty = |state: &mut State<M>| state.messages.is_empty() && !state.has_notice;
        let waited = self.bell.wait_timeout_while(self.state(), pause, is_empty);
        let (mut state, _) = waited.expect("no panic while it is held");
        let is_noticed = std::mem::take(&mut state.has_notice);
        Mail {
            messages: std::mem::take(&mut state.messages),
            notice: std::mem::take(&mut state.notice),
            number: state.number,
            is_noticed,
        }
    }

    /// The number of the last notice.
    pub fn number(&self) -> u64 {
        self.state().number
    }

    /// Whoever wants notices again looks afterwards by itself at what it missed.
    pub fn want_notices(&self, wants_notices: bool) {
        self.state().wants_notices = wants_notices;
    }

    /// Nobody looks any more.
    pub fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        let messages = std::mem::take(&mut state.messages);
        drop(state);
        drop(messages);
    }

    fn state(&self) -> MutexGuard<'_, State<M>> {
        self.state.lock().expect("no panic while it is held")
    }
}
