//! A house of real processes: a server, its workers, and whoever asks it things.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use stepward::client::{CallError, Client};
use stepward::wire::api::{EventJson, JobJson, List, LogsJson, RecoveryJson, StepJson, WorkerJson};

pub const BINARY: &str = env!("CARGO_BIN_EXE_stepward");

/// Nothing here takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Who presses a key twice needs longer than this between the two.
pub const A_PERSON: Duration = Duration::from_millis(250);

/// Waits for a condition, not for a time.
pub fn await_that<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Timings in which a worker is marked inactive after four seconds.
pub const SETTINGS: &str = "
recovery:
  heartbeat_interval_secs: 1
  heartbeat_timeout_secs: 3
  sweep_interval_secs: 1
  unmatched_step_timeout_secs: 20
  ack_timeout_secs: 5
  prepare_timeout_secs: 10
  report_grace_secs: 1
  cancel_grace_secs: 2
";

/// Timings in which nobody is given up before the story ends, and heartbeats are too far apart to tell anything.
pub const PATIENT: &str = "
recovery:
  heartbeat_interval_secs: 30
  heartbeat_timeout_secs: 120
  cancel_grace_secs: 2
";

/// A sleep that no other process of this machine is in: longer than any story, and as long as no other.
fn sleep_of_its_own() -> String {
    static HOUSES: AtomicU32 = AtomicU32::new(0);
    let house = HOUSES.fetch_add(1, Ordering::Relaxed);
    format!("sleep 8{:07}{house:03}", std::process::id())
}

pub struct House {
    pub folder: tempfile::TempDir,
    data: PathBuf,
    listen: String,
    /// The settings of its server, from its next start on.
    pub settings: String,
    server: Option<Process>,
    pub client: Client,
    workers: usize,
    /// What `SLEEP` in its workflows stands for.
    sleep: String,
    /// What its workers have in their environment besides.
    pub variables: Vec<Variable>,
    /// What its server has, from its next start on.
    pub server_variables: Vec<(&'static str, String)>,
}

impl House {
    /// A server with these workflows, and no worker.
    pub fn with(workflows: &str) -> House {
        House::new(workflows, SETTINGS, None)
    }

    pub fn with_settings(workflows: &str, settings: &str) -> House {
        House::new(workflows, settings, None)
    }

    /// With the server's data somewhere else.
    #[cfg(feature = "faults")]
    pub fn with_data(workflows: &str, data: &Path) -> House {
        House::new(workflows, SETTINGS, Some(data))
    }

    /// Starts a server on a data folder that exists already.
    #[allow(dead_code)] // The stories of the pages share this file and do not need it.
    pub fn over_data(workflows: &str, settings: &str, data: &Path) -> House {
        House::new(workflows, settings, Some(data))
    }

    fn new(workflows: &str, settings: &str, data: Option<&Path>) -> House {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("data");
        let ledger = folder.path().join("ledger");
        let sleep = sleep_of_its_own();
        let workflows = workflows.replace("LEDGER", ledger.to_str().unwrap());
        let workflows = workflows.replace("SLEEP", &sleep);
        fs::create_dir_all(folder.path().join("workflows")).unwrap();
        fs::write(folder.path().join("workflows/all.yaml"), workflows).unwrap();
        let mut house = House {
            data: data.map_or(own, Path::to_path_buf),
            folder,
            listen: "127.0.0.1:0".to_string(),
            settings: settings.to_string(),
            server: None,
            client: Client::new("http://127.0.0.1:1", None),
            workers: 0,
            sleep,
            variables: Vec::new(),
            server_variables: Vec::new(),
        };
        house.start_server();
        house
    }

    #[allow(dead_code)] // The stories of the pages share this file and do not need it.
    /// Adds a setting: workflow files may name these files and folders. The next start of the server heeds it.
    pub fn allow_secrets(&mut self, paths: &[PathBuf]) {
        let paths: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        self.settings += &format!("\nsecrets: {{ allow_files: [{}] }}\n", paths.join(", "));
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.listen)
    }

