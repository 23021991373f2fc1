//! `stepward run-pod`: makes a pod, tells what keeps it from starting, passes its log on, and ends as its container did.

use std::fs;
use std::io::BufReader;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use serde_json::Value;

use super::pod::{Plan, kubectl};
use super::pod_log::PassedOn;
use super::tool::{ask, words, write};
use crate::domain::limits::clip;

/// The same as docker's: it was not the step that failed.
const TOOL_FAILED: i32 = 125;
const STOPPED: i32 = 143;
const PATIENCE: Duration = Duration::from_secs(30);
/// A container that has ended ends its log as well. If not, the rest is read once more without following.
const FOLLOW_PATIENCE: Duration = Duration::from_secs(2);
/// Looks at a pod whose image cannot be pulled before it is given up. A registry may be away for a moment.
const PULL_LOOKS_MAX: u32 = 120;
/// While a container runs, the end of its log says that something happened; looking is only for when it does not.
const POLL_GROWTH_MAX: u32 = 15;
/// What Kubernetes keeps of a termination message.
const OUTPUT_BYTES_MAX: usize = 4_096;
const REMARK_BYTES_MAX: usize = 1_000;

/// Runs to the end of the pod and answers with the exit code for this process. A first SIGTERM deletes the pod, whose
/// container gets its time to end; a second one ends this process.
pub fn run_pod(plan: &Path) -> Result<i32, String> {
    let explain = |why: String| format!("{} is not a plan of ours: {why}", plan.display());
    let bytes = fs::read(plan).map_err(|error| explain(error.to_string()))?;
    let plan: Plan = serde_json::from_slice(&bytes).map_err(|error| explain(error.to_string()))?;
    let plan = Arc::new(plan);
    let stopped = Arc::new(AtomicBool::new(false));
    let (plan_too, stopped_too) = (Arc::clone(&plan), Arc::clone(&stopped));
    ctrlc::set_handler(move || {
        if stopped_too.swap(true, Ordering::SeqCst) {
            std::process::exit(STOPPED);
        }
        delete(&plan_too);
    })
    .map_err(|error| format!("signals cannot be handled: {error}"))?;
    let mut followed = Followed {
        plan: &plan,
        stopped: &stopped,
        stream: None,
        passed_on: PassedOn::default(),
        empty_streams: 0,
        told: String::new(),
    };
    let ended = followed.follow();
    match ended {
        Ok(exit_code) => Ok(exit_code),
        Err(_) if stopped.load(Ordering::SeqCst) => Ok(STOPPED),
        Err(why) => {
            eprintln!("stepward: {why}");
            write(&plan.failure, 0o600, why.as_bytes())?;
            Ok(TOOL_FAILED)
        }
    }
}

/// How a pod looks, as far as its step is concerned.
#[derive(Debug, PartialEq, Eq)]
enum Sight {
    Gone,
    Waiting {
        /// What keeps it from starting, if it is worth telling.
        why: Option<String>,
        hope: Hope,
    },
    Running,
    Ended {
        exit_code: i32,
        remark: Option<String>,
        output: String,
    },
    /// It ended without its container having run.
    Failed {
        why: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hope {
    /// Somebody may make room or the registry may come back; the step's timeout bounds it.
    Some,
    /// Image pulls are tried again by Kubernetes, for ever.
    Little,
    None,
}

struct Followed<'a> {
    plan: &'a Plan,
    stopped: &'a AtomicBool,
    stream: Option<Stream>,
    passed_on: PassedOn,
    /// Logs that ended, one after the other, without a new line.
    empty_streams: u32,
    /// The last remark: what stays as it is is told once.
    told: String,
}

impl Followed<'_> {
    fn follow(&mut self) -> Result<i32, String> {
        let mut create = self.kubectl();
        create.extend(words(["create", "--filename=-", "--output=name"]));
        let pod = serde_json::to_vec(&self.plan.pod).expect("it is JSON");
        let created = ask(&create, &pod, PATIENCE);
        write(&self.plan.created, 0o600, b"answered\n")?;
        created.map_err(|why| format!("the pod was not created: {why}"))?;
        if self.stopped.load(Ordering::SeqCst) {
            // The signal came before there was anything to delete.
            delete(self.plan);
        }
        let poll = Duration::from_millis(self.plan.poll_ms);
        let (mut pause, mut fruitless_looks) = (poll, 0);
        loop {
            match self.look() {
                Err(why) => self.tell(&format!("the pod cannot be looked at: {why}")),
                Ok(Sight::Gone) => return Err("the pod was deleted by somebody else".to_string()),
                Ok(Sight::Failed { why }) => return Err(why),
                Ok(Sight::Waiting { why, hope }) => {
                    self.tell(why.as_deref().unwrap_or(""));
                    fruitless_looks += u32::from(hope == Hope::Little);
                    if hope == Hope::None || fruitless_looks > PULL_LOOKS_MAX {
                        return Err(why.unwrap_or_default());
                    }
                }
                Ok(Sight::Running) if self.stream.is_none() => {
                    self.stream = Some(Stream::open(self.plan, &self.passed_on, true)?);
                    pause = poll;
                }
                Ok(Sight::Running) => pause = (pause * 2).min(poll * POLL_GROWTH_MAX),
                Ok(Sight::Ended {
                    exit_code,
                    remark,
                    output,
                }) => {
                    self.read_the_rest();
                    self.tell(remark.as_deref().unwrap_or(""));
                    return self.keep_output(exit_code, &output);
                }
            }
            self.rest(pause, poll);
        }
    }

