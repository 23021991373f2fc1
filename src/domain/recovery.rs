//! When recovery acts, and how: pure decisions, taken by the sweep that acts on them and by the forecast that only tells.

use super::reason::Reason;
use super::settings::Settings;
use super::step::StepState;
use super::{JobId, StepId, Uptime, WorkerId, words};

words! {
    /// In the order in which a sweep goes through them.
    pub enum Phase {
        StaleWorkers = "stale_workers",
        OverdueSteps = "overdue_steps",
        OverdueJobs = "overdue_jobs",
        UnmatchedSteps = "unmatched_steps",
    }
}

impl Phase {
    /// 1 to 4, as people know them.
    pub fn number(self) -> u8 {
        self as u8 + 1
    }
}

words! {
    /// What recovery does.
    pub enum Deed {
        MarkInactive = "mark_inactive",
        /// So many workers are silent at once that the fault is probably the server's: they get more time.
        WaitLonger = "wait_longer",
        Requeue = "requeue",
        Fail = "fail",
        Retry = "retry",
        Hold = "hold",
        Cancel = "cancel",
    }
}

/// One thing that recovery did or will do. Each is told by exactly one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    pub phase: Phase,
    pub deed: Deed,
    pub reason: Option<Reason>,
    pub job_id: Option<JobId>,
    pub step_id: Option<StepId>,
    pub attempt: Option<u32>,
    pub worker_id: Option<WorkerId>,
}

impl Recovery {
    pub fn new(phase: Phase, deed: Deed) -> Recovery {
        Recovery {
            phase,
            deed,
            reason: None,
            job_id: None,
            step_id: None,
            attempt: None,
            worker_id: None,
        }
    }
}

/// What the next sweeps will do if nothing happens until then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreseen {
    pub recovery: Recovery,
    pub at_up: Uptime,
    pub in_ms: i64,
}

/// Whoever holds a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// The current session of an active worker.
    Present,
    Inactive,
    /// Its worker has another session.
    Replaced,
    Deleted,
}

/// What recovery looks at in a step that somebody holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldStep {
    pub state: StepState,
    pub holder: Holder,
    pub since_up: Uptime,
    pub due_up: Option<Uptime>,
    pub absent_beats: u32,
}

/// What becomes of a step that somebody holds, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldFate {
    /// It had started: what it did until now is unknown.
    Fail(Reason),
    /// It had not: back to the queue.
    Return(Return),
}

words! {
    /// Why an assignment comes back without its worker's word.
    pub enum Return {
        WorkerLost = "worker_lost",
        WorkerRestarted = "worker_restarted",
        WorkerDeleted = "worker_deleted",
        AckTimeout = "ack_timeout",
        PrepareTimeout = "prepare_timeout",
    }
}

impl Return {
    /// Whether the worker is passed over for the step for a while.
    pub fn avoids(self) -> bool {
        !matches!(self, Return::WorkerRestarted | Return::WorkerDeleted)
    }
}

/// Heartbeats in a row that must have left a running step out.
const ABSENT_BEATS: u32 = 2;

/// So many silent workers at least, and more than half of all, are suspect.
const SUSPECTS_MIN: u32 = 3;

/// The bounds that are in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub settings: Settings,
    /// Since when the server is there, without an absence and able to write. Nobody could be heard before.
    pub undisturbed_since: Uptime,
    /// Too many fell silent at once: no worker is given up before this.
    pub patient_until: Option<Uptime>,
}

impl Bounds {
    /// When a worker that was last seen then becomes inactive.
    pub fn silent_at(&self, seen_up: Uptime) -> Uptime {
        let silent_up = seen_up
            .max(self.undisturbed_since)
            .plus_ms(self.settings.heartbeat_timeout_ms);
        self.patient_until
            .map_or(silent_up, |until_up| silent_up.max(until_up))
    }

    /// Workers that were last seen by the returned time are silent for too long at the given one. `None`: nobody is yet.
    pub fn silent_since(&self, at_up: Uptime) -> Option<Uptime> {
        (self.silent_at(self.undisturbed_since) <= at_up)
            .then(|| at_up.plus_ms(-self.settings.heartbeat_timeout_ms))
    }

