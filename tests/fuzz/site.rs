//! Where cases are played: a folder in memory, a server on it.

use std::path::{Path, PathBuf};

use stepward::config::ServerConfig;
use stepward::server::Server;
use stepward::store::{Breach, Store, StoreOptions};
use tempfile::TempDir;

/// Nothing here is about disks, and a slow one would leave time for few cases.
pub fn memory() -> PathBuf {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => memory.to_path_buf(),
        false => std::env::temp_dir(),
    }
}

/// What can be submitted, asked for, and called from outside.
const WORKFLOWS: &str = r#"
tasks:
  hello:
    input: { name: { type: string }, n: { type: number, min: 0 }, any: { type: json } }
    flow:
      greet: { script: echo hello }
  pair:
    flow:
      build: { script: make, retry: { max_attempts: 3, on: [exit_code] } }
      test: { script: make test, depends_on: build, when: "{{ steps.build.output.go }}" }
  wide:
    flow:
      each: { script: echo, for_each: [1, 2, 3, 4] }
  ask:
    flow:
      sure: { type: approval, message: Really?, input: { why: { type: string, required: true } } }
  outer:
    flow:
      call: { type: task, task: hello }
    schedules:
      nightly: { cron: "0 2 * * *" }
  called:
    flow:
      greet: { script: echo }
    webhooks:
      push: { secret: { file: SECRET } }
"#;

/// Nobody guesses it.
pub const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

pub struct Site {
    pub server: Server,
    folder: TempDir,
}

impl Site {
    pub fn new() -> Site {
        let folder = tempfile::tempdir_in(memory()).expect("a folder");
        let workflows = folder.path().join("workflows");
        std::fs::create_dir(&workflows).expect("a folder");
        let secret = folder.path().join("secret");
        std::fs::write(&secret, SECRET).expect("it is written");
        let text = WORKFLOWS.replace("SECRET", &secret.to_string_lossy());
        std::fs::write(workflows.join("all.yaml"), text).expect("it is written");
        let mut config = ServerConfig {
            listen: "127.0.0.1:0".parse().expect("an address"),
            data_dir: folder.path().join("data"),
            workflows_dir: Some(workflows),
            ..ServerConfig::default()
        };
        config.secrets.allow_files.push(secret);
        let server = Server::start(&config).expect("a server");
        assert_eq!(server.tasks(), 6, "{:?}", server.problems());
        Site { server, folder }
    }

    /// Rules of the database that do not hold, after the server has ended.
    pub fn breaches(mut self) -> Vec<Breach> {
        self.server.stop();
        let data = self.folder.path().join("data");
        let store = Store::open(&data, StoreOptions::default()).expect("the database opens again");
        let breaches = store.read(|tx| tx.breaches());
        breaches.expect("the rules can be asked for")
    }
}
