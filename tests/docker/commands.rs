//! What the supervisor would run, run here: containers without a worker.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use libtest_mimic::Failed;
use rustix::process::{Pid, Signal, kill_process};
use stepward::domain::protocol::Assignment;
use stepward::domain::task::{Action, Runner};
use stepward::worker::executor::{Aside, Fault, Invocation, docker, offer, remove_leftovers};

use crate::daemon::{IMAGE, SPEAKING, daemon, until};
use crate::desk::{Desk, assignment, script};

/// A worker's desk with an instance key of its own, whose docker is the real one with our daemon.
fn real_desk() -> Desk {
    let mut desk = Desk::new();
    let settings = daemon().settings();
    let exports = settings.map(|(name, value)| format!("export {name}='{value}'\n"));
    desk.tools.docker = desk.tool("docker", &format!("{}exec docker \"$@\"", exports.concat()));
    desk.tools.docker_args = vec!["--network=none".to_string()];
    desk.tools.instance_key = format!("key of {}", desk.folder.path().display());
    desk
}

/// What the worker does: the command's words go to nobody here.
fn run_aside(_: Aside, argv: &[String]) -> Result<(), String> {
    let output = Command::new(&argv[0]).args(&argv[1..]).output().unwrap();
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("docker ended with {}", output.status)),
    }
}

fn prepared(
    desk: &Desk,
    assignment: &Assignment,
    more: &[(&str, &str)],
) -> Result<Invocation, Fault> {
    let mut assignment = assignment.clone();
    for (name, value) in more {
        assignment.env.insert(name.to_string(), value.to_string());
    }
    docker::prepare(&assignment, &desk.place, &desk.tools, &mut run_aside)
}