    /// Of those that fell silent together, the last one is found an interval after the first: whoever was last seen by the
    /// returned time is suspected to be among them.
    pub fn suspect_since(&self, at_up: Uptime) -> Uptime {
        let settings = &self.settings;
        at_up.plus_ms(settings.heartbeat_interval_ms - settings.heartbeat_timeout_ms)
    }

    /// Workers that were last seen by the returned time should have spoken by now. Whoever is silent for too long is one of
    /// them, since a timeout is at least three intervals.
    pub fn late_since(&self, now_up: Uptime) -> Uptime {
        now_up.plus_ms(-self.settings.heartbeat_interval_ms * 3 / 2)
    }

    /// The fault is probably ours.
    pub fn is_mass_silence(suspects: u32, active: u32) -> bool {
        suspects >= SUSPECTS_MIN && suspects * 2 > active
    }

    /// What becomes of a step that somebody holds, and from when on.
    pub fn held_step(&self, step: &HeldStep) -> Option<(Uptime, HeldFate)> {
        use {Holder::*, StepState::*};
        let at_once = step.since_up;
        match (step.state, step.holder) {
            (Running, Inactive) => Some((at_once, HeldFate::Fail(Reason::WorkerLost))),
            (Running, Replaced) => Some((at_once, HeldFate::Fail(Reason::WorkerRestarted))),
            (Running, Deleted) => Some((at_once, HeldFate::Fail(Reason::WorkerDeleted))),
            (Running, Present) if step.absent_beats >= ABSENT_BEATS => {
                let at_up = step.since_up.plus_ms(self.settings.report_grace_ms);
                Some((at_up, HeldFate::Fail(Reason::WorkerForgot)))
            }
            (Assigned, Inactive) => Some((at_once, HeldFate::Return(Return::WorkerLost))),
            (Assigned, Replaced) => Some((at_once, HeldFate::Return(Return::WorkerRestarted))),
            (Assigned, Deleted) => Some((at_once, HeldFate::Return(Return::WorkerDeleted))),
            (Assigned, Present) => {
                let due_up = step.due_up?;
                let cap_up = step.since_up.plus_ms(self.settings.prepare_timeout_ms);
                let ack_up = step.since_up.plus_ms(self.settings.ack_timeout_ms);
                let what = match due_up >= cap_up && due_up > ack_up {
                    true => Return::PrepareTimeout,
                    false => Return::AckTimeout,
                };
                let grace_ms = self.settings.ack_timeout_ms;
                let at_up = self.not_during_absence(step.since_up, due_up, grace_ms);
                Some((at_up, HeldFate::Return(what)))
            }
            _ => None,
        }
    }

    /// When a step or job that began then and is due then has run for too long.
    pub fn overdue_at(&self, since_up: Uptime, due_up: Uptime) -> Uptime {
        // Its end may have come while nobody could hear of it: one heartbeat's time to tell.
        self.not_during_absence(since_up, due_up, self.settings.heartbeat_interval_ms)
    }

    /// When a ready step has waited too long for a worker that could take it. The last one stopped taking steps at `lost_up`.
    pub fn unmatched_at(&self, since_up: Uptime, lost_up: Uptime) -> Uptime {
        since_up
            .max(lost_up)
            .max(self.undisturbed_since)
            .plus_ms(self.settings.unmatched_step_timeout_ms)
    }