    /// Waits, but not longer than the log lasts.
    fn rest(&mut self, pause: Duration, poll: Duration) {
        let Some(stream) = &self.stream else {
            return thread::sleep(poll);
        };
        match stream.ended_rx.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => {}
            ended => {
                let before = std::mem::take(&mut self.passed_on);
                self.passed_on = ended.unwrap_or(before.clone());
                self.stream = None;
                self.empty_streams = match self.passed_on == before {
                    true => self.empty_streams + 1,
                    false => 0,
                };
                // The pod's state follows its log by a moment. If there still is no end, we may not read it, or not now.
                thread::sleep(match self.empty_streams {
                    0 | 1 => poll.min(Duration::from_millis(100)),
                    many => poll * many.min(POLL_GROWTH_MAX),
                });
            }
        }
    }

    /// The container has ended: what is not yet passed on of its log is there now.
    fn read_the_rest(&mut self) {
        if let Some(stream) = self.stream.take() {
            self.passed_on = stream
                .end(FOLLOW_PATIENCE)
                .unwrap_or(self.passed_on.clone());
        }
        let rest = Stream::open(self.plan, &self.passed_on, false);
        if rest.and_then(|rest| rest.end(PATIENCE)).is_err() {
            self.tell("the end of the log could not be read");
        }
    }

    fn keep_output(&self, exit_code: i32, output: &str) -> Result<i32, String> {
        if exit_code == 0 && !output.is_empty() {
            if output.len() >= OUTPUT_BYTES_MAX {
                return Err(format!(
                    "the output is too long: Kubernetes keeps less than {OUTPUT_BYTES_MAX} bytes of it"
                ));
            }
            write(&self.plan.output, 0o600, output.as_bytes())?;
        }
        Ok(exit_code)
    }

    fn look(&self) -> Result<Sight, String> {
        let mut get = self.kubectl();
        get.extend(words(["get", "pod", &self.plan.name, "--ignore-not-found"]));
        get.extend(words(["--output=json", "--request-timeout=20s"]));
        let pod = ask(&get, b"", PATIENCE)?;
        if pod.trim().is_empty() {
            return Ok(Sight::Gone);
        }
        let pod: Value = serde_json::from_str(&pod).map_err(|error| error.to_string())?;
        Ok(sight(&pod, &self.plan.container))
    }

    fn kubectl(&self) -> Vec<String> {
        kubectl(&self.plan.kubectl, self.plan.namespace.as_deref())
    }

    fn tell(&mut self, remark: &str) {
        if !remark.is_empty() && remark != self.told {
            eprintln!("stepward: {remark}");
            self.told = remark.to_string();
        }
    }
}

fn delete(plan: &Plan) {
    let mut delete = kubectl(&plan.kubectl, plan.namespace.as_deref());
    delete.extend(words([
        "delete",
        "pod",
        &plan.name,
        "--ignore-not-found",
        "--wait=false",
    ]));
    if let Err(why) = ask(&delete, b"", PATIENCE) {
        eprintln!("stepward: the pod was not deleted: {why}");
    }
}

