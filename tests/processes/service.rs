//! Servers and workers as services: the socket of a service manager hears when they are ready, that they live, and that they stop.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use stepward::client::Client;

use crate::house::{BINARY, House, PATIENT, Process, await_that};
use crate::ledger::AWAIT_GATE;

/// The other end of the socket, and all that came, with the time since it was there.
struct Manager {
    heard: Arc<Mutex<Vec<(Duration, String)>>>,
    variables: Vec<(&'static str, String)>,
}

impl Manager {
    /// It wants to hear of its service within this time.
    fn in_folder(folder: &Path, watchdog: Option<Duration>) -> Manager {
        let path = folder.join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let heard = Arc::<Mutex<Vec<(Duration, String)>>>::default();
        let all = heard.clone();
        // It ends with the story's process.
        std::thread::spawn(move || {
            let begun = Instant::now();
            let mut datagram = [0; 4096];
            while let Ok(length) = socket.recv(&mut datagram) {
                let text = String::from_utf8_lossy(&datagram[..length]).into_owned();
                all.lock().unwrap().push((begun.elapsed(), text));
            }
        });
        let mut variables = vec![("NOTIFY_SOCKET", path.display().to_string())];
        let watchdog = watchdog.map(|watchdog| watchdog.as_micros().to_string());
        variables.extend(watchdog.map(|micros| ("WATCHDOG_USEC", micros)));
        Manager { heard, variables }
    }

    fn heard(&self, word: &str) -> usize {
        let heard = self.heard.lock().unwrap();
        heard.iter().filter(|(_, text)| text == word).count()
    }

    fn await_word(&self, word: &str) {
        await_that(word, || (self.heard(word) > 0).then_some(()));
    }

    fn await_status(&self, status: &str) {
        self.await_word(&format!("STATUS={status}"));
    }

    /// The last of its signs of life is long ago, by what it was promised.
    #[cfg(feature = "faults")]
    fn await_silence(&self, watchdog: Duration) {
        await_that("it is silent", || {
            let before = self.heard("WATCHDOG=1");
            std::thread::sleep(watchdog);
            (self.heard("WATCHDOG=1") == before).then_some(())
        });
    }

