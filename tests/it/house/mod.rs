//! TestHouse: a real engine on a real database in a temporary folder, with a clock that tests move, and workers that do
//! what they are told. When a test ends, nothing in the database may be in breach of the invariants.

pub mod counted;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use stepward::clock::ManualClock;
use stepward::domain::check::Problems;
use stepward::domain::event::{Event, EventKind};
use stepward::domain::job::JobState;
use stepward::domain::outbox::{Message, Target};
use stepward::domain::peer::Features;
use stepward::domain::protocol::Registration;
use stepward::domain::step::{Step, StepState};
use stepward::domain::task::{Definition, StepDraft, TaskDraft};
use stepward::domain::value::{ValueSpec, ValueType};
use stepward::domain::{AttemptRef, EventSeq, JobId, Now, WorkerId};
use stepward::engine::{
    Assignment, Beat, BeatAnswer, Engine, EngineError, Finished, HeldAttempt, HeldPhase, JobView,
    Poll, PollAnswer, Settings, Spooled, Submission, Verdict, Why,
};
use stepward::secret_policy::SecretPolicy;
use stepward::store::{Frozen, MessageFilter, Store, StoreOptions};
use stepward::sweeper::sweep_once;
use tempfile::TempDir;

pub struct TestHouse {
    pub engine: Engine,
    pub clock: ManualClock,
    folder: TempDir,
    sessions: AtomicU64,
    /// Somebody wrote to the database behind the store's back.
    is_forged: AtomicBool,
}

impl TestHouse {
    pub fn new() -> TestHouse {
        // Thousands of rows in one transaction of an unoptimised build, on a busy machine, are slow but not stuck.
        let write_deadline = Duration::from_secs(60);
        TestHouse::with_options(StoreOptions {
            write_deadline,
            ..StoreOptions::default()
        })
    }

