//! The timings and defaults that verbs need. `config` reads them from the settings file.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    pub heartbeat_interval_ms: i64,
    pub heartbeat_timeout_ms: i64,
    /// The sweeper wakes this often even if it knows of nothing to do.
    pub sweep_interval_ms: i64,
    pub unmatched_step_timeout_ms: i64,
    /// How long an assignment may go without a sign of its preparation.
    pub ack_timeout_ms: i64,
    /// How long it may prepare at all; keep-alives cannot extend this.
    pub prepare_timeout_ms: i64,
    /// How long a step runs before heartbeats that leave it out count.
    pub report_grace_ms: i64,
    /// Between the first word to a process that must end and the last.
    pub cancel_grace_ms: i64,
    pub step_timeout_ms: i64,
    pub job_timeout_ms: i64,
}

impl Settings {
    pub const DEFAULT: Settings = Settings {
        heartbeat_interval_ms: 30_000,
        heartbeat_timeout_ms: 120_000,
        sweep_interval_ms: 60_000,
        unmatched_step_timeout_ms: 30_000,
        ack_timeout_ms: 60_000,
        prepare_timeout_ms: 900_000,
        report_grace_ms: 30_000,
        cancel_grace_ms: 10_000,
        step_timeout_ms: 24 * 3_600_000,
        job_timeout_ms: 7 * 24 * 3_600_000,
    };

    /// A gap in which nobody read the clock, and so nobody was there, counts as an absence of the server from here on: long
    /// before it could be taken for somebody's silence, and not so soon that a busy machine seems to be absent.
    pub fn absence_ms(&self) -> i64 {
        let slack_ms = self.heartbeat_timeout_ms - self.heartbeat_interval_ms;
        (slack_ms / 2).clamp(2_000, 10_000)
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::DEFAULT
    }
}