    pub fn start_server(&mut self) {
        let (path, listen) = (self.folder.path().display(), &self.listen);
        // These stories are not about who may come in, unless their settings say so.
        let auth = match self.settings.contains("auth:") {
            true => "",
            false => "auth: { required: false }\n",
        };
        let config = format!(
            "listen: {listen}\ndata_dir: {}\nworkflows_dir: {path}/workflows\n{auth}{}",
            self.data.display(),
            self.settings
        );
        let file = self.path("server.yaml");
        fs::write(&file, config).unwrap();
        let mut command = Command::new(BINARY);
        command.arg("server").arg("--config").arg(file);
        command.envs(self.server_variables.iter().cloned());
        let server = Process::start("server", command);
        let listening = await_that("the server listens", || {
            assert!(server.is_alive(), "the server ended: {}", server.said());
            let said = server.said();
            let line = said.lines().find(|line| line.contains("listening on"));
            line.map(|line| line.rsplit("http://").next().unwrap().to_string())
        });
        self.listen = listening;
        self.client = Client::new(&self.url(), None);
        self.server = Some(server);
    }

    pub fn server(&self) -> &Process {
        self.server.as_ref().expect("the server runs")
    }

    pub fn kill_server(&mut self) {
        self.server.take().expect("the server runs").kill();
    }

    /// Returns how it ended.
    pub fn stop_server(&mut self) -> bool {
        let server = self.server.take().expect("the server runs");
        server.signal(Signal::TERM);
        server.wait()
    }

    /// Stops the server, and returns what it says until its end.
    #[allow(dead_code)] // The stories of the pages share this file and do not need it.
    pub fn stop_server_and_listen(&mut self) -> Arc<Mutex<String>> {
        let said = self.server().said.clone();
        assert!(self.stop_server());
        said
    }

    /// A worker of its own folder that offers `script`.
    pub fn worker(&mut self, slots: u32) -> Worker {
        self.workers += 1;
        let name = format!("w{}", self.workers);
        self.worker_named(&name, slots, &self.url(), "")
    }

    pub fn worker_with(&mut self, slots: u32, url: &str, settings: &str) -> Worker {
        self.workers += 1;
        let name = format!("w{}", self.workers);
        self.worker_named(&name, slots, url, settings)
    }

    /// A worker with a name that may hold anything.
    #[allow(dead_code)] // The stories of the pages need it.
    pub fn worker_called(&mut self, name: &str, slots: u32, settings: &str) -> Worker {
        self.workers += 1;
        let folder = format!("w{}", self.workers);
        self.worker_in(&folder, name, slots, &self.url(), settings)
    }

    fn worker_named(&self, name: &str, slots: u32, url: &str, settings: &str) -> Worker {
        self.worker_in(name, name, slots, url, settings)
    }

    fn worker_in(&self, folder: &str, name: &str, slots: u32, url: &str, settings: &str) -> Worker {
        let path = self.folder.path().display();
        // JSON is YAML.
        let quoted = serde_json::Value::from(name);
        let config = format!(
            "server_url: {url}\nname: {quoted}\nslots: {slots}\ndata_dir: {path}/{folder}\n{settings}\n"
        );
        let file = self.path(&format!("{folder}.yaml"));
        fs::write(&file, config).unwrap();
        let worker = Worker {
            name: name.to_string(),
            config: file,
            folder: self.path(folder),
            variables: self.variables.clone(),
            process: None,
        };
        let worker = worker.started();
        self.await_worker(name, "active");
        worker
    }

    pub fn await_worker(&self, name: &str, status: &str) -> WorkerJson {
        await_that(&format!("worker {name} is {status}"), || {
            let found = self
                .workers()
                .into_iter()
                .find(|worker| worker.name == name);
            found.filter(|worker| worker.status == status)
        })
    }

    /// Asks until it is answered: the server may be starting or stopped.
    pub fn get<A: serde::de::DeserializeOwned>(&self, path: &str) -> A {
        await_that(&format!("an answer at {path}"), || {
            match self.client.get(path, Duration::from_secs(5)) {
                Ok(answer) => Some(answer),
                Err(CallError::Unreachable(_)) => None,
                Err(error) => panic!("{path}: {error}"),
            }
        })
    }

    pub fn post<A: serde::de::DeserializeOwned>(&self, path: &str) -> Result<A, CallError> {
        self.post_with(path, serde_json::json!({}))
    }