    /// What began before an absence of the server has this much time after it.
    fn not_during_absence(&self, since_up: Uptime, due_up: Uptime, grace_ms: i64) -> Uptime {
        if since_up < self.undisturbed_since {
            due_up.max(self.undisturbed_since.plus_ms(grace_ms))
        } else {
            due_up
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        settings: Settings::DEFAULT,
        undisturbed_since: Uptime(0),
        patient_until: None,
    };

    fn held(state: StepState, holder: Holder, absent_beats: u32) -> HeldStep {
        HeldStep {
            state,
            holder,
            since_up: Uptime(1_000),
            due_up: Some(Uptime(61_000)),
            absent_beats,
        }
    }

    #[test]
    fn a_running_step_fails_and_an_assigned_one_goes_back() {
        use {Holder::*, StepState::*};
        #[rustfmt::skip]
        let table = [
            (Running,  Present,  0, None),
            (Running,  Present,  1, None),
            (Running,  Present,  2, Some((31_000, HeldFate::Fail(Reason::WorkerForgot)))),
            (Running,  Inactive, 0, Some((1_000, HeldFate::Fail(Reason::WorkerLost)))),
            (Running,  Replaced, 0, Some((1_000, HeldFate::Fail(Reason::WorkerRestarted)))),
            (Running,  Deleted,  0, Some((1_000, HeldFate::Fail(Reason::WorkerDeleted)))),
            (Assigned, Present,  2, Some((61_000, HeldFate::Return(Return::AckTimeout)))),
            (Assigned, Inactive, 0, Some((1_000, HeldFate::Return(Return::WorkerLost)))),
            (Assigned, Replaced, 0, Some((1_000, HeldFate::Return(Return::WorkerRestarted)))),
            (Assigned, Deleted,  0, Some((1_000, HeldFate::Return(Return::WorkerDeleted)))),
        ];
        for (state, holder, absent_beats, expected) in table {
            let fate = BOUNDS.held_step(&held(state, holder, absent_beats));
            let expected = expected.map(|(up, fate)| (Uptime(up), fate));
            assert_eq!(fate, expected, "{state} {holder:?}");
        }
        for state in StepState::ALL {
            if !matches!(state, Running | Assigned) {
                for holder in [Present, Inactive, Replaced, Deleted] {
                    assert_eq!(BOUNDS.held_step(&held(*state, holder, 9)), None, "{state}");
                }
            }
        }
    }

    #[test]
    fn preparation_has_a_cap() {
        let capped = HeldStep {
            due_up: Some(Uptime(901_000)),
            ..held(StepState::Assigned, Holder::Present, 0)
        };
        let expected = (Uptime(901_000), HeldFate::Return(Return::PrepareTimeout));
        assert_eq!(BOUNDS.held_step(&capped), Some(expected));
        // With nothing between the two, one that never said a word was not preparing.
        let no_room = Bounds {
            settings: Settings {
                prepare_timeout_ms: 60_000,
                ..Settings::DEFAULT
            },
            ..BOUNDS
        };
        let silent = held(StepState::Assigned, Holder::Present, 0);
        let expected = (Uptime(61_000), HeldFate::Return(Return::AckTimeout));
        assert_eq!(no_room.held_step(&silent), Some(expected));
    }

    #[test]
    fn an_absence_of_the_server_gives_everybody_a_full_timeout() {
        let bounds = Bounds {
            undisturbed_since: Uptime(60_000),
            ..BOUNDS
        };
        assert_eq!(bounds.silent_at(Uptime(10_000)), Uptime(180_000));
        assert_eq!(bounds.silent_since(Uptime(179_999)), None);
        assert_eq!(bounds.silent_since(Uptime(180_000)), Some(Uptime(60_000)));
        assert_eq!(bounds.silent_at(Uptime(70_000)), Uptime(190_000));
        let (at_up, _) = bounds
            .held_step(&held(StepState::Assigned, Holder::Present, 0))
            .unwrap();
        assert_eq!(at_up, Uptime(120_000));
        assert_eq!(bounds.unmatched_at(Uptime(0), Uptime(0)), Uptime(90_000));
        assert_eq!(bounds.overdue_at(Uptime(0), Uptime(61_000)), Uptime(90_000));
        // What began afterwards has no more time than it was given.
        assert_eq!(
            bounds.overdue_at(Uptime(60_000), Uptime(61_000)),
            Uptime(61_000)
        );
    }

    #[test]
    fn the_silence_of_one_or_two_is_theirs_and_that_of_most_is_ours() {
        for (suspects, active, mass) in [
            (1, 1, false),
            (2, 2, false),
            (3, 3, true),
            (3, 6, false),
            (4, 7, true),
            (50, 100, false),
        ] {
            assert_eq!(Bounds::is_mass_silence(suspects, active), mass);
        }
    }
}