    pub fn with_options(options: StoreOptions) -> TestHouse {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), options).unwrap();
        let engine = Engine::new(store, Settings::default())
            .with_secret_policy(Arc::new(SecretPolicy::anything()));
        // Whom hooks may tell.
        engine.set_targets(["tell", "cheer"].map(Target::of_hooks).to_vec());
        TestHouse {
            engine,
            clock: ManualClock::default(),
            folder,
            sessions: AtomicU64::new(0),
            is_forged: AtomicBool::new(false),
        }
    }

    /// The database file, for what no verb can do.
    pub fn database(&self) -> std::path::PathBuf {
        self.is_forged.store(true, Ordering::Relaxed);
        self.folder.path().join("stepward.db")
    }

    pub fn now(&self) -> Now {
        self.clock.now()
    }

    /// Submits these steps as a task called `main`.
    pub fn submit(&self, steps: Vec<StepDraft>) -> JobId {
        self.submit_tasks(vec![TaskDraft::new("main", steps)])
    }

    /// Submits the first of these tasks.
    pub fn submit_tasks(&self, tasks: Vec<TaskDraft>) -> JobId {
        self.submission(Submission::of(&frozen(tasks))).unwrap()
    }

    pub fn submission(&self, submission: Submission) -> Result<JobId, EngineError> {
        self.engine
            .submit(submission, self.now())
            .map(|submitted| submitted.job_id)
    }

    /// A worker with one session, offering `script` and these tags.
    pub fn worker(&self, name: &str, tags: &[&str], slots: u32) -> TestWorker<'_> {
        self.session(name, tags, slots, Vec::new()).0
    }

    /// A new life of the worker of this name, with what its former life had spooled.
    pub fn session(
        &self,
        name: &str,
        tags: &[&str],
        slots: u32,
        spooled: Vec<Spooled>,
    ) -> (TestWorker<'_>, Vec<Verdict>) {
        self.session_announcing(name, tags, slots, spooled, Features::NONE)
    }

    /// The same for a worker that announces features.
    pub fn session_announcing(
        &self,
        name: &str,
        tags: &[&str],
        slots: u32,
        spooled: Vec<Spooled>,
        features: Features,
    ) -> (TestWorker<'_>, Vec<Verdict>) {
        let life = self.sessions.fetch_add(1, Ordering::Relaxed);
        let key = format!("{name}-life-{life}");
        let registration = Registration {
            features,
            ..registration(name, &key, tags, slots)
        };
        let opened = self
            .engine
            .open_session(registration, spooled, self.now())
            .unwrap();
        let worker = TestWorker {
            house: self,
            worker_id: opened.worker_id,
            key,
        };
        (worker, opened.spooled)
    }

    /// One sweep: what it did, as `phase deed reason` of each, in order.
    pub fn sweep(&self) -> Vec<String> {
        let report = sweep_once(&self.engine, self.now());
        assert!(report.failures.is_empty(), "{:?}", report.failures);
        let told = report.recoveries.iter().map(|recovery| {
            let reason = recovery.reason.map_or("", |reason| reason.as_str());
            format!("{} {} {reason}", recovery.phase.number(), recovery.deed)
        });
        told.map(|told| told.trim_end().to_string()).collect()
    }

    pub fn job(&self, job_id: JobId) -> JobView {
        self.engine.job(job_id).unwrap()
    }

    pub fn job_state(&self, job_id: JobId) -> JobState {
        self.job(job_id).job.state
    }

    pub fn step(&self, job_id: JobId, name: &str) -> Step {
        let job = self.job(job_id);
        job.step(name)
            .unwrap_or_else(|| panic!("job {job_id} has no step {name}"))
            .clone()
    }

    pub fn step_state(&self, job_id: JobId, name: &str) -> StepState {
        self.step(job_id, name).state
    }

    pub fn child_of(&self, job_id: JobId, name: &str) -> JobId {
        self.step(job_id, name)
            .child_job_id
            .expect("the step has a child job")
    }

    /// `a completed, b skipped → failed`
    pub fn summary(&self, job_id: JobId) -> String {
        let view = self.job(job_id);
        let steps: Vec<String> = view
            .steps
            .iter()
            .map(|(name, step)| format!("{name} {}", step.state))
            .collect();
        format!("{} → {}", steps.join(", "), view.job.state)
    }

    pub fn why(&self, job_id: JobId, name: &str) -> Why {
        self.engine
            .why(self.step(job_id, name).step_id, self.now())
            .unwrap()
    }

    pub fn events(&self) -> Vec<Event> {
        self.engine
            .store
            .read(|tx| Ok::<_, EngineError>(tx.events_after(EventSeq(0), 100_000)?))
            .unwrap()
    }

    pub fn event_kinds(&self, job_id: JobId) -> Vec<EventKind> {
        let events = self.engine.events_of_job(job_id).unwrap();
        events.into_iter().map(|event| event.fact.kind).collect()
    }

    pub fn count_events(&self, job_id: JobId, kind: EventKind) -> usize {
        self.event_kinds(job_id)
            .into_iter()
            .filter(|&found| found == kind)
            .count()
    }

    /// All messages, oldest first.
    pub fn outbox(&self) -> Vec<Message> {
        let everything = MessageFilter::default();
        let (mut messages, _) = self.engine.messages(None, &everything, 100_000).unwrap();
        messages.reverse();
        messages
    }

    /// Lets a worker who can do everything run all that is claimable. Steps named in `failing` fail.
    pub fn run_all(&self, failing: &[&str]) {
        let worker = self.worker("everyman", &["docker", "kubernetes"], 1000);
        worker.run_all(failing);
    }

    pub fn breaches(&self) -> Vec<String> {
        let breaches = self.engine.breaches().unwrap();
        breaches
            .into_iter()
            .map(|breach| format!("{}: {}", breach.rule, breach.what))
            .collect()
    }
}

impl Drop for TestHouse {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.breaches(), Vec::<String>::new());
            if !self.is_forged.load(Ordering::Relaxed) {
                assert_eq!(counted::miscounts(self), Vec::<String>::new());
            }
        }
    }
}

/// A worker that does what it is told, in the words of the protocol.
pub struct TestWorker<'a> {
    pub house: &'a TestHouse,
    pub worker_id: WorkerId,
    pub key: String,
}

