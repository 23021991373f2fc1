//! Started tries and the reason of a failure in; try again after how long, or give up, out.

use super::limits;
use super::reason::Reason;
use super::{AttemptRef, words};

words! {
    pub enum Backoff {
        Fixed = "fixed",
        Exponential = "exponential",
    }
}

words! {
    /// What becomes of a running step whose worker is lost. It may have run partly, so: failed, unless told otherwise.
    pub enum OnWorkerLoss {
        Fail = "fail",
        Retry = "retry",
        /// Suspended until a person resumes or fails it.
        Hold = "hold",
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    /// All tries, the first one included.
    pub max_attempts: u32,
    pub delay_ms: i64,
    pub backoff: Backoff,
    pub max_delay_ms: i64,
    pub jitter: bool,
    pub on: Vec<Reason>,
}

impl RetryPolicy {
    /// Tried once. What a step has that says nothing.
    pub fn never() -> RetryPolicy {
        RetryPolicy::times(1)
    }

    pub fn times(max_attempts: u32) -> RetryPolicy {
        RetryPolicy {
            max_attempts,
            delay_ms: 0,
            backoff: Backoff::Fixed,
            max_delay_ms: 3_600_000,
            jitter: false,
            on: vec![
                Reason::ExitCode,
                Reason::Signal,
                Reason::SpawnError,
                Reason::StepTimeout,
            ],
        }
    }
}

/// `on_worker_loss: retry` without a `retry` of its own tries this often.
const WORKER_LOSS_TRIES: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterFailure {
    Fail,
    RetryIn { delay_ms: i64 },
    Hold,
}

/// Whether a step may be tried again elsewhere after its worker was lost.
pub fn may_retry_loss(policy: &RetryPolicy, on_worker_loss: OnWorkerLoss) -> bool {
    let named = policy.on.iter().any(|reason| reason.is_worker_loss());
    on_worker_loss == OnWorkerLoss::Retry || (named && policy.max_attempts > 1)
}

/// What follows a failed try.
///
/// `tries` counts the started ones, this one included. Jitter is drawn from the attempt's own identity: spread out
/// between steps, and the same whenever it is computed.
pub fn after_failure(
    policy: &RetryPolicy,
    on_worker_loss: OnWorkerLoss,
    reason: Reason,
    tries: u32,
    attempt: AttemptRef,
) -> AfterFailure {
    let retry_named = policy.on.contains(&reason) && policy.max_attempts > 1;
    let tries_max = if reason.is_worker_loss() && !retry_named {
        match on_worker_loss {
            OnWorkerLoss::Fail => return AfterFailure::Fail,
            OnWorkerLoss::Hold => return AfterFailure::Hold,
            OnWorkerLoss::Retry if policy.max_attempts > 1 => policy.max_attempts,
            OnWorkerLoss::Retry => WORKER_LOSS_TRIES,
        }
    } else if retry_named {
        policy.max_attempts
    } else {
        return AfterFailure::Fail;
    };
    if tries >= tries_max {
        // Who wants to be asked is asked when there is no try left.
        let asks = reason.is_worker_loss() && on_worker_loss == OnWorkerLoss::Hold;
        return match asks {
            true => AfterFailure::Hold,
            false => AfterFailure::Fail,
        };
    }
    AfterFailure::RetryIn {
        delay_ms: delay_ms(policy, tries, attempt),
    }
}

fn delay_ms(policy: &RetryPolicy, tries: u32, attempt: AttemptRef) -> i64 {
    let factor = match policy.backoff {
        Backoff::Fixed => 1,
        Backoff::Exponential => 1i64 << tries.saturating_sub(1).min(40),
    };
    let delay_ms = policy
        .delay_ms
        .saturating_mul(factor)
        .min(policy.max_delay_ms.min(limits::DURATION_MS_MAX));
    if !policy.jitter || delay_ms <= 0 {
        return delay_ms;
    }
    // Between half and the whole of it.
    let half = delay_ms / 2;
    half + (scramble(attempt) % (delay_ms - half + 1) as u64) as i64
}

/// SplitMix64 over the attempt's identity.
fn scramble(attempt: AttemptRef) -> u64 {
    let mut z = (attempt.step_id.0 as u64)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .wrapping_add(u64::from(attempt.attempt));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::super::StepId;
    use super::*;

    const ATTEMPT: AttemptRef = AttemptRef {
        step_id: StepId(7),
        attempt: 1,
    };

    fn after(policy: &RetryPolicy, loss: OnWorkerLoss, reason: Reason, tries: u32) -> AfterFailure {
        after_failure(policy, loss, reason, tries, ATTEMPT)
    }

    #[test]
    fn a_step_without_a_policy_is_tried_once() {
        let never = RetryPolicy::never();
        for &reason in Reason::ALL {
            assert_eq!(
                after(&never, OnWorkerLoss::Fail, reason, 1),
                AfterFailure::Fail,
                "{reason}"
            );
        }
    }

    #[test]
    fn max_attempts_counts_all_tries() {
        let thrice = RetryPolicy::times(3);
        let again = AfterFailure::RetryIn { delay_ms: 0 };
        assert_eq!(
            after(&thrice, OnWorkerLoss::Fail, Reason::ExitCode, 1),
            again
        );
        assert_eq!(
            after(&thrice, OnWorkerLoss::Fail, Reason::ExitCode, 2),
            again
        );
        assert_eq!(
            after(&thrice, OnWorkerLoss::Fail, Reason::ExitCode, 3),
            AfterFailure::Fail
        );
    }

    #[test]
    fn worker_loss_is_retried_only_when_named_or_asked_for() {
        let again = AfterFailure::RetryIn { delay_ms: 0 };
        let thrice = RetryPolicy::times(3);
        assert_eq!(
            after(&thrice, OnWorkerLoss::Fail, Reason::WorkerLost, 1),
            AfterFailure::Fail
        );
        assert_eq!(
            after(&thrice, OnWorkerLoss::Hold, Reason::WorkerLost, 1),
            AfterFailure::Hold
        );
        let named = RetryPolicy {
            on: vec![Reason::WorkerLost],
            ..RetryPolicy::times(2)
        };
        assert_eq!(
            after(&named, OnWorkerLoss::Fail, Reason::WorkerLost, 1),
            again
        );
        assert_eq!(
            after(&named, OnWorkerLoss::Fail, Reason::WorkerLost, 2),
            AfterFailure::Fail
        );
        let never = RetryPolicy::never();
        assert_eq!(
            after(&never, OnWorkerLoss::Retry, Reason::WorkerRestarted, 2),
            again
        );
        assert_eq!(
            after(&never, OnWorkerLoss::Retry, Reason::WorkerRestarted, 3),
            AfterFailure::Fail
        );
        assert_eq!(
            after(&never, OnWorkerLoss::Retry, Reason::ExitCode, 1),
            AfterFailure::Fail
        );
    }

    #[test]
    fn backoff_doubles_up_to_its_cap_and_never_overflows() {
        let policy = RetryPolicy {
            delay_ms: 10_000,
            backoff: Backoff::Exponential,
            max_delay_ms: 60_000,
            ..RetryPolicy::times(100)
        };
        let delays: Vec<i64> = [1, 2, 3, 4, 99]
            .map(|tries| delay_ms(&policy, tries, ATTEMPT))
            .into();
        assert_eq!(delays, [10_000, 20_000, 40_000, 60_000, 60_000]);
    }

    #[test]
    fn jitter_stays_between_half_and_whole_and_differs_between_steps() {
        let policy = RetryPolicy {
            delay_ms: 10_000,
            jitter: true,
            ..RetryPolicy::times(3)
        };
        let delays: std::collections::BTreeSet<i64> = (0..100)
            .map(|n| {
                delay_ms(
                    &policy,
                    1,
                    AttemptRef {
                        step_id: StepId(n),
                        attempt: 1,
                    },
                )
            })
            .collect();
        assert!(delays.iter().all(|delay| (5_000..=10_000).contains(delay)));
        assert!(delays.len() > 90);
    }
}
