//! One attempt on a worker's disk, with tools that are scripts of the test's own.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use stepward::domain::protocol::Assignment;
use stepward::domain::reason::Reason;
use stepward::domain::task::{Action, Runner};
use stepward::domain::{AttemptRef, JobId, Json, StepId};
use stepward::worker::executor::{Fault, Invocation, Place, Tools};
use tempfile::TempDir;

pub struct Desk {
    pub folder: TempDir,
    pub place: Place,
    pub tools: Tools,
}

impl Desk {
    pub fn new() -> Desk {
        let folder = tempfile::tempdir().unwrap();
        let place = Place {
            folder: folder.path().join("attempt"),
        };
        let tools = Tools {
            stepward: PathBuf::from(env!("CARGO_BIN_EXE_stepward")),
            instance_key: "key".to_string(),
            worker_name: "w".to_string(),
            server_url: "http://localhost".to_string(),
            env: BTreeMap::new(),
            docker: "/no/docker".to_string(),
            docker_hardened: false,
            docker_args: Vec::new(),
            kubectl: "/no/kubectl".to_string(),
            namespace: None,
            allow_privileged: false,
        };
        Desk {
            folder,
            place,
            tools,
        }
    }

    /// A tool that notes its arguments in `ledger`, then does as the script says, in the desk's folder.
    pub fn tool(&self, name: &str, script: &str) -> String {
        let path = self.folder.path().join(name);
        let folder = self.folder.path().display();
        let text = format!("#!/bin/sh\ncd '{folder}'\necho \"$*\" >> ledger\n{script}\n");
        // Written by another process: one that another test starts meanwhile must not hold this file open for writing.
        let mut writer = Command::new("sh")
            .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
            .arg(&path)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = writer.stdin.take().unwrap();
        stdin.write_all(text.as_bytes()).unwrap();
        drop(stdin);
        assert!(writer.wait().unwrap().success());
        path.to_str().unwrap().to_string()
    }

    pub fn write(&self, file: &str, text: &str) {
        std::fs::write(self.folder.path().join(file), text).unwrap();
    }

    pub fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(file)).unwrap_or_default()
    }

    /// The calls of tools so far.
    pub fn ledger(&self) -> Vec<String> {
        self.read("ledger").lines().map(str::to_string).collect()
    }
}

pub fn assignment(action: Action) -> Assignment {
    Assignment {
        attempt: AttemptRef {
            step_id: StepId(17),
            attempt: 2,
        },
        job_id: JobId(5),
        task: "release".to_string(),
        step: "build".to_string(),
        action,
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
        prepare_timeout_ms: 600_000,
        timeout_ms: 60_000,
        fenced: false,
    }
}

pub fn script(runner: Runner, image: &str, script: &str) -> Action {
    Action::Script {
        runner,
        image: Some(image.to_string()),
        language: None,
        script: script.to_string(),
    }
}

/// What is wrong with the step itself, on whatever worker.
#[track_caller]
pub fn payload_fault(refused: Result<Invocation, Fault>) -> String {
    match refused.unwrap_err() {
        Fault::Step {
            reason: Reason::PayloadError,
            message,
        } => message,
        other => panic!("{other:?}"),
    }
}

/// The name of the attempt's container or pod.
pub const NAME: &str = "stepward-2c70e12b7a0646f9-17-2";