    /// Nobody is ended for one word that is late: three come in the time of one.
    fn is_fed(&self, watchdog: Duration) {
        let seen = self.heard("WATCHDOG=1");
        await_that("it is fed again and again", || {
            (self.heard("WATCHDOG=1") >= seen + 6).then_some(())
        });
        let heard = self.heard.lock().unwrap();
        let fed = heard.iter().filter(|(_, text)| text == "WATCHDOG=1");
        let times: Vec<Duration> = fed.map(|(at, _)| *at).collect();
        let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert!(
            longest.is_some_and(|longest| longest < watchdog),
            "{times:?}"
        );
    }
}

fn server_of(manager: &Manager, folder: &Path) -> Process {
    let mut server = Command::new(BINARY);
    server.args(["server", "--no-auth", "--listen", "127.0.0.1:0"]);
    server.arg("--data-dir").arg(folder.join("data"));
    server.current_dir(folder);
    server.envs(manager.variables.iter().cloned());
    Process::start("server", server)
}

/// Of the server that announced itself there.
fn client_of(folder: &Path) -> Client {
    let announced = fs::read_to_string(folder.join("data/server.json")).unwrap();
    let announced: serde_json::Value = serde_json::from_str(&announced).unwrap();
    Client::new(announced["url"].as_str().unwrap(), None)
}

#[test]
fn a_server_is_ready_once_it_answers_lives_by_its_sweeper_and_says_that_it_stops() {
    let folder = tempfile::tempdir().unwrap();
    let watchdog = Duration::from_secs(3);
    let manager = Manager::in_folder(folder.path(), Some(watchdog));
    let server = server_of(&manager, folder.path());
    manager.await_word("READY=1");
    // At the very moment: nobody asks twice.
    let client = client_of(folder.path());
    let health = client.ready(Duration::from_secs(10)).unwrap();
    assert_eq!(health.problems, Vec::<String>::new());
    manager.is_fed(watchdog);
    manager.await_status("0 jobs running, 0 of 0 workers active");
    assert_eq!(manager.heard("STOPPING=1"), 0);
    server.signal(Signal::TERM);
    manager.await_word("STOPPING=1");
    assert!(server.wait());
    assert_eq!(manager.heard("READY=1"), 1);
}

/// The threads that answer requests live on; whoever asked those would believe that all is well.
#[cfg(feature = "faults")] // It needs strace.
#[test]
fn a_server_whose_disk_hangs_is_silent_though_it_still_answers() {
    let folder = tempfile::tempdir().unwrap();
    let watchdog = Duration::from_secs(3);
    let manager = Manager::in_folder(folder.path(), Some(watchdog));
    let server = server_of(&manager, folder.path());
    manager.await_word("READY=1");
    manager.is_fed(watchdog);
    // From now on no sync comes back.
    let mut hang = Command::new("strace");
    hang.args([
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=fdatasync",
        "-e",
    ]);
    hang.arg("inject=fdatasync:delay_enter=600000000");
    hang.args(["-p", &server.id().to_string()]);
    let hang = Process::start("strace", hang);
    manager.await_silence(watchdog);
    let client = client_of(folder.path());
    let alive = client.get::<serde_json::Value>("/api/workers", Duration::from_secs(10));
    assert!(alive.is_ok(), "{alive:?}");
    // What systemd does then. Who is traced is gone once nobody traces it.
    server.signal(Signal::KILL);
    hang.kill();
    assert!(!server.wait());
    let manager = Manager::in_folder(&fresh(folder.path(), "next"), Some(watchdog));
    let next = server_of(&manager, folder.path());
    manager.await_word("READY=1");
    manager.is_fed(watchdog);
    next.signal(Signal::TERM);
    assert!(next.wait());
    crate::house::check_database(&folder.path().join("data"));
}

#[cfg(feature = "faults")]
fn fresh(folder: &Path, name: &str) -> std::path::PathBuf {
    let folder = folder.join(name);
    fs::create_dir(&folder).unwrap();
    folder
}

/// Nobody would be helped if a unit failed, again and again, while its server is restarted.
#[test]
fn a_worker_is_ready_though_its_server_is_away_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let watchdog = Duration::from_secs(3);
    let manager = Manager::in_folder(folder.path(), Some(watchdog));
    let mut worker = Command::new(BINARY);
    worker.args(["worker", "--server", "http://127.0.0.1:1", "--data-dir"]);
    worker.arg(folder.path().join("w"));
    worker.envs(manager.variables.iter().cloned());
    let worker = Process::start("worker", worker);
    manager.await_word("READY=1");
    manager.await_status("0 steps, the server does not answer yet");
    manager.is_fed(watchdog);
    worker.signal(Signal::TERM);
    manager.await_word("STOPPING=1");
    assert!(worker.wait());
}

#[test]
fn a_worker_that_drains_asks_for_time_as_long_as_it_runs_something_and_steps_know_nothing_of_it() {
    let script = format!("env; {AWAIT_GATE}");
    let workflows = format!("tasks: {{ gated: {{ flow: {{ work: {{ script: '{script}' }} }} }} }}");
    let mut house = House::with_settings(&workflows, PATIENT);
    let watchdog = Duration::from_secs(3);
    let manager = Manager::in_folder(house.folder.path(), Some(watchdog));
    house.variables = manager.variables.clone();
    let mut worker = house.worker(2);
    let job_id = house.submit("gated");
    house.await_step(job_id, "work", "running");
    manager.await_status("1 step, connected");
    worker.signal(Signal::TERM);
    manager.await_word("STOPPING=1");
    manager.await_status("finishing 1 step before it ends");
    await_that("it asks again and again", || {
        (manager.heard("EXTEND_TIMEOUT_USEC=60000000") >= 3).then_some(())
    });
    house.open_gate();
    assert!(worker.wait());
    house.await_job(job_id, "completed");
    let lines = house.log_lines(job_id, "work");
    assert!(
        lines.iter().any(|line| line.starts_with("PATH=")),
        "{lines:?}"
    );
    for name in stepward::service::VARIABLES {
        assert!(
            !lines.iter().any(|line| line.starts_with(name)),
            "{lines:?}"
        );
    }
    house.check();
}

#[test]
fn a_manager_that_is_not_there_keeps_nobody_from_working() {
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::in_folder(folder.path(), Some(Duration::from_secs(3)));
    fs::remove_file(folder.path().join("notify")).unwrap();
    let server = server_of(&manager, folder.path());
    await_that("it listens", || {
        server.said().contains("listening on").then_some(())
    });
    await_that("it says what it could not tell", || {
        let said = server.said();
        said.contains("the service manager could not be told READY=1")
            .then_some(())
    });
    server.signal(Signal::TERM);
    assert!(server.wait());
}
