//! A pod from its manifest to its exit code, with a recorded kubectl.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use stepward::domain::task::{Action, Runner};
use stepward::worker::executor::{Fault, Invocation, pod};

use super::desk::{Desk, NAME, assignment, payload_fault, script};
use super::kubectl::{KUBECTL, ended, running, state};

fn desk() -> Desk {
    let mut desk = Desk::new();
    desk.tools.kubectl = desk.tool("kubectl", KUBECTL);
    desk.write("log.follow", "");
    desk.write("log", "");
    desk
}

fn prepare(desk: &Desk, action: Action) -> Result<Invocation, Fault> {
    pod::prepare(&assignment(action), &desk.place, &desk.tools)
}

/// As the supervisor would start it, but with less patience between two looks.
fn command(desk: &Desk, invocation: &Invocation) -> Command {
    let plan = desk.read("attempt/pod");
    desk.write(
        "attempt/pod",
        &plan.replace("\"poll_ms\":1000", "\"poll_ms\":5"),
    );
    let mut command = Command::new(&invocation.argv[0]);
    command
        .args(&invocation.argv[1..])
        .env_clear()
        .envs(&invocation.env)
        .current_dir(&invocation.cwd)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn run(desk: &Desk) -> Output {
    let invocation = prepare(desk, script(Runner::Pod, "busybox", "true")).unwrap();
    command(desk, &invocation).output().unwrap()
}

fn told(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn a_script_in_a_pod_is_followed_to_its_end() {
    let desk = desk();
    desk.write("sight.1", r#"{ "status": { "phase": "Pending" } }"#);
    desk.write("sight.2", &running());
    desk.write("sight", &ended(7, ""));
    desk.write(
        "log.follow",
        "2026-11-16T17:00:00.1Z one\n2026-11-16T17:00:00.2Z two\n",
    );
    desk.write(
        "log",
        "2026-11-16T17:00:00.2Z two\n2026-11-16T17:00:00.3Z three\n",
    );

    let (exit_code, stdout, stderr) = told(&run(&desk));

    assert_eq!(
        (exit_code, stdout.as_str(), stderr.as_str()),
        (Some(7), "one\ntwo\nthree\n", "")
    );
    assert_eq!(pod::tool_failure(&desk.place), None);
    let get = format!("get pod {NAME} --ignore-not-found --output=json --request-timeout=20s");
    assert_eq!(
        desk.ledger(),
        [
            "create --filename=- --output=name",
            &get,
            &get,
            &format!("logs {NAME} --timestamps --container=step --follow=true"),
            &get,
            &format!(
                "logs {NAME} --timestamps --container=step --follow=false --since-time=2026-11-16T17:00:00.2Z"
            ),
        ]
    );
}

#[test]
fn a_pod_is_made_for_a_script() {
    let mut desk = desk();
    desk.tools.namespace = Some("ours".to_string());
    desk.tools.env.insert("TZ".to_string(), "UTC".to_string());
    let mut assignment = assignment(script(Runner::Pod, "busybox", "echo $HOME"));
    let secret = "hunter2 $(HOME)\n'\"".to_string();
    assignment.env.insert("SECRET".to_string(), secret);
    assignment.workdir = Some("src".to_string());
    let invocation = pod::prepare(&assignment, &desk.place, &desk.tools).unwrap();

    let file = desk.place.folder.join("pod");
    assert_eq!(
        invocation.argv,
        [
            desk.tools.stepward.to_str().unwrap(),
            "run-pod",
            file.to_str().unwrap()
        ]
    );
    let kubectl = desk.tools.kubectl.as_str();
    assert_eq!(
        invocation.cleanup,
        [[
            kubectl,
            "--namespace=ours",
            "delete",
            "pod",
            NAME,
            "--ignore-not-found",
            "--wait=false",
            "--now"
        ]]
    );
    assert!(
        !invocation
            .env
            .values()
            .any(|value| value.contains("hunter2"))
    );
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);

    let plan: Value = serde_json::from_str(&desk.read("attempt/pod")).unwrap();
    let made = &plan["pod"];
    assert_eq!(
        made["metadata"],
        json!({
            "name": NAME,
            "namespace": "ours",
            "labels": {
                "stepward.instance": "2c70e12b7a0646f9",
                "stepward.step": "17",
                "stepward.attempt": "2",
            },
            "annotations": {},
        })
    );
    let spec = &made["spec"];
    assert_eq!(spec["restartPolicy"], "Never");
    assert_eq!(spec["activeDeadlineSeconds"], 660);
    assert_eq!(spec["automountServiceAccountToken"], false);
    let container = &spec["containers"][0];
    assert_eq!(container["image"], "busybox");
    let words = container["command"].as_array().unwrap();
    assert_eq!(
        words[3..],
        [
            "/stepward/script",
            "/stepward/workspace/src",
            "sh",
            "/stepward/script"
        ]
    );
    assert_eq!(
        container["env"],
        json!([
            { "name": "CI", "value": "true" },
            { "name": "SECRET", "value": "hunter2 $$(HOME)\n'\"" },
            { "name": "STEPWARD", "value": "1" },
            { "name": "STEPWARD_ATTEMPT", "value": "2" },
            { "name": "STEPWARD_JOB_ID", "value": "5" },
            { "name": "STEPWARD_JOB_URL", "value": "http://localhost/jobs/5" },
            { "name": "STEPWARD_OUTPUT", "value": "/dev/termination-log" },
            { "name": "STEPWARD_SCRIPT", "value": "echo $$HOME" },
            { "name": "STEPWARD_STEP", "value": "build" },
            { "name": "STEPWARD_TASK", "value": "release" },
            { "name": "STEPWARD_TMP", "value": "/stepward/tmp" },
            { "name": "STEPWARD_WORKER", "value": "w" },
            { "name": "STEPWARD_WORKSPACE", "value": "/stepward/workspace" },
            { "name": "TZ", "value": "UTC" },
        ])
    );
}

/// The launcher is run here by a shell as Kubernetes would run it, with folders that this machine has.
#[test]
fn the_launcher_hands_the_script_over_byte_by_byte() {
    let desk = desk();
    let written =
        "printf '%s|' \"$0\" \"$(pwd)\" \"${STEPWARD_SCRIPT-none}\" 'a\\n$(b) \"c\"'\nexit 9\n\n";
    prepare(&desk, script(Runner::Pod, "busybox", written)).unwrap();
    let plan: Value = serde_json::from_str(&desk.read("attempt/pod")).unwrap();
    let inside = desk.folder.path().join("inside");
    std::fs::create_dir(&inside).unwrap();
    let inside = inside.to_str().unwrap();
    let here = |value: &Value| {
        let text = value.as_str().unwrap().replace("$$", "$");
        text.replace("/stepward/", &format!("{inside}/"))
    };
    let container = &plan["pod"]["spec"]["containers"][0];
    let words: Vec<String> = container["command"]
        .as_array()
        .unwrap()
        .iter()
        .map(here)
        .collect();
    let variables = container["env"].as_array().unwrap().iter();
    let output = Command::new(&words[0])
        .args(&words[1..])
        .envs(variables.map(|variable| (here(&variable["name"]), here(&variable["value"]))))
        .output()
        .unwrap();
    let (exit_code, stdout, stderr) = told(&output);
    assert_eq!(
        stdout,
        format!("{inside}/script|{inside}/workspace|none|a\\n$(b) \"c\"|"),
        "{stderr}"
    );
    assert_eq!(exit_code, Some(9));
    assert_eq!(desk.read("inside/script"), written);
}

#[test]
fn what_a_pod_leaves_behind_is_its_output() {
    let desk = desk();
    desk.write("sight", &ended(0, "image=app:1\n"));
    assert_eq!(told(&run(&desk)).0, Some(0));
    assert_eq!(desk.read("attempt/output"), "image=app:1\n");
}

#[test]
fn an_output_that_was_cut_is_no_output() {
    let desk = desk();
    desk.write("sight", &ended(0, &"x".repeat(4_096)));
    let (exit_code, _, stderr) = told(&run(&desk));
    let why = "the output is too long: Kubernetes keeps less than 4096 bytes of it";
    assert_eq!(
        (exit_code, stderr),
        (Some(125), format!("stepward: {why}\n"))
    );
    assert_eq!(desk.read("attempt/output"), "");
    assert_eq!(pod::tool_failure(&desk.place).as_deref(), Some(why));
}

#[test]
fn an_image_that_cannot_be_pulled_is_told_once_and_given_up() {
    let desk = desk();
    let why = |reason: &str| {
        let waiting = json!({ "reason": reason, "message": "no such host" });
        state(json!({ "waiting": waiting }))
    };
    desk.write("sight.1", &why("ErrImagePull"));
    desk.write("sight", &why("ImagePullBackOff"));
    let (exit_code, stdout, stderr) = told(&run(&desk));
    let lines: Vec<&str> = stderr.lines().collect();
    assert_eq!(exit_code, Some(125));
    assert_eq!(stdout, "");
    assert_eq!(
        lines[0],
        "stepward: the container does not start: ErrImagePull: no such host"
    );
    assert_eq!(
        lines[1],
        "stepward: the container does not start: ImagePullBackOff: no such host"
    );
    assert_eq!(
        pod::tool_failure(&desk.place).as_deref(),
        Some("the container does not start: ImagePullBackOff: no such host")
    );
}

#[test]
fn a_pod_that_is_not_created_is_told() {
    let desk = desk();
    desk.write(
        "fail.create",
        "Error from server (Forbidden): pods is forbidden\n",
    );
    let (exit_code, _, stderr) = told(&run(&desk));
    assert_eq!(exit_code, Some(125));
    let said = format!(
        "{} said: Error from server (Forbidden): pods is forbidden",
        desk.tools.kubectl
    );
    assert_eq!(
        stderr,
        format!("stepward: the pod was not created: {said}\n")
    );
    assert_eq!(desk.ledger().len(), 1);
}

#[test]
fn a_pod_that_somebody_deleted_is_told() {
    let desk = desk();
    desk.write("sight.1", &running());
    desk.write("sight", "");
    desk.write("log.follow", "2026-11-16T17:00:00Z begun\n");
    let (exit_code, stdout, stderr) = told(&run(&desk));
    assert_eq!((exit_code, stdout.as_str()), (Some(125), "begun\n"));
    assert_eq!(stderr, "stepward: the pod was deleted by somebody else\n");
}

#[test]
fn a_cluster_that_does_not_answer_for_a_while_is_waited_for() {
    let desk = desk();
    desk.write("fail.get", "connection refused\n");
    desk.write("sight", &ended(0, ""));
    let invocation = prepare(&desk, script(Runner::Pod, "busybox", "true")).unwrap();
    let child = command(&desk, &invocation).spawn().unwrap();
    until(|| desk.ledger().len() > 5);
    desk.write("fail.get", "");
    let (exit_code, _, stderr) = told(&child.wait_with_output().unwrap());
    assert_eq!(exit_code, Some(0));
    let said = format!("{} said: connection refused", desk.tools.kubectl);
    assert_eq!(
        stderr,
        format!("stepward: the pod cannot be looked at: {said}\n")
    );
}

#[test]
fn a_log_that_may_not_be_read_does_not_fail_the_step() {
    let desk = desk();
    desk.write("fail.logs", "Error from server (Forbidden)\n");
    for look in 1..=5 {
        desk.write(&format!("sight.{look}"), &running());
    }
    desk.write("sight", &ended(0, "a=1"));
    let (exit_code, stdout, stderr) = told(&run(&desk));
    assert_eq!((exit_code, stdout.as_str()), (Some(0), ""));
    assert!(
        stderr.starts_with("Error from server (Forbidden)\n"),
        "{stderr}"
    );
    assert_eq!(desk.read("attempt/output"), "a=1");
}

#[test]
fn a_step_that_is_stopped_may_say_its_last_words() {
    let desk = desk();
    desk.write("sight", &running());
    desk.write("hang", "");
    desk.write("log.follow", "2026-11-16T17:00:00Z begun\n");
    desk.write(
        "log",
        "2026-11-16T17:00:00Z begun\n2026-11-16T17:00:01Z goodbye\n",
    );
    desk.write("after.delete", &ended(42, ""));
    let invocation = prepare(&desk, script(Runner::Pod, "busybox", "true")).unwrap();
    let child = command(&desk, &invocation).spawn().unwrap();
    until(|| desk.ledger().iter().any(|call| call.starts_with("logs ")));
    terminate(&child);
    let (exit_code, stdout, _) = told(&child.wait_with_output().unwrap());
    assert_eq!(exit_code, Some(42));
    assert_eq!(stdout, "begun\ngoodbye\n");
    let delete = format!("delete pod {NAME} --ignore-not-found --wait=false");
    assert!(desk.ledger().contains(&delete));
}

#[test]
fn a_pod_that_is_stopped_before_it_runs_is_simply_gone() {
    let desk = desk();
    desk.write("sight", r#"{ "status": { "phase": "Pending" } }"#);
    desk.write("after.delete", "");
    let invocation = prepare(&desk, script(Runner::Pod, "busybox", "true")).unwrap();
    let child = command(&desk, &invocation).spawn().unwrap();
    until(|| desk.ledger().len() > 3);
    terminate(&child);
    let (exit_code, _, stderr) = told(&child.wait_with_output().unwrap());
    assert_eq!((exit_code, stderr.as_str()), (Some(143), ""));
    assert_eq!(pod::tool_failure(&desk.place), None);
}

#[test]
fn a_manifest_is_checked_before_anything_is_made() {
    let mut desk = desk();
    desk.tools.namespace = Some("ours".to_string());
    let manifest = "
apiVersion: v1
kind: Pod
metadata: { name: x, namespace: theirs }
spec:
  hostNetwork: true
  containers: [{ name: main, image: busybox }]
";
    let action = Action::Pod {
        manifest: manifest.to_string(),
    };
    let why = "the manifest asks for hostNetwork, namespace \"theirs\", which reaches beyond its pod; the worker's \
               settings do not allow that (kubernetes.allow_privileged)";
    // Another worker may allow it.
    let refused = prepare(&desk, action.clone());
    assert_eq!(refused.unwrap_err(), Fault::Here(why.to_string()));
    assert!(!desk.place.folder.exists() && desk.ledger().is_empty());

    desk.tools.allow_privileged = true;
    let invocation = prepare(&desk, action).unwrap();
    assert_eq!(invocation.cleanup[0][1], "--namespace=theirs");
    let plan: Value = serde_json::from_str(&desk.read("attempt/pod")).unwrap();
    assert_eq!(plan["container"], "main");
    assert_eq!(
        plan["pod"]["spec"]["containers"][0]["env"],
        json!([
            { "name": "CI", "value": "true" },
            { "name": "STEPWARD", "value": "1" },
            { "name": "STEPWARD_ATTEMPT", "value": "2" },
            { "name": "STEPWARD_JOB_ID", "value": "5" },
            { "name": "STEPWARD_JOB_URL", "value": "http://localhost/jobs/5" },
            { "name": "STEPWARD_OUTPUT", "value": "/dev/termination-log" },
            { "name": "STEPWARD_STEP", "value": "build" },
            { "name": "STEPWARD_TASK", "value": "release" },
            { "name": "STEPWARD_WORKER", "value": "w" },
        ])
    );
}

#[test]
fn what_a_pod_cannot_hold_is_refused() {
    let desk = desk();
    let long = prepare(&desk, script(Runner::Pod, "busybox", &"x".repeat(200_000)));
    assert!(payload_fault(long).starts_with("the script is 200000 bytes long; "));
    let hostile = prepare(&desk, script(Runner::Pod, "a b", "true"));
    let sentence = "image \"a b\" is not the name of an image";
    assert_eq!(payload_fault(hostile), sentence);
    let other = prepare(&desk, script(Runner::Docker, "busybox", "true"));
    assert_eq!(
        payload_fault(other),
        "this step has nothing for a pod to run"
    );
    for manifest in [
        "a: [",
        "{kind: Job, apiVersion: v1}",
        "{kind: Pod, apiVersion: v1}",
    ] {
        let manifest = manifest.to_string();
        let refused = payload_fault(prepare(&desk, Action::Pod { manifest }));
        assert!(refused.starts_with("the manifest "), "{refused}");
    }
    let mut nul = assignment(script(Runner::Pod, "busybox", "true"));
    nul.env.insert("A".to_string(), "x\0".to_string());
    let refused = pod::prepare(&nul, &desk.place, &desk.tools);
    let sentence = "A has a NUL byte in it, which no environment can hold";
    assert_eq!(payload_fault(refused), sentence);
}

#[test]
fn a_file_that_is_no_plan_is_refused() {
    let desk = desk();
    for text in ["", "{}", "[1]"] {
        desk.write("plan", text);
        let output = Command::new(&desk.tools.stepward)
            .arg("run-pod")
            .arg(desk.folder.path().join("plan"))
            .output();
        let (exit_code, _, stderr) = told(&output.unwrap());
        assert_eq!(exit_code, Some(1));
        assert!(stderr.contains("is not a plan of ours: "), "{stderr}");
    }
}

fn terminate(child: &std::process::Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
}

/// What happens in another process cannot be waited for otherwise. Bounded, far above what it takes.
fn until(happened: impl Fn() -> bool) {
    for _ in 0..2_000 {
        if happened() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("it did not happen");
}
