//! Messages to the outside: an event for a target of the settings, delivered after the commit and tried again for days.

use super::event::EventKind;
use super::{EventSeq, JobId, OutboxId, Timestamp, Uptime, words};

words! {
    pub enum MessageState {
        Pending = "pending",
        Delivered = "delivered",
        /// Tried for days, or refused for good.
        GivenUp = "given_up",
    }
}

/// What a target of the settings wants to be told. Hooks may tell it more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub name: String,
    pub on: Vec<EventKind>,
    /// `None`: of all tasks, and of what belongs to none.
    pub tasks: Option<Vec<String>>,
}

impl Target {
    /// One that is told by hooks alone.
    pub fn of_hooks(name: &str) -> Target {
        Target {
            name: name.to_string(),
            on: Vec::new(),
            tasks: None,
        }
    }

    pub fn wants(&self, kind: EventKind, task: Option<&str>) -> bool {
        let of_task = match &self.tasks {
            None => true,
            Some(tasks) => task.is_some_and(|task| tasks.iter().any(|named| named == task)),
        };
        of_task && self.on.contains(&kind)
    }
}

/// A message as it was when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub outbox_id: OutboxId,
    pub event_seq: EventSeq,
    pub target: String,
    pub job_id: Option<JobId>,
    pub state: MessageState,
    /// Deliveries so far, all of them.
    pub attempts: u32,
    /// Deliveries since it was posted or asked for again.
    pub tries: u32,
    /// When it is tried next, while it is pending.
    pub next_up: Option<Uptime>,
    pub created_at: Timestamp,
    pub delivered_at: Option<Timestamp>,
    pub last_error: Option<String>,
}

/// How one delivery went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    pub is_ok: bool,
    /// Of HTTP, or a program's exit code.
    pub status: Option<i32>,
    /// One sentence. Nothing in it may be a secret.
    pub message: String,
    /// How long the target asked to be left alone.
    pub retry_after_ms: Option<i64>,
    /// The target wants no more of it, ever.
    pub is_final: bool,
}

impl Sent {
    pub fn delivered(status: i32, message: impl Into<String>) -> Sent {
        Sent {
            is_ok: true,
            status: Some(status),
            message: message.into(),
            retry_after_ms: None,
            is_final: false,
        }
    }

    pub fn failed(message: impl Into<String>) -> Sent {
        Sent {
            is_ok: false,
            status: None,
            message: message.into(),
            retry_after_ms: None,
            is_final: false,
        }
    }
}

/// One row of the delivery log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub attempt: u32,
    pub at: Timestamp,
    pub is_ok: bool,
    pub status: Option<i32>,
    pub message: String,
    pub duration_ms: i64,
}

const PAUSE_MS_MIN: i64 = 5_000;
const PAUSE_MS_MAX: i64 = 6 * 3_600_000;

/// With the pauses between them, about three days.
pub const TRIES_MAX: u32 = 26;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterSending {
    Delivered,
    TryAgainIn { ms: i64 },
    GiveUp,
}

/// What follows a delivery. `tries` counts this one.
///
/// Pauses double from five seconds to six hours. Jitter is drawn from the message's own identity: spread out between
/// messages, and the same whenever it is computed.
pub fn after_sending(outbox_id: OutboxId, tries: u32, sent: &Sent) -> AfterSending {
    if sent.is_ok {
        return AfterSending::Delivered;
    }
    if sent.is_final || tries >= TRIES_MAX {
        return AfterSending::GiveUp;
    }
    let doublings = tries.saturating_sub(1).min(20);
    let whole_ms = (PAUSE_MS_MIN << doublings).min(PAUSE_MS_MAX);
    let seed = (outbox_id.0 as u64)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .wrapping_add(u64::from(tries).wrapping_mul(0xD1B5_4A32_D192_ED03));
    // The upper half is the better mixed one. Up to a quarter is taken off, but never below the shortest pause.
    let off_ms = ((seed >> 33) % 1_000) as i64 * whole_ms / 4_000;
    let asked_ms = sent.retry_after_ms.unwrap_or(0);
    let ms = (whole_ms - off_ms)
        .max(asked_ms)
        .clamp(PAUSE_MS_MIN, PAUSE_MS_MAX);
    AfterSending::TryAgainIn { ms }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(outbox_id: i64) -> Vec<i64> {
        let failed = Sent::failed("refused");
        let after = (1..=TRIES_MAX).map(|tries| after_sending(OutboxId(outbox_id), tries, &failed));
        let pauses = after.map_while(|after| match after {
            AfterSending::TryAgainIn { ms } => Some(ms),
            _ => None,
        });
        pauses.collect()
    }

    #[test]
    fn pauses_grow_from_seconds_to_hours_and_end_after_about_three_days() {
        const DAY_MS: i64 = 24 * 3_600_000;
        for outbox_id in 1..200 {
            let pauses = pauses(outbox_id);
            assert_eq!(pauses.len(), TRIES_MAX as usize - 1);
            assert_eq!(pauses[0], 5_000);
            assert!(pauses.iter().all(|ms| (5_000..=6 * 3_600_000).contains(ms)));
            let days = pauses.iter().sum::<i64>() as f64 / DAY_MS as f64;
            assert!((2.5..=3.5).contains(&days), "{days}");
        }
        assert_ne!(pauses(1), pauses(2), "not all at the same moment");
    }

    #[test]
    fn a_target_may_ask_for_a_longer_pause_but_not_for_ever_and_not_for_a_shorter_one() {
        let after = |retry_after_ms, tries| {
            let sent = Sent {
                retry_after_ms,
                ..Sent::failed("busy")
            };
            after_sending(OutboxId(1), tries, &sent)
        };
        let again = |ms| AfterSending::TryAgainIn { ms };
        assert_eq!(after(Some(60_000), 1), again(60_000));
        assert_eq!(after(Some(i64::MAX), 1), again(6 * 3_600_000));
        assert_eq!(after(Some(0), 1), again(5_000));
        assert_eq!(after(None, TRIES_MAX), AfterSending::GiveUp);
    }

    #[test]
    fn what_is_refused_for_good_is_not_tried_again() {
        let gone = Sent {
            is_final: true,
            ..Sent::failed("gone")
        };
        assert_eq!(after_sending(OutboxId(1), 1, &gone), AfterSending::GiveUp);
        let sent = Sent::delivered(204, "taken");
        assert_eq!(
            after_sending(OutboxId(1), TRIES_MAX, &sent),
            AfterSending::Delivered
        );
    }

    #[test]
    fn a_target_wants_the_kinds_that_it_names_of_the_tasks_that_it_names() {
        let mut target = Target {
            on: vec![EventKind::JobFailed, EventKind::WorkerInactive],
            ..Target::of_hooks("ops")
        };
        assert!(target.wants(EventKind::JobFailed, Some("backup")));
        assert!(target.wants(EventKind::WorkerInactive, None));
        assert!(!target.wants(EventKind::JobCompleted, Some("backup")));
        target.tasks = Some(vec!["backup".to_string()]);
        assert!(target.wants(EventKind::JobFailed, Some("backup")));
        assert!(!target.wants(EventKind::JobFailed, Some("backups")));
        assert!(!target.wants(EventKind::WorkerInactive, None));
        assert!(!Target::of_hooks("ops").wants(EventKind::JobFailed, None));
    }
}