fn sight(pod: &Value, container: &str) -> Sight {
    let status = &pod["status"];
    let statuses = status["containerStatuses"].as_array();
    let of_step = statuses
        .into_iter()
        .flatten()
        .find(|status| status["name"] == container);
    let state = of_step.map_or(&Value::Null, |status| &status["state"]);
    let said = |value: &Value| {
        let parts = [&value["reason"], &value["message"]];
        let parts = parts.iter().filter_map(|part| part.as_str());
        let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
        clip(&parts.join(": "), REMARK_BYTES_MAX)
    };
    if let Some(exit_code) = state["terminated"]["exitCode"].as_i64() {
        let ended = &state["terminated"];
        return match ended["reason"].as_str() {
            Some("ContainerCannotRun" | "StartError") => Sight::Failed {
                why: format!("the container could not start: {}", said(ended)),
            },
            reason => Sight::Ended {
                exit_code: exit_code as i32,
                remark: match reason {
                    None | Some("Completed" | "Error") => None,
                    Some(reason) => Some(format!("the container was ended: {reason}")),
                },
                output: ended["message"].as_str().unwrap_or("").to_string(),
            },
        };
    }
    if let Some(phase @ ("Failed" | "Succeeded")) = status["phase"].as_str() {
        let why = [said(status), failed_init(status).unwrap_or_default()];
        let why: Vec<String> = why.into_iter().filter(|why| !why.is_empty()).collect();
        let phase = phase.to_ascii_lowercase();
        return Sight::Failed {
            why: match why.is_empty() {
                true => format!("the pod {phase} before its container ran"),
                false => format!(
                    "the pod {phase} before its container ran: {}",
                    why.join(", ")
                ),
            },
        };
    }
    if state["running"].is_object() {
        return Sight::Running;
    }
    // An init container may be the one whose image is missing.
    let inits = status["initContainerStatuses"].as_array();
    let waiting = inits
        .into_iter()
        .flatten()
        .map(|init| &init["state"]["waiting"])
        .chain([&state["waiting"]])
        .find(|waiting| {
            !matches!(
                waiting["reason"].as_str(),
                None | Some("PodInitializing" | "ContainerCreating")
            )
        });
    if let Some(waiting) = waiting {
        let hope = match waiting["reason"].as_str() {
            Some("InvalidImageName" | "ErrImageNeverPull") => Hope::None,
            Some("CreateContainerConfigError" | "CreateContainerError" | "RunContainerError") => {
                Hope::Little
            }
            Some(reason) if reason.contains("Image") => Hope::Little,
            _ => Hope::Some,
        };
        return Sight::Waiting {
            why: Some(format!("the container does not start: {}", said(waiting))),
            hope,
        };
    }
    let conditions = status["conditions"].as_array();
    let unscheduled = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "PodScheduled" && condition["status"] == "False");
    Sight::Waiting {
        why: unscheduled.map(|condition| format!("the pod waits: {}", said(condition))),
        hope: Hope::Some,
    }
}

/// Such as `init container fetch ended with 3`.
fn failed_init(status: &Value) -> Option<String> {
    let failed = status["initContainerStatuses"]
        .as_array()?
        .iter()
        .find_map(|init| {
            let exit_code = init["state"]["terminated"]["exitCode"].as_i64()?;
            (exit_code != 0).then_some((init["name"].as_str()?, exit_code))
        });
    failed.map(|(name, exit_code)| format!("init container {name} ended with {exit_code}"))
}

/// A log on its way to our own output.
struct Stream {
    child: Child,
    /// Says at its end how far it came.
    ended_rx: Receiver<PassedOn>,
}

