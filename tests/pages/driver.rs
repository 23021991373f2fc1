//! chromedriver and the Chromium that it starts, in a folder of their own. Each browser has its own pair, and none outlives its story.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use ureq::Agent;

use crate::house::{await_that, processes};

/// No command takes this long, the slowest page included.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Chromium ends by itself when chromedriver is gone; what is left after this is killed.
const END_MAX: Duration = Duration::from_secs(5);

/// It may have to be started again for another port.
const STARTS_MAX: u32 = 20;

const FLAGS: &[&str] = &[
    "--headless=new",
    "--no-sandbox",
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-proxy-server",
    "--lang=en-US",
    "--window-size=1280,900",
    // Chromium reads its orders from a pipe, and ends when that is closed: it cannot outlive chromedriver.
    "--remote-debugging-pipe",
    // Whatever the flags above forgot does not leave this machine. `stepward.test` is a name that is not `localhost`:
    // pages under it have what a browser gives to plain HTTP, no more.
    "--host-resolver-rules=MAP stepward.test 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
];

/// What the browser, or chromedriver for it, would not do.
#[derive(Debug)]
pub struct Refused {
    /// A word of the WebDriver standard, such as `no such element`.
    pub error: String,
    pub message: String,
}

/// How a browser is to be.
#[derive(Debug, Clone, Copy, Default)]
pub struct Kind {
    /// It reads the console of shared workers too. Whoever listens holds them up: a worker that starts while its predecessor of
    /// the same page ends may wait for ever.
    pub hears_workers: bool,
    /// Pages have no scripts in it.
    pub is_plain: bool,
}

pub struct Driver {
    process: Child,
    folder: TempDir,
    agent: Agent,
    /// Of the session, once there is one.
    url: String,
}

impl Driver {
    /// A Chromium with an empty profile, and one blank tab.
    pub fn start(kind: Kind) -> Driver {
        let mut driver = (0..STARTS_MAX)
            .find_map(|_| Driver::listening())
            .expect("chromedriver finds a port");
        driver.url = format!("{}/{}", driver.url, driver.begin_session(kind));
        driver
    }

    /// `None`: the port that it took on `::1` is somebody else's on 127.0.0.1, where it wants the same.
    fn listening() -> Option<Driver> {
        let folder = tempfile::tempdir().unwrap();
        let said = folder.path().join("said");
        let file = File::create(&said).unwrap();
        let log = folder.path().join("chromedriver.log");
        // It is killed with the thread of its story, also when this program is killed.
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "chromedriver", "--port=0"])
            .arg(format!("--log-path={}", log.display()))
            .env("HOME", folder.path())
            .env("TMPDIR", folder.path())
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_CACHE_HOME")
            .env("TZ", "UTC")
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .expect("setpriv (util-linux) is there");
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(ANSWER_MAX))
            .proxy(None)
            .build()
            .new_agent();
        let mut driver = Driver {
            process,
            folder,
            agent,
            url: String::new(),
        };
        let port = driver.await_port(&said)?;
        driver.url = format!("http://127.0.0.1:{port}/session");
        Some(driver)
    }

    fn await_port(&mut self, said: &Path) -> Option<u16> {
        await_that("chromedriver listens", || {
            // In this order: what it said before it ended is read.
            let ended = self.process.try_wait().unwrap();
            let said = fs::read_to_string(said).unwrap();
            if ended.is_some() {
                let is_taken = said.contains("port not available");
                assert!(
                    is_taken,
                    "chromedriver does not start (apt-get install chromium chromium-driver): {said}"
                );
                return Some(None);
            }
            let (_, port) = said.split_once("started successfully on port ")?;
            Some(Some(port.split_once('.')?.0.parse().unwrap()))
        })
    }

    fn begin_session(&self, kind: Kind) -> String {
        let below = |name: &str| self.folder.path().join(name).display().to_string();
        let mut flags: Vec<String> = FLAGS.iter().map(|flag| flag.to_string()).collect();
        flags.push(format!("--user-data-dir={}", below("profile")));
        flags.push(format!("--log-net-log={}", self.net_log().display()));
        // Workers pass for windows.
        let windows: &[&str] = match kind.hears_workers {
            true => &["shared_worker"],
            false => &[],
        };
        let (allowed, blocked) = (1, 2);
        let scripts = if kind.is_plain { blocked } else { allowed };
        let options = json!({
            "args": flags,
            "windowTypes": windows,
            "prefs": {
                "session": {"restore_on_startup": 4, "startup_urls": ["about:blank"]},
                "profile": {"managed_default_content_settings": {"javascript": scripts}},
            },
        });
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
            "timeouts": {"script": 30_000, "pageLoad": 30_000, "implicit": 0},
        }}});
        let begun = self.post("", wanted);
        let begun = begun.unwrap_or_else(|refused| panic!("no session: {refused:?}"));
        begun["sessionId"].as_str().unwrap().to_string()
    }

    /// Where Chromium writes down every request of every page, worker and its own.
    pub fn net_log(&self) -> PathBuf {
        self.folder.path().join("net.json")
    }

    /// All of its processes have this in their command line.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn get(&self, path: &str) -> Result<Value, Refused> {
        let called = self.agent.get(format!("{}{path}", self.url)).call();
        answer(path, called)
    }

    pub fn post(&self, path: &str, body: Value) -> Result<Value, Refused> {
        let request = self.agent.post(format!("{}{path}", self.url));
        let request = request.header("content-type", "application/json");
        answer(path, request.send(body.to_string()))
    }

    pub fn delete(&self, path: &str) -> Result<Value, Refused> {
        let called = self.agent.delete(format!("{}{path}", self.url)).call();
        answer(path, called)
    }
}

fn answer(
    path: &str,
    called: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
) -> Result<Value, Refused> {
    let unanswered = |error: ureq::Error| Refused {
        error: "no answer".to_string(),
        message: format!("{path}: {error}"),
    };
    let mut response = called.map_err(unanswered)?;
    let is_success = response.status().is_success();
    let body = response.body_mut().with_config().limit(u64::MAX);
    let text = body.read_to_string().map_err(unanswered)?;
    let mut answer: Value = serde_json::from_str(&text).expect("chromedriver answers JSON");
    let value = answer["value"].take();
    if is_success {
        return Ok(value);
    }
    let word = |key: &str| value[key].as_str().unwrap_or_default().to_string();
    Err(Refused {
        error: word("error"),
        message: word("message"),
    })
}

impl Drop for Driver {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let folder = self.folder.path().display().to_string();
        let begun = Instant::now();
        loop {
            let left = processes(&folder);
            if left.is_empty() {
                return;
            }
            if begun.elapsed() > END_MAX {
                for pid in left.into_iter().filter_map(Pid::from_raw) {
                    // It may end just now.
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