fn started(invocation: &Invocation) -> Child {
    Command::new(&invocation.argv[0])
        .args(&invocation.argv[1..])
        .env_clear()
        .envs(&invocation.env)
        .current_dir(&invocation.cwd)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn clean_up(invocation: &Invocation) {
    for argv in &invocation.cleanup {
        let mut command = Command::new(&argv[0]);
        let output = command
            .args(&argv[1..])
            .envs(&invocation.env)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

/// (exit code, stdout, stderr)
type Told = (Option<i32>, String, String);

fn told(output: Output) -> Told {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// From the assignment to the end, cleanup included.
fn run(desk: &Desk, action: Action) -> Told {
    let invocation = prepared(desk, &assignment(action), &[]).unwrap();
    let ended = told(started(&invocation).wait_with_output().unwrap());
    clean_up(&invocation);
    assert_eq!(containers(desk), [] as [String; 0]);
    ended
}

/// The states of the desk's containers.
fn containers(desk: &Desk) -> Vec<String> {
    daemon().containers(&desk.tools.instance_key)
}

fn shell(text: &str) -> Action {
    script(Runner::Docker, IMAGE, text)
}

fn image_with(image: &str, entrypoint: &[&str], command: &[&str]) -> Action {
    let owned = |words: &[&str]| words.iter().map(|word| word.to_string()).collect();
    Action::Docker {
        image: image.to_string(),
        entrypoint: owned(entrypoint),
        command: owned(command),
    }
}

pub fn exit_code() -> Result<(), Failed> {
    let desk = real_desk();
    let ended = run(&desk, shell("echo out; echo err >&2; pwd; exit 7"));
    let expected = (
        Some(7),
        "out\n/stepward/workspace\n".to_string(),
        "err\n".to_string(),
    );
    assert_eq!(ended, expected);
    assert_eq!(docker::tool_failure(&desk.place, 7), None);
    Ok(())
}

pub fn environment() -> Result<(), Failed> {
    let desk = real_desk();
    let long = "l".repeat(100_000);
    let given = [
        ("EMPTY", ""),
        ("SPACES", "  a  b  "),
        ("QUOTES", r#"a 'b' "c" `d` \e"#),
        ("LOOKS_LIKE", "# no comment=1; $HOME $(id) ${x}"),
        ("LINES", "one\ntwo\n\n\"three\"\n"),
        ("RETURN", "a\r"),
        ("RETURNS", "a\r\nb\r\n"),
        ("TAB", "\ta\t"),
        ("UNICODE", "žluťoučký \u{feff}🐎"),
        ("DOCKER_HOST", "tcp://192.0.2.1:1"),
        ("LD_PRELOAD", ""),
        ("LONG", &long),
    ];
    let assignment = assignment(shell("env -0 > \"$STEPWARD_OUTPUT\""));
    let invocation = prepared(&desk, &assignment, &given).unwrap();
    let (exit_code, _, stderr) = told(started(&invocation).wait_with_output().unwrap());
    clean_up(&invocation);
    assert_eq!((exit_code, stderr.as_str()), (Some(0), ""));
    let arrived = std::fs::read_to_string(desk.place.output()).unwrap();
    let arrived: BTreeMap<&str, &str> = arrived
        .split_terminator('\0')
        .filter_map(|pair| pair.split_once('='))
        .collect();
    for (name, value) in given {
        assert_eq!(arrived.get(name), Some(&value), "{name}");
    }
    assert_eq!(arrived["STEPWARD_OUTPUT"], "/stepward/output");
    assert_eq!(arrived["STEPWARD_TMP"], "/stepward/tmp");
    assert_ne!(arrived["PATH"], "/usr/bin:/bin", "the image's own");
    assert_ne!(arrived["HOME"], "/home/worker");
    Ok(())
}

pub fn output() -> Result<(), Failed> {
    for user in ["0:0", "1234:5678"] {
        let mut desk = real_desk();
        desk.tools.docker_args.push(format!("--user={user}"));
        let written = "id -u; echo \"image=app:1\" >> \"$STEPWARD_OUTPUT\"\n\
                       touch \"$STEPWARD_TMP/t\" \"$STEPWARD_WORKSPACE/w\" here";
        let (exit_code, stdout, stderr) = run(&desk, shell(written));
        let id = user.split(':').next().unwrap();
        assert_eq!((exit_code, stdout.trim()), (Some(0), id), "{stderr}");
        assert_eq!(desk.read("attempt/output"), "image=app:1\n");
        let folder = &desk.place.folder;
        for file in ["tmp/t", "workspace/w", "workspace/here"] {
            assert!(folder.join(file).exists(), "{file}");
        }
    }
    Ok(())
}

pub fn read_only_script() -> Result<(), Failed> {
    let desk = real_desk();
    let (exit_code, stdout, stderr) = run(&desk, shell("echo x > \"$0\"; echo $?"));
    assert_eq!((exit_code, stdout.as_str()), (Some(0), "1\n"));
    assert!(stderr.contains("Read-only file system"), "{stderr}");
    // Neither is what docker was told about the step.
    let (_, stdout, _) = run(&desk, shell("cd /stepward; echo *"));
    assert_eq!(stdout, "output script tmp workspace\n");
    Ok(())
}

pub fn reader() -> Result<(), Failed> {
    let desk = real_desk();
    let named = "#!/bin/awk -f\nBEGIN { print \"awk reads\"; exit 3 }\n";
    let (exit_code, stdout, stderr) = run(&desk, shell(named));
    assert_eq!(
        (exit_code, stdout.as_str()),
        (Some(3), "awk reads\n"),
        "{stderr}"
    );
    let mut assignment = assignment(shell("pwd"));
    assignment.workdir = Some("a/b".to_string());
    let invocation = prepared(&desk, &assignment, &[]).unwrap();
    let (_, stdout, stderr) = told(started(&invocation).wait_with_output().unwrap());
    clean_up(&invocation);
    assert_eq!(stdout, "/stepward/workspace/a/b\n", "{stderr}");
    Ok(())
}

pub fn own_command() -> Result<(), Failed> {
    let desk = real_desk();
    let (exit_code, stdout, _) = run(&desk, image_with(SPEAKING, &[], &[]));
    assert_eq!(
        (exit_code, stdout.as_str()),
        (Some(0), "I speak in /speech\n")
    );
    let (_, stdout, _) = run(
        &desk,
        image_with(SPEAKING, &[], &["echo", "told otherwise"]),
    );
    assert_eq!(stdout, "told otherwise\n");
    Ok(())
}

pub fn hostile_words() -> Result<(), Failed> {
    let desk = real_desk();
    let words = ["--privileged", "-v", "/:/host", "--", "$HOME"];
    let (_, stdout, _) = run(&desk, image_with(IMAGE, &["echo"], &words));
    assert_eq!(stdout, "--privileged -v /:/host -- $HOME\n");
    let (exit_code, _, stderr) = run(&desk, image_with(IMAGE, &["--privileged"], &[]));
    assert_eq!(exit_code, Some(127), "{stderr}");
    Ok(())
}

pub fn missing_image() -> Result<(), Failed> {
    let desk = real_desk();
    // Nobody listens there.
    let action = script(Runner::Docker, "localhost:1/none:1", "true");
    assert_eq!(
        prepared(&desk, &assignment(action), &[]).unwrap_err(),
        Fault::Here(
            "image localhost:1/none:1 is not here and could not be pulled: docker ended with exit status: 1"
                .to_string()
        )
    );
    assert_eq!(containers(&desk), [] as [String; 0]);
    Ok(())
}

pub fn failures() -> Result<(), Failed> {
    let desk = real_desk();
    let own = run(&desk, shell("exit 125"));
    assert_eq!(own.0, Some(125));
    assert_eq!(
        docker::tool_failure(&desk.place, 125),
        None,
        "the step's own"
    );
    let unknown = run(&desk, image_with(IMAGE, &["no-such-command"], &[]));
    assert_eq!(unknown.0, Some(127));
    assert_eq!(docker::tool_failure(&desk.place, 127), None);

    // The image goes between the preparation and the start.
    let docker = daemon().docker(&["tag", IMAGE, "stepward-test:short-lived"]);
    assert!(docker.status.success(), "{docker:?}");
    let action = script(Runner::Docker, "stepward-test:short-lived", "true");
    let invocation = prepared(&desk, &assignment(action), &[]).unwrap();
    let docker = daemon().docker(&["rmi", "stepward-test:short-lived"]);
    assert!(docker.status.success(), "{docker:?}");
    let (exit_code, _, stderr) = told(started(&invocation).wait_with_output().unwrap());
    clean_up(&invocation);
    assert_eq!(exit_code, Some(125), "{stderr}");
    assert_eq!(
        docker::tool_failure(&desk.place, 125).as_deref(),
        Some("docker could not make the container, the end of the log has its words")
    );
    assert!(stderr.contains("No such image"), "{stderr}");
    Ok(())
}

const WAITING: &str =
    "trap 'echo told to end; exit 42' TERM\necho ready\nwhile :; do sleep 0.1; done";

/// Returns once the script inside has said that it is ready.
fn waiting(desk: &Desk) -> (Invocation, Child, BufReader<std::process::ChildStdout>) {
    let invocation = prepared(desk, &assignment(shell(WAITING)), &[]).unwrap();
    let mut child = started(&invocation);
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    // Docker knows it a moment after the script does.
    assert!(until(10, || containers(desk) == ["running"]));
    (invocation, child, stdout)
}

pub fn terminated() -> Result<(), Failed> {
    let desk = real_desk();
    let (invocation, mut child, mut stdout) = waiting(&desk);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "told to end\n");
    assert_eq!(child.wait().unwrap().code(), Some(42));
    clean_up(&invocation);
    assert_eq!(containers(&desk), [] as [String; 0]);
    Ok(())
}

pub fn killed() -> Result<(), Failed> {
    let desk = real_desk();
    let (invocation, mut child, _) = waiting(&desk);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(containers(&desk), ["running"]);
    clean_up(&invocation);
    assert_eq!(containers(&desk), [] as [String; 0]);
    Ok(())
}

pub fn cleaned_twice() -> Result<(), Failed> {
    let desk = real_desk();
    let invocation = prepared(&desk, &assignment(shell("true")), &[]).unwrap();
    clean_up(&invocation);
    clean_up(&invocation);
    Ok(())
}

pub fn leftovers() -> Result<(), Failed> {
    let (desk, neighbour) = (real_desk(), real_desk());
    let (_, mut child, _) = waiting(&desk);
    let (neighbours, mut neighbours_child, _) = waiting(&neighbour);
    child.kill().unwrap();
    child.wait().unwrap();

    let wanted = ["docker".to_string()];
    let offered = offer(&wanted, &desk.tools);
    let leftovers = remove_leftovers(&wanted, &offered, true, &desk.tools);

    assert_eq!((leftovers.removed, leftovers.remarks.len()), (1, 0));
    assert_eq!(containers(&desk), [] as [String; 0]);
    assert_eq!(containers(&neighbour), ["running"], "another worker's stay");
    let again = remove_leftovers(&wanted, &offered, true, &desk.tools);
    assert_eq!(again.removed, 0);
    clean_up(&neighbours);
    neighbours_child.wait().unwrap();
    Ok(())
}

pub fn offered() -> Result<(), Failed> {
    let mut desk = real_desk();
    let wanted = ["docker".to_string()];
    assert_eq!(offer(&wanted, &desk.tools).tags, wanted);
    let nowhere = "export DOCKER_HOST=unix:///nowhere.sock\nexec docker \"$@\"";
    desk.tools.docker = desk.tool("lost-docker", nowhere);
    let offer = offer(&wanted, &desk.tools);
    assert_eq!(offer.tags, [] as [String; 0]);
    assert!(offer.remarks[0].contains("start the docker service"));
    assert!(Path::new(&desk.tools.docker).exists());
    Ok(())
}

/// What a process in a container sees of its own confinement.
#[derive(Debug, PartialEq, Eq)]
struct Confinement {
    /// The capabilities that it can ever get, a bit for each.
    bounding: u64,
    no_new_privileges: bool,
    pids_max: String,
}

const MKNOD: u64 = 1 << 27;
const NET_RAW: u64 = 1 << 13;
const CHOWN: u64 = 1 << 0;
const SYS_ADMIN: u64 = 1 << 21;

impl Confinement {
    fn has(&self, capability: u64) -> bool {
        self.bounding & capability != 0
    }
}

/// Reads the confinement inside a container of each kind of step, which must be the same.
fn confinement(hardened: bool, args: &[&str]) -> Confinement {
    const LOOK: &str = "cat /proc/self/status; echo pids_max: $(cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids/pids.max 2>&-)";
    let mut desk = real_desk();
    desk.tools.docker_hardened = hardened;
    let args = args.iter().map(|arg| arg.to_string());
    desk.tools.docker_args.extend(args);
    let seen = [shell(LOOK), image_with(IMAGE, &[], &["sh", "-c", LOOK])].map(|action| {
        let (code, out, err) = run(&desk, action);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
        let value = |name: &str| {
            let line = out.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("no {name} in {out}"))
                .trim()
                .to_string()
        };
        Confinement {
            bounding: u64::from_str_radix(&value("CapBnd:"), 16).unwrap(),
            no_new_privileges: value("NoNewPrivs:") == "1",
            pids_max: value("pids_max:"),
        }
    });
    let [script, image] = seen;
    assert_eq!(script, image);
    script
}

fn has_every_capability() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let bounding = status.lines().find_map(|line| line.strip_prefix("CapBnd:"));
    let bounding = u64::from_str_radix(bounding.unwrap().trim(), 16).unwrap();
    let last = std::fs::read_to_string("/proc/sys/kernel/cap_last_cap").unwrap();
    let last: u32 = last.trim().parse().unwrap();
    bounding.count_ones() > last
}

pub fn confined() -> Result<(), Failed> {
    let plain = confinement(false, &[]);
    assert!(plain.no_new_privileges, "{plain:?}");
    assert_eq!(plain.pids_max, "4096");
    assert!(!plain.has(NET_RAW) && !plain.has(MKNOD), "{plain:?}");
    assert!(plain.has(CHOWN), "{plain:?}");

    let hardened = confinement(true, &[]);
    let expected = Confinement {
        bounding: 0,
        ..plain
    };
    assert_eq!(hardened, expected);
    Ok(())
}

pub fn unconfined() -> Result<(), Failed> {
    for add in [&["--cap-add=NET_RAW"][..], &["--cap-add", "cap_net_raw"]] {
        let pinging = confinement(false, add);
        assert!(pinging.has(NET_RAW) && !pinging.has(MKNOD), "{pinging:?}");
        let hardened = confinement(true, add);
        assert_eq!(hardened.bounding, NET_RAW, "{hardened:?}");
    }
    // A machine that has not all of them itself can give no container all of them.
    if has_every_capability() {
        for hardened in [false, true] {
            let all = confinement(hardened, &["--cap-add=ALL"]);
            let every = [NET_RAW, MKNOD, SYS_ADMIN].map(|capability| all.has(capability));
            assert_eq!(every, [true; 3], "{all:?}");
        }
    }
    let many = confinement(false, &["--pids-limit=-1"]);
    assert_eq!(many.pids_max, "max");
    assert_eq!(confinement(false, &["--pids-limit", "77"]).pids_max, "77");
    for option in ["no-new-privileges=false", "no-new-privileges:false"] {
        let rising = confinement(false, &["--security-opt", option]);
        assert!(
            !rising.no_new_privileges && !rising.has(NET_RAW),
            "{rising:?}"
        );
    }
    Ok(())
}