impl Stream {
    fn open(plan: &Plan, passed_on: &PassedOn, follow: bool) -> Result<Stream, String> {
        let mut argv = kubectl(&plan.kubectl, plan.namespace.as_deref());
        argv.extend(words(["logs", &plan.name, "--timestamps"]));
        argv.push(format!("--container={}", plan.container));
        argv.push(format!("--follow={follow}"));
        argv.extend(
            passed_on
                .since()
                .map(|since| format!("--since-time={since}")),
        );
        // A group of its own: the signal that stops the step must not cut off its last words.
        let spawned = Command::new(&argv[0])
            .args(&argv[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn();
        let mut child =
            spawned.map_err(|error| format!("{} cannot be started: {error}", argv[0]))?;
        let log = child.stdout.take().expect("it is piped");
        let mut passed_on = passed_on.clone();
        let (ended_tx, ended_rx) = bounded(1);
        thread::spawn(move || {
            // A log that breaks is taken up again; if our own output is gone, so is everybody who wanted it.
            let _ = passed_on.pass_on(&mut BufReader::new(log), &mut std::io::stdout());
            // Nobody listens after the stream was given up.
            let _ = ended_tx.send(passed_on);
        });
        Ok(Stream { child, ended_rx })
    }

    /// Lets it go on for a while, and says how far it came.
    fn end(mut self, patience: Duration) -> Result<PassedOn, String> {
        if let Ok(passed_on) = self.ended_rx.recv_timeout(patience) {
            return Ok(passed_on);
        }
        // Without kubectl the log ends for us; what came so far is still on its way. It may have ended just now.
        let _ = self.child.kill();
        let ended = self.ended_rx.recv_timeout(FOLLOW_PATIENCE);
        ended.map_err(|_| "the log does not end".to_string())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // It has ended, or hangs; either way nothing more is expected of it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn seen(status: Value) -> Sight {
        sight(&json!({ "status": status }), "step")
    }

    fn waiting(reason: &str) -> Sight {
        let state = json!({ "waiting": { "reason": reason, "message": "m" } });
        seen(
            json!({ "phase": "Pending", "containerStatuses": [{ "name": "step", "state": state }] }),
        )
    }

    #[test]
    fn what_keeps_a_pod_from_starting_is_told() {
        let told = |why: &str, hope| Sight::Waiting {
            why: Some(why.to_string()),
            hope,
        };
        let quiet = Sight::Waiting {
            why: None,
            hope: Hope::Some,
        };
        assert_eq!(seen(json!({})), quiet);
        assert_eq!(waiting("ContainerCreating"), quiet);
        let prefix = "the container does not start";
        assert_eq!(
            waiting("ErrImagePull"),
            told(&format!("{prefix}: ErrImagePull: m"), Hope::Little)
        );
        assert_eq!(
            waiting("InvalidImageName"),
            told(&format!("{prefix}: InvalidImageName: m"), Hope::None)
        );
        assert_eq!(
            seen(json!({
                "phase": "Pending",
                "initContainerStatuses": [
                    { "name": "init", "state": { "waiting": { "reason": "ImagePullBackOff" } } },
                ],
                "containerStatuses": [
                    { "name": "step", "state": { "waiting": { "reason": "PodInitializing" } } },
                ],
            })),
            told(&format!("{prefix}: ImagePullBackOff"), Hope::Little)
        );
        assert_eq!(
            seen(json!({ "conditions": [{
                "type": "PodScheduled", "status": "False",
                "reason": "Unschedulable", "message": "0/3 nodes are available",
            }] })),
            told(
                "the pod waits: Unschedulable: 0/3 nodes are available",
                Hope::Some
            )
        );
    }

    fn terminated(ended: Value) -> Sight {
        let states = json!([
            { "name": "helper", "state": { "running": {} } },
            { "name": "step", "state": { "terminated": ended } },
        ]);
        seen(json!({ "phase": "Running", "containerStatuses": states }))
    }

    #[test]
    fn the_step_has_ended_when_its_container_has() {
        let ended = |exit_code, remark: Option<&str>, output: &str| Sight::Ended {
            exit_code,
            remark: remark.map(str::to_string),
            output: output.to_string(),
        };
        assert_eq!(
            terminated(json!({ "exitCode": 0, "reason": "Completed", "message": "a=1\n" })),
            ended(0, None, "a=1\n")
        );
        assert_eq!(
            terminated(json!({ "exitCode": 137, "reason": "OOMKilled" })),
            ended(137, Some("the container was ended: OOMKilled"), "")
        );
        assert_eq!(
            terminated(
                json!({ "exitCode": 128, "reason": "StartError", "message": "no such file" })
            ),
            Sight::Failed {
                why: "the container could not start: StartError: no such file".to_string()
            }
        );
    }

    #[test]
    fn a_pod_may_end_before_its_container_ran() {
        assert_eq!(
            seen(json!({ "phase": "Failed", "reason": "Evicted", "message": "low on memory" })),
            Sight::Failed {
                why: "the pod failed before its container ran: Evicted: low on memory".to_string()
            }
        );
        assert_eq!(
            seen(json!({ "phase": "Failed", "initContainerStatuses": [
                { "name": "fetch", "state": { "terminated": { "exitCode": 3 } } },
            ] })),
            Sight::Failed {
                why: "the pod failed before its container ran: init container fetch ended with 3"
                    .to_string()
            }
        );
    }
}
