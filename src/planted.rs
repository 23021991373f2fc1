//! Bugs planted on purpose, one at a time, to prove that the simulation can find them. None is in a build for users:
//! without the feature `planted-bugs` every question here is answered with a constant no.

/// Each is one that others have shipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    NoFenceOnAttempt = 1,
    NoFenceOnSession,
    AcceptAfterEnd,
    NoCascade,
    DoubleEvent,
    AssignedNotSwept,
    ReplyBeforeCommit,
    RestartNotNoticed,
    ClaimTakesAssigned,
    SubmitNotIdempotent,
    UnmatchedIgnoresTags,
    ReadyTooEarly,
    WallClockLiveness,
    NoGraceAfterStart,
    MassSilenceNotSuspected,
    AbandonedNotSwept,
    TimeoutFromAssignment,
    ForecastForgetsHeldSteps,
    RunBeforeYes,
    ResultNotKept,
    StallCountsAsSilence,
    ClockNotSaved,
    RequeueLosesPlace,
    JobTimeoutNotSet,
    AbortWithoutKill,
    NoSelfFence,
    SpoolOfAnotherAccepted,
}

impl Bug {
    pub const ALL: &'static [Bug] = &[
        Bug::NoFenceOnAttempt,
        Bug::NoFenceOnSession,
        Bug::AcceptAfterEnd,
        Bug::NoCascade,
        Bug::DoubleEvent,
        Bug::AssignedNotSwept,
        Bug::ReplyBeforeCommit,
        Bug::RestartNotNoticed,
        Bug::ClaimTakesAssigned,
        Bug::SubmitNotIdempotent,
        Bug::UnmatchedIgnoresTags,
        Bug::ReadyTooEarly,
        Bug::WallClockLiveness,
        Bug::NoGraceAfterStart,
        Bug::MassSilenceNotSuspected,
        Bug::AbandonedNotSwept,
        Bug::TimeoutFromAssignment,
        Bug::ForecastForgetsHeldSteps,
        Bug::RunBeforeYes,
        Bug::ResultNotKept,
        Bug::StallCountsAsSilence,
        Bug::ClockNotSaved,
        Bug::RequeueLosesPlace,
        Bug::JobTimeoutNotSet,
        Bug::AbortWithoutKill,
        Bug::NoSelfFence,
        Bug::SpoolOfAnotherAccepted,
    ];
}

#[cfg(feature = "planted-bugs")]
static PLANTED: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Plants this bug instead of whatever was planted, in the whole process.
#[cfg(feature = "planted-bugs")]
pub fn plant(bug: Option<Bug>) {
    let number = bug.map_or(0, |bug| bug as u8);
    PLANTED.store(number, std::sync::atomic::Ordering::Relaxed);
}

#[cfg(feature = "planted-bugs")]
pub(crate) fn planted(bug: Bug) -> bool {
    PLANTED.load(std::sync::atomic::Ordering::Relaxed) == bug as u8
}

#[cfg(not(feature = "planted-bugs"))]
pub(crate) const fn planted(_: Bug) -> bool {
    false
}
