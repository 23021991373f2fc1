//! The thread that syncs logs: once a second, so that a power cut takes no more than what came in that time, and at the end. It
//! also measures what they take.

use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::essential::spawn_essential;
use crate::logs::{Logs, Measure};

const INTERVAL: Duration = Duration::from_secs(1);

/// Runs until it is dropped, and syncs once more then.
pub struct LogSync {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl LogSync {
    pub fn start(logs: Logs) -> io::Result<LogSync> {
        // If they are few, that is known from the first moment on.
        let mut measured = Measure::default();
        measure(&logs, &mut measured);
        let (stop, stopped) = bounded(0);
        let thread = spawn_essential("log-sync", move || run(&logs, measured, &stopped))?;
        Ok(LogSync {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for LogSync {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            thread
                .join()
                .expect("a panic of this thread ends the process");
        }
    }
}

fn run(logs: &Logs, mut measured: Measure, stopped: &Receiver<()>) {
    loop {
        let received = stopped.recv_timeout(INTERVAL);
        // What went wrong is logged there, and tried again.
        logs.sync_once();
        match received {
            Err(RecvTimeoutError::Timeout) => measure(logs, &mut measured),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn measure(logs: &Logs, measured: &mut Measure) {
    if let Err(error) = logs.measure(measured) {
        log::debug!("what logs take is not known: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{AttemptRef, JobId, StepId};
    use crate::logs::LogLimits;

    const ATTEMPT: AttemptRef = AttemptRef {
        step_id: StepId(42),
        attempt: 1,
    };

    #[test]
    fn what_was_appended_is_synced_when_it_ends_and_a_second_later_anyway() {
        let folder = tempfile::tempdir().unwrap();
        let logs = Logs::open(folder.path(), LogLimits::default()).unwrap();
        let sync = LogSync::start(logs.clone()).unwrap();
        logs.append(JobId(7), ATTEMPT, 0, b"1 o one\n").unwrap();
        drop(sync);
        assert_eq!(logs.unsynced(), 0, "at the end");

        logs.append(JobId(7), ATTEMPT, 8, b"2 o two\n").unwrap();
        assert_eq!(logs.unsynced(), 1, "nobody does it");
        let _sync = LogSync::start(logs.clone()).unwrap();
        let synced = (0..1_000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            logs.unsynced() == 0
        });
        assert!(synced);
    }
}
