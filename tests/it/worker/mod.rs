//! The worker: its mind alone, and attempts as real processes of this machine, below the real supervisor.

mod capture;
mod environment;
mod escapes;
mod machine;
mod marked;
mod mask;
mod output;
mod slot;
mod slots_and_beats;
mod supervisor;
mod versions;

#[allow(dead_code)] // Other tests need more of it.
#[path = "../../processes/house.rs"]
mod house;
#[allow(dead_code)] // Other tests need more of it.
#[path = "../../processes/proxy.rs"]
mod proxy;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, unbounded};
use stepward::domain::log::{LogRecord, LogStream};
use stepward::domain::protocol::{Assignment, Finished};
use stepward::domain::reason::Reason;
use stepward::domain::task::{Action, Runner};
use stepward::domain::{AttemptRef, JobId, Json, StepId};
use stepward::worker::attempt_log::LogLimits;
use stepward::worker::executor::{Place, Tools};
use stepward::worker::slot::{Listeners, Slot, SlotNews, SlotSettings};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for what must come true, and no longer than it takes.
fn eventually<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "never came: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    eventually(what, || is_true().then_some(()));
}

/// A worker's folder and tools, and a key that no other test's processes carry.
struct Bench {
    folder: TempDir,
    tools: Arc<Tools>,
    place: Place,
    settings: SlotSettings,
}

impl Bench {
    fn new() -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let instance_key = folder.path().file_name().unwrap().to_string_lossy();
        let tools = Tools {
            stepward: env!("CARGO_BIN_EXE_stepward").into(),
            instance_key: format!("instance-{}-{instance_key}", std::process::id()),
            worker_name: "ann".to_string(),
            server_url: "http://127.0.0.1:7717/".to_string(),
            env: BTreeMap::new(),
            docker: "docker".to_string(),
            docker_hardened: false,
            docker_args: Vec::new(),
            allow_privileged: false,
            kubectl: "kubectl".to_string(),
            namespace: None,
        };
        let place = Place {
            folder: folder.path().join("attempt"),
        };
        Bench {
            folder,
            tools: Arc::new(tools),
            place,
            settings: SlotSettings {
                grace_ms: 10_000,
                log: LogLimits::default(),
            },
        }
    }

    fn with_grace_ms(mut self, grace_ms: u64) -> Bench {
        self.settings.grace_ms = grace_ms;
        self
    }

    fn assignment(&self, language: Option<&str>, script: &str) -> Assignment {
        Assignment {
            attempt: AttemptRef {
                step_id: StepId(7),
                attempt: 2,
            },
            job_id: JobId(5),
            task: "deploy".to_string(),
            step: "build".to_string(),
            action: Action::Script {
                runner: Runner::Local,
                image: None,
                language: language.map(str::to_string),
                script: script.to_string(),
            },
            env: BTreeMap::new(),
            workdir: None,
            masks: Vec::new(),
            input: Json::empty_object(),
            item: None,
            item_value: None,
            unrendered: None,
            scheduled_at: None,
            start: None,
            ack_timeout_ms: 60_000,
            prepare_timeout_ms: 900_000,
            timeout_ms: 100_000,
            fenced: false,
        }
    }

    /// A slot that has its assignment, and nothing else yet.
    fn start(&self, assignment: Assignment) -> Held {
        let (news_tx, news_rx) = unbounded();
        let listeners = Listeners {
            on_log: Arc::new(|| {}),
            before_end: Box::new(|_, _| {}),
            news: news_tx,
        };
        let slot = Slot::start(
            assignment,
            self.place.clone(),
            self.tools.clone(),
            self.settings,
            listeners,
        );
        Held { slot, news_rx }
    }

    /// A slot whose step runs.
    fn run(&self, assignment: Assignment) -> Held {
        let held = self.start(assignment);
        assert!(matches!(held.news(), SlotNews::Prepared(_)));
        held.slot.run();
        held
    }

    fn finish(&self, assignment: Assignment) -> Finished {
        self.run(assignment).finished()
    }

    fn finish_script(&self, script: &str) -> Finished {
        self.finish(self.assignment(None, script))
    }

    /// Lines of one stream, put together from their pieces.
    fn log(&self, stream: LogStream) -> Vec<String> {
        let bytes = std::fs::read(self.place.log()).unwrap_or_default();
        lines_of(&bytes, stream)
            .into_iter()
            .map(|line| String::from_utf8_lossy(&line).into_owned())
            .collect()
    }

    fn stdout(&self) -> Vec<String> {
        self.log(LogStream::Stdout)
    }

    fn notes(&self) -> Vec<String> {
        self.log(LogStream::Worker)
    }

    /// The processes that carry this worker's mark.
    fn alive(&self) -> usize {
        let mark = format!("STEPWARD_ATTEMPT_KEY={}/", self.tools.instance_key);
        let folders = std::fs::read_dir("/proc").unwrap();
        let environments = folders.filter_map(|entry| {
            let folder = entry.ok()?.path();
            std::fs::read(folder.join("environ")).ok()
        });
        environments
            .filter(|environ| memchr::memmem::find(environ, mark.as_bytes()).is_some())
            .count()
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }
}

/// Nothing of a test stays behind, also when it fails.
impl Drop for Bench {
    fn drop(&mut self) {
        stepward::worker::marked::kill_marked(&self.tools.instance_key);
    }
}

struct Held {
    slot: Slot,
    news_rx: Receiver<SlotNews>,
}

impl Held {
    fn news(&self) -> SlotNews {
        self.news_rx.recv_timeout(PATIENCE).expect("news in time")
    }

    fn finished(&self) -> Finished {
        match self.news() {
            SlotNews::Ended { finished, .. } => finished,
            other => panic!("{other:?}"),
        }
    }
}

fn lines_of(log: &[u8], stream: LogStream) -> Vec<Vec<u8>> {
    let mut lines: Vec<Vec<u8>> = Vec::new();
    let mut goes_on = None;
    let mut records = log.split(|byte| *byte == b'\n').collect::<Vec<_>>();
    assert_eq!(records.pop(), Some(&b""[..]), "the last record is whole");
    for line in records {
        let record = LogRecord::read(line);
        let record = record.unwrap_or_else(|| panic!("{:?}", String::from_utf8_lossy(line)));
        if record.stream == stream {
            match goes_on == Some(stream) {
                true => lines.last_mut().unwrap().extend_from_slice(record.text),
                false => lines.push(record.text.to_vec()),
            }
        }
        goes_on = record.continues.then_some(record.stream);
    }
    lines
}

fn failed(finished: &Finished) -> (Reason, &str) {
    match finished {
        Finished::Failed {
            reason, message, ..
        } => (*reason, message),
        other => panic!("{other:?}"),
    }
}

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