    pub fn post_with<A: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        body: serde_json::Value,
    ) -> Result<A, CallError> {
        self.client.post(path, &body, Duration::from_secs(10))
    }

    pub fn workers(&self) -> Vec<WorkerJson> {
        self.get::<List<WorkerJson>>("/api/workers").items
    }

    pub fn submit(&self, task: &str) -> i64 {
        self.submit_with(task, serde_json::json!({})).unwrap().id
    }

    pub fn submit_with(&self, task: &str, input: serde_json::Value) -> Result<JobJson, CallError> {
        let path = format!("/api/tasks/{task}/jobs");
        let request = serde_json::json!({"input": input});
        self.client.post(&path, &request, Duration::from_secs(10))
    }

    /// Writes a file of its workflows.
    pub fn write_workflow(&self, name: &str, text: &str) {
        fs::write(self.path("workflows").join(name), text).unwrap();
    }

    /// All that the server has on disk: every file of its data, by name.
    pub fn data_files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        fn collect(folder: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                let path = entry.path();
                match path.is_dir() {
                    true => collect(&path, files),
                    false => files.push((path.clone(), fs::read(&path).unwrap())),
                }
            }
        }
        let mut files = Vec::new();
        collect(&self.data, &mut files);
        files
    }

    pub fn job(&self, job_id: i64) -> JobJson {
        self.get(&format!("/api/jobs/{job_id}"))
    }

    pub fn step(&self, job_id: i64, name: &str) -> StepJson {
        let steps = self.job(job_id).steps.unwrap();
        steps.into_iter().find(|step| step.name == name).unwrap()
    }

    pub fn await_job(&self, job_id: i64, status: &str) -> JobJson {
        await_that(&format!("job {job_id} is {status}"), || {
            let job = self.job(job_id);
            let ended = job.ended_at.is_some();
            let text = || serde_json::to_string(&job).unwrap();
            assert!(!ended || job.status == status, "not {status}: {}", text());
            (job.status == status).then_some(job)
        })
    }

    pub fn await_step(&self, job_id: i64, name: &str, status: &str) -> StepJson {
        await_that(&format!("step {name} of job {job_id} is {status}"), || {
            let step = self.step(job_id, name);
            (step.status == status).then_some(step)
        })
    }

    pub fn cancel(&self, job_id: i64) {
        let _: JobJson = self.post(&format!("/api/jobs/{job_id}/cancel")).unwrap();
    }

    /// Forced or not; returns the status of the answer.
    pub fn delete_worker(&self, worker_id: i64, force: bool) -> u16 {
        let address = self.url();
        let address = address.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let path = format!("/api/workers/{worker_id}?force={force}");
        let request =
            format!("DELETE {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    pub fn events(&self, job_id: i64) -> Vec<EventJson> {
        let path = format!("/api/jobs/{job_id}/events");
        self.get::<List<EventJson>>(&path).items
    }

    /// Everything that happened, oldest first.
    pub fn all_events(&self) -> Vec<EventJson> {
        let mut events = Vec::new();
        let mut after = Some("0".to_string());
        while let Some(seen) = after {
            let path = format!("/api/events?after={seen}&limit=500");
            let page: List<EventJson> = self.get(&path);
            events.extend(page.items);
            after = page.next;
        }
        events
    }

    /// Everything that happened, oldest first, in few words. Each job tells its part of it.
    pub fn story(&self) -> Vec<String> {
        let all = self.all_events();
        let jobs: BTreeSet<i64> = all.iter().filter_map(|event| event.job_id).collect();
        for job_id in jobs {
            let its_own = all.iter().filter(|event| event.job_id == Some(job_id));
            let its_own: Vec<i64> = its_own.map(|event| event.seq).collect();
            let told = self.events(job_id).into_iter().map(|event| event.seq);
            // It may have gone on since.
            let told: Vec<i64> = told.take(its_own.len()).collect();
            assert_eq!(told, its_own, "job {job_id}");
        }
        all.iter().map(in_words).collect()
    }

    pub fn log(&self, job_id: i64, step: &str) -> LogsJson {
        self.get(&format!("/api/jobs/{job_id}/steps/{step}/logs"))
    }

    pub fn log_lines(&self, job_id: i64, step: &str) -> Vec<String> {
        let lines = self.log(job_id, step).lines.into_iter();
        lines.map(|line| line.text).collect()
    }

    /// The log holds this line, and no other that is only like it.
    pub fn await_log_line(&self, job_id: i64, step: &str, text: &str) {
        await_that(text, || {
            let lines = self.log_lines(job_id, step);
            lines.iter().any(|line| line == text).then_some(())
        });
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Recovery has looked at everything since this was called.
    pub fn await_sweep(&self) {
        let last = || self.get::<RecoveryJson>("/api/recovery").last_sweep;
        let before = last().map(|sweep| sweep.at.0.0);
        await_that("a sweep", || {
            let now = last().map(|sweep| sweep.at.0.0);
            (now > before).then_some(())
        });
    }

    /// The processes of its steps that are in a `SLEEP`.
    pub fn asleep(&self) -> Vec<i32> {
        processes(&self.sleep)
    }

    pub fn await_asleep(&self, count: usize) {
        await_that(&format!("{count} sleep"), || {
            (self.asleep().len() == count).then_some(())
        });
    }

    pub fn await_nobody_asleep(&self) {
        await_that("no process is left", || {
            self.asleep().is_empty().then_some(())
        });
    }

    /// Whatever waits for it in a script goes on.
    pub fn open_gate(&self) {
        fs::write(self.path("ledger.gate"), "").unwrap();
    }

    /// The story is over: this is all that happened, in this order, and the database keeps every rule.
    pub fn ends(self, expected: &[&str]) {
        let begun = Instant::now();
        loop {
            let story = self.story();
            let is_on_its_way =
                story.len() < expected.len() && expected.starts_with(&words(&story));
            if !is_on_its_way || begun.elapsed() > PATIENCE {
                assert_eq!(story, expected);
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.check();
    }

    /// The story is over: the database must keep every rule.
    pub fn check(mut self) {
        if self.server.is_some() {
            assert!(self.stop_server(), "the server ended with an error");
        }
        check_database(&self.data);
    }
}

/// What happened (by which phase of recovery), to which attempt, why, and whose it was:
/// `step_failed(1) 1/work/1 worker_lost w1`.
fn in_words(event: &EventJson) -> String {
    let phase = event.phase.map(|phase| format!("({phase})"));
    let place = match (event.job_id, &event.step, event.attempt) {
        (Some(job_id), Some(step), Some(attempt)) => Some(format!("{job_id}/{step}/{attempt}")),
        (job_id, _, _) => job_id.map(|job_id| job_id.to_string()),
    };
    let words = [place, event.reason.clone(), event.worker.clone()];
    let words = words.into_iter().flatten().map(|word| format!(" {word}"));
    let words: String = words.collect();
    format!("{}{}{words}", event.kind, phase.unwrap_or_default())
}

pub fn words(story: &[String]) -> Vec<&str> {
    story.iter().map(String::as_str).collect()
}

pub fn check_database(folder: &Path) {
    let checked = Command::new(BINARY)
        .args(["db", "check"])
        .arg(folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&checked.stdout);
    let complained = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{said}{complained}");
}

/// Processes whose command line holds this, as they are now.
pub fn processes(words: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(words) {
            found.push(pid);
        }
    }
    found
}

pub type Variable = (&'static str, String);

pub struct Worker {
    pub name: String,
    config: PathBuf,
    pub folder: PathBuf,
    variables: Vec<Variable>,
    process: Option<Process>,
}

impl Worker {
    fn started(mut self) -> Worker {
        self.start();
        self
    }

    pub fn start(&mut self) {
        let mut command = Command::new(BINARY);
        command.arg("worker").arg("--config").arg(&self.config);
        command.envs(self.variables.iter().cloned());
        self.process = Some(Process::start(&self.name, command));
    }

    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("the worker runs")
    }

    pub fn kill(&mut self) {
        self.process.take().expect("the worker runs").kill();
    }

    /// At once, as whoever watches over it does.
    pub fn kill_and_restart(&mut self) {
        self.kill();
        self.start();
    }

    pub fn signal(&self, signal: Signal) {
        self.process().signal(signal);
    }

    /// Whether it ended well.
    pub fn wait(&mut self) -> bool {
        self.process.take().expect("the worker runs").wait()
    }

    /// What its processes and containers are marked with, over its lives.
    pub fn instance_key(&self) -> String {
        fs::read_to_string(self.folder.join("instance")).unwrap()
    }

    /// The parents of what it runs.
    pub fn supervisors(&self) -> Vec<Pid> {
        let id = self.process().id() as i32;
        let all = stepward::worker::processes::all().into_iter();
        let children = all.filter(|process| process.parent == id && !process.ended);
        let children = children.map(|process| process.pid);
        let is_supervisor = |pid: &Pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.ends_with(b"\0supervise\0")
        };
        children.filter(is_supervisor).collect()
    }

    /// Results that it has not delivered.
    pub fn spooled(&self) -> usize {
        let Ok(entries) = fs::read_dir(self.folder.join("spool")) else {
            return 0;
        };
        // What is still being written has another name.
        let names = entries.flatten().map(|entry| entry.path());
        names
            .filter(|name| name.extension().is_some_and(|kind| kind == "json"))
            .count()
    }
}

/// A process of ours, with what it says on stderr. It does not outlive its story.
pub struct Process {
    child: Mutex<Child>,
    said: Arc<Mutex<String>>,
    /// Nobody sends here: the channel closes when the last line of its output has been read.
    has_said_all: Mutex<Receiver<()>>,
}

impl Process {
    pub fn start(name: &str, mut command: Command) -> Process {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .env("STEPWARD_LOG", "info")
            .spawn()
            .unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let (stderr, heard, name) = (child.stderr.take().unwrap(), said.clone(), name.to_string());
        let (until_all_is_read, has_said_all) = channel();
        std::thread::spawn(move || {
            listen(stderr, &heard, &name);
            drop(until_all_is_read);
        });
        Process {
            child: Mutex::new(child),
            said,
            has_said_all: Mutex::new(has_said_all),
        }
    }

    pub fn id(&self) -> u32 {
        self.child.lock().unwrap().id()
    }

    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    pub fn is_alive(&self) -> bool {
        self.child.lock().unwrap().try_wait().unwrap().is_none()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.id() as i32).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// As a person would: what comes sooner is the same signal.
    pub fn signal_again(&self, signal: Signal) {
        std::thread::sleep(A_PERSON);
        self.signal(signal);
    }

    pub fn kill(self) {
        let mut child = self.child.lock().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Waits for its end by itself: whether that was a success.
    pub fn wait(self) -> bool {
        self.code() == Some(0)
    }

    /// Waits until the process ends by itself and returns its exit code. `said` is complete then, unless a process that outlives it
    /// keeps its output open.
    pub fn code(&self) -> Option<i32> {
        let ended = await_that("the process ends", || {
            self.child.lock().unwrap().try_wait().unwrap()
        });
        let has_said_all = self.has_said_all.lock().unwrap();
        let _ = has_said_all.recv_timeout(Duration::from_secs(1));
        ended.code()
    }

    /// After a SIGSTOP: every thread has obeyed.
    pub fn await_standstill(&self) {
        await_that("it stands still", || {
            let mut threads = fs::read_dir(format!("/proc/{}/task", self.id())).unwrap();
            let stands = |thread: std::io::Result<fs::DirEntry>| {
                let stat = fs::read_to_string(thread.unwrap().path().join("stat"));
                stat.is_ok_and(|stat| stat.contains(") T "))
            };
            threads.all(stands).then_some(())
        });
    }

    /// A line of /proc/PID/status, in kB or as a number.
    pub fn status(&self, key: &str) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = text.lines().find(|line| line.starts_with(key)).unwrap();
        let number = line.split_whitespace().nth(1).unwrap();
        number.parse().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let mut child = self.child.lock().unwrap();
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn listen(stderr: impl Read, heard: &Mutex<String>, name: &str) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        if std::env::var_os("STORY").is_some() {
            println!("{name}: {line}");
        }
        let mut heard = heard.lock().unwrap();
        heard.push_str(&line);
        heard.push('\n');
    }
}