impl TestWorker<'_> {
    pub fn poll(&self, free_slots: u32, held: &[AttemptRef]) -> PollAnswer {
        self.try_poll(free_slots, held).unwrap()
    }

    pub fn try_poll(&self, free: u32, held: &[AttemptRef]) -> Result<PollAnswer, EngineError> {
        let poll = Poll {
            session_key: self.key.clone(),
            free_slots: free,
            held: held.to_vec(),
        };
        self.house.engine.poll(poll, self.house.now())
    }

    /// The one step it is given.
    pub fn claim(&self) -> Assignment {
        let mut assignments = self.poll(1, &[]).assignments;
        assert_eq!(assignments.len(), 1, "one step is claimable");
        assignments.remove(0)
    }

    /// The names of the steps it is given.
    pub fn claim_names(&self, free_slots: u32) -> Vec<String> {
        self.poll(free_slots, &[])
            .assignments
            .into_iter()
            .map(|found| found.step)
            .collect()
    }

    pub fn start(&self, attempt: AttemptRef) -> Verdict {
        self.house
            .engine
            .start(&self.key, attempt, self.house.now())
            .unwrap()
    }

    /// Claims a step and starts it.
    pub fn begin(&self) -> Assignment {
        let assignment = self.claim();
        assert_eq!(self.start(assignment.attempt), Verdict::Accepted);
        assignment
    }

    pub fn finish(&self, attempt: AttemptRef, finished: Finished) -> Verdict {
        self.house
            .engine
            .finish(&self.key, attempt, finished, self.house.now())
            .unwrap()
    }

    pub fn complete(&self, attempt: AttemptRef) -> Verdict {
        self.finish(attempt, Finished::completed())
    }

    pub fn fail(&self, attempt: AttemptRef) -> Verdict {
        self.finish(attempt, Finished::exited(1))
    }

    pub fn decline(&self, attempt: AttemptRef, why: &str) -> Verdict {
        self.house
            .engine
            .decline(&self.key, attempt, why, self.house.now())
            .unwrap()
    }

    pub fn heartbeat(&self, seq: i64, held: &[(AttemptRef, HeldPhase)]) -> BeatAnswer {
        let held = held
            .iter()
            .map(|&(attempt, phase)| HeldAttempt { attempt, phase })
            .collect();
        let beat = Beat {
            session_key: self.key.clone(),
            seq,
            held,
        };
        self.house.engine.heartbeat(beat, self.house.now()).unwrap()
    }

    /// Runs all that it is given until there is nothing more. Steps named in `failing` fail.
    pub fn run_all(&self, failing: &[&str]) {
        loop {
            let assignments = self.poll(1000, &[]).assignments;
            if assignments.is_empty() {
                return;
            }
            for found in assignments {
                assert_eq!(self.start(found.attempt), Verdict::Accepted);
                let fails = failing.contains(&found.step.as_str());
                let verdict = if fails {
                    self.fail(found.attempt)
                } else {
                    self.complete(found.attempt)
                };
                assert_eq!(verdict, Verdict::Accepted);
            }
        }
    }
}

pub fn registration(name: &str, key: &str, tags: &[&str], slots: u32) -> Registration {
    let tags = tags
        .iter()
        .chain(&["script"])
        .map(|tag| tag.to_string())
        .collect();
    Registration {
        instance_key: format!("instance of {name}"),
        session_key: key.to_string(),
        name: name.to_string(),
        tags,
        slots,
        version: "0.1.0".to_string(),
        platform: "linux".to_string(),
        features: Features::NONE,
    }
}

pub fn checked(tasks: Vec<TaskDraft>) -> Result<Definition, Problems> {
    let root = tasks[0].name.clone();
    Definition::check(&root, tasks)
}

pub fn frozen(tasks: Vec<TaskDraft>) -> Frozen {
    Frozen::new(Arc::new(checked(tasks).unwrap()))
}

/// A task called `main` that takes these inputs, whatever they are.
pub fn taking(inputs: &[&str], steps: Vec<StepDraft>) -> TaskDraft {
    let spec = |name: &&str| ValueSpec::new(name, ValueType::Json);
    TaskDraft {
        inputs: inputs.iter().map(spec).collect(),
        ..TaskDraft::new("main", steps)
    }
}

/// A script step of this name.
pub fn script(name: &str) -> StepDraft {
    StepDraft::script(name, "true")
}
