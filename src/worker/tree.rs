//! Everything below a supervisor, from its first look to its last: asks it to end, kills it, takes note of who is gone.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process_group, wait};

use super::processes::{self, Process};

/// How long the same processes may survive being killed before they are called left: they hang in a device.
const UNKILLABLE_AFTER: Duration = Duration::from_secs(10);

/// Everything below the supervisor.
pub(super) struct Tree {
    step: Pid,
    /// How the step itself ended. Until it is asked for, the step's number is nobody else's.
    pub status: Option<WaitStatus>,
    /// Whoever was told to end.
    told: HashSet<(Pid, u64)>,
    /// Those that died of it without having been seen: members of the step's group.
    unseen: u32,
}

impl Tree {
    pub fn new(step: Pid) -> Tree {
        Tree {
            step,
            status: None,
            told: HashSet::new(),
            unseen: 0,
        }
    }

    pub fn killed(&self) -> u32 {
        self.told.len() as u32 + self.unseen
    }

    /// Takes note of who has ended. `true`: there is nobody below any more.
    pub fn reap(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                // Its number may be given to another process once it has ended.
                Ok(Some((pid, status))) if pid == self.step && self.status.is_none() => {
                    self.status = Some(status);
                }
                Ok(Some((pid, status))) => {
                    let by_kill = status.terminating_signal() == Some(Signal::KILL.as_raw());
                    let in_the_end = !self.told.is_empty();
                    if in_the_end && by_kill && !self.told.iter().any(|(told, _)| *told == pid) {
                        self.unseen += 1;
                    }
                }
                Ok(None) => return false,
                Err(Errno::INTR) => {}
                Err(_) => return true,
            }
        }
    }

    pub fn wait_for_end(&mut self, limit: Duration, is_urgent: impl Fn() -> bool) {
        let begun = Instant::now();
        while !self.reap() && begun.elapsed() < limit && !is_urgent() {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Once, to those that live now: what a step starts to tidy up after itself is not asked.
    pub fn ask_to_end(&mut self) {
        for process in self.look() {
            process.signal(Signal::TERM);
            // One that is stopped would not hear it.
            process.signal(Signal::CONT);
        }
    }

    /// Kills until nobody is below. Says how many cannot be killed.
    pub fn kill(&mut self) -> u32 {
        let mut news_at = Instant::now();
        let mut pause = Duration::from_millis(1);
        loop {
            if self.reap() {
                return 0;
            }
            let known = self.told.len();
            let living = self.look();
            if self.status.is_none() && self.step != getpid() {
                // All at once: whoever forks here cannot outrun it, as it can the walk. If nobody is in the group any
                // more, that is well.
                let _ = kill_process_group(self.step, Signal::KILL);
            }
            for process in &living {
                process.signal(Signal::KILL);
            }
            if self.reap() {
                return 0;
            }
            if self.told.len() > known {
                news_at = Instant::now();
                pause = Duration::from_millis(1);
            } else if news_at.elapsed() > UNKILLABLE_AFTER {
                return living.len() as u32;
            } else {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(20));
            }
        }
    }

    /// Who is to be told, each counted once. It is counted before it is told: one that dies with its group may be gone
    /// before its own signal.
    fn look(&mut self) -> Vec<Process> {
        let living = processes::living_below(getpid());
        self.told.extend(living.iter().map(Process::identity));
        living
    }
}
