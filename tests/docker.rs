//! Steps in real containers: this program starts a docker daemon of its own, in a folder of its own, and ends it again.
//!
//! No registry and no network: the one image is made from a busybox. What is run is what the supervisor would run.

#[allow(dead_code)] // Other tests need more of it.
#[path = "it/executor/desk.rs"]
mod desk;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};
use stepward::domain::protocol::Assignment;
use stepward::domain::task::{Action, Runner};
use stepward::worker::executor::{Aside, Invocation, docker, offer, remove_leftovers};
use tempfile::TempDir;

use desk::{Desk, assignment, script};

const IMAGE: &str = "stepward-test:1";
/// The same, with a command and a working directory of its own.
const SPEAKING: &str = "stepward-test:speaking";

static DAEMON: OnceLock<Daemon> = OnceLock::new();

type Story = fn() -> Result<(), Failed>;

#[rustfmt::skip]
const STORIES: &[(&str, Story)] = &[
    ("a_script_runs_in_the_image_and_its_exit_code_is_the_steps", exit_code),
    ("an_environment_arrives_byte_by_byte",                       environment),
    ("an_output_is_readable_outside_whoever_wrote_it_inside",     output),
    ("a_script_cannot_be_changed_from_inside",                    read_only_script),
    ("a_script_may_name_who_reads_it",                            reader),
    ("an_image_runs_its_own_command_where_it_says",               own_command),
    ("words_of_a_command_are_never_options_of_docker",            hostile_words),
    ("an_image_that_nobody_has_is_one_clear_sentence",            missing_image),
    ("a_failure_of_docker_is_told_from_one_of_the_step",          failures),
    ("a_signal_reaches_the_first_process",                        terminated),
    ("a_container_outlives_a_killed_docker_but_not_the_cleanup",  killed),
    ("a_cleanup_finds_nothing_to_do_without_complaint",           cleaned_twice),
    ("what_a_former_life_left_is_removed",                        leftovers),
    ("docker_is_offered_while_its_daemon_answers",                offered),
];

fn main() {
    let arguments = Arguments::from_args();
    let listing = arguments.list;
    if !listing {
        assert!(DAEMON.set(Daemon::start()).is_ok(), "there is one");
    }
    let trials = STORIES
        .iter()
        .map(|(name, story)| Trial::test(*name, *story))
        .collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !listing {
        daemon().end();
    }
    conclusion.exit();
}

struct Daemon {
    folder: TempDir,
    process: Pid,
}

fn daemon() -> &'static Daemon {
    DAEMON.get().expect("it was started")
}

impl Daemon {
    fn start() -> Daemon {
        let folder = tempfile::tempdir().unwrap();
        let below = |name: &str| folder.path().join(name).display().to_string();
        let log = std::fs::File::create(below("log")).unwrap();
        // It ends with this program, also when that is killed.
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "dockerd", "--storage-driver=vfs"])
            .args(["--iptables=false", "--ip6tables=false", "--bridge=none"])
            .args(["--data-root", &below("data"), "--exec-root", &below("exec")])
            .args(["--pidfile", &below("pid")])
            .args(["--host", &format!("unix://{}", below("socket"))])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        let mut process = process.expect("setpriv (util-linux) is there");
        let daemon = Daemon {
            process: Pid::from_child(&process),
            folder,
        };
        let mut answers = || {
            let ended = process.try_wait().unwrap();
            assert!(ended.is_none(), "dockerd ended: {}", daemon.log());
            daemon.docker(&["version"]).status.success()
        };
        assert!(
            until(60, &mut answers),
            "dockerd is silent: {}",
            daemon.log()
        );
        daemon.import(IMAGE, &[]);
        daemon.import(
            SPEAKING,
            &[
                "CMD [\"sh\",\"-c\",\"echo I speak in $(pwd)\"]",
                "WORKDIR /speech",
            ],
        );
        daemon
    }

    /// An image of one static busybox, which is every command that it is called by.
    fn import(&self, image: &str, changes: &[&str]) {
        let root = self.folder.path().join("root");
        let bin = root.join("bin");
        if !bin.exists() {
            std::fs::create_dir_all(&bin).unwrap();
            std::fs::copy("/bin/busybox", bin.join("busybox")).expect("busybox-static is there");
            for command in [
                "sh", "cat", "echo", "env", "id", "pwd", "sleep", "touch", "awk",
            ] {
                std::os::unix::fs::symlink("busybox", bin.join(command)).unwrap();
            }
        }
        let mut tar = Command::new("tar")
            .args(["--create", "--directory", root.to_str().unwrap(), "."])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let changes = changes.iter().map(|change| format!("--change={change}"));
        let imported = self
            .command()
            .arg("import")
            .args(changes)
            .args(["-", image])
            .stdin(tar.stdout.take().unwrap())
            .output()
            .unwrap();
        assert!(imported.status.success(), "{imported:?}");
        assert!(tar.wait().unwrap().success());
    }

    fn command(&self) -> Command {
        let mut command = Command::new("docker");
        for (name, value) in self.settings() {
            command.env(name, value);
        }
        command
    }

    fn settings(&self) -> [(&'static str, String); 2] {
        let folder = self.folder.path().display();
        [
            ("DOCKER_HOST", format!("unix://{folder}/socket")),
            ("DOCKER_CONFIG", format!("{folder}/config")),
        ]
    }

    fn docker(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().unwrap()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// It is told to end, not killed: killed, it would leave its own helpers running.
    fn end(&self) {
        kill_process(self.process, Signal::TERM).unwrap();
        let ended = || {
            let status =
                rustix::process::waitpid(Some(self.process), rustix::process::WaitOptions::NOHANG);
            status.map_or(true, |status| status.is_some())
        };
        assert!(until(60, ended), "dockerd does not end: {}", self.log());
        // A static is never dropped. Whatever docker keeps busy in it, the next restart of the machine takes.
        let _ = std::fs::remove_dir_all(self.folder.path());
    }
}

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
) -> Result<Invocation, String> {
    let mut environment = desk.environment();
    for (name, value) in more {
        environment.insert(name.to_string(), value.to_string());
    }
    docker::prepare(
        assignment,
        &desk.place,
        &desk.tools,
        environment,
        &mut run_aside,
    )
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
    let label = format!(
        "--filter=label=stepward.instance={}",
        desk.tools.instance_key
    );
    let listed = daemon().docker(&["ps", "--all", "--format={{.State}}", &label]);
    assert!(listed.status.success(), "{listed:?}");
    let states = String::from_utf8(listed.stdout).unwrap();
    states.lines().map(str::to_string).collect()
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

fn exit_code() -> Result<(), Failed> {
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

fn environment() -> Result<(), Failed> {
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
    assert_eq!(arrived["TMPDIR"], "/stepward/tmp");
    assert_ne!(arrived["PATH"], "/usr/bin:/bin", "the image's own");
    assert_ne!(arrived["HOME"], "/home/worker");
    Ok(())
}

fn output() -> Result<(), Failed> {
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

fn read_only_script() -> Result<(), Failed> {
    let desk = real_desk();
    let (exit_code, stdout, stderr) = run(&desk, shell("echo x > \"$0\"; echo $?"));
    assert_eq!((exit_code, stdout.as_str()), (Some(0), "1\n"));
    assert!(stderr.contains("Read-only file system"), "{stderr}");
    // Neither is what docker was told about the step.
    let (_, stdout, _) = run(&desk, shell("cd /stepward; echo *"));
    assert_eq!(stdout, "output script tmp workspace\n");
    Ok(())
}

fn reader() -> Result<(), Failed> {
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

fn own_command() -> Result<(), Failed> {
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

fn hostile_words() -> Result<(), Failed> {
    let desk = real_desk();
    let words = ["--privileged", "-v", "/:/host", "--", "$HOME"];
    let (_, stdout, _) = run(&desk, image_with(IMAGE, &["echo"], &words));
    assert_eq!(stdout, "--privileged -v /:/host -- $HOME\n");
    let (exit_code, _, stderr) = run(&desk, image_with(IMAGE, &["--privileged"], &[]));
    assert_eq!(exit_code, Some(127), "{stderr}");
    Ok(())
}

fn missing_image() -> Result<(), Failed> {
    let desk = real_desk();
    // Nobody listens there.
    let action = script(Runner::Docker, "localhost:1/none:1", "true");
    assert_eq!(
        prepared(&desk, &assignment(action), &[]).unwrap_err(),
        "image localhost:1/none:1 is not here and could not be pulled: docker ended with exit status: 1"
    );
    assert_eq!(containers(&desk), [] as [String; 0]);
    Ok(())
}

fn failures() -> Result<(), Failed> {
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

fn terminated() -> Result<(), Failed> {
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

fn killed() -> Result<(), Failed> {
    let desk = real_desk();
    let (invocation, mut child, _) = waiting(&desk);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(containers(&desk), ["running"]);
    clean_up(&invocation);
    assert_eq!(containers(&desk), [] as [String; 0]);
    Ok(())
}

fn cleaned_twice() -> Result<(), Failed> {
    let desk = real_desk();
    let invocation = prepared(&desk, &assignment(shell("true")), &[]).unwrap();
    clean_up(&invocation);
    clean_up(&invocation);
    Ok(())
}

fn leftovers() -> Result<(), Failed> {
    let (desk, neighbour) = (real_desk(), real_desk());
    let (_, mut child, _) = waiting(&desk);
    let (neighbours, mut neighbours_child, _) = waiting(&neighbour);
    child.kill().unwrap();
    child.wait().unwrap();

    let leftovers = remove_leftovers(&["docker".to_string()], &desk.tools);

    assert_eq!((leftovers.removed, leftovers.remarks.len()), (1, 0));
    assert_eq!(containers(&desk), [] as [String; 0]);
    assert_eq!(containers(&neighbour), ["running"], "another worker's stay");
    let again = remove_leftovers(&["docker".to_string()], &desk.tools);
    assert_eq!(again.removed, 0);
    clean_up(&neighbours);
    neighbours_child.wait().unwrap();
    Ok(())
}

fn offered() -> Result<(), Failed> {
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

/// What happens in another process cannot be waited for otherwise.
fn until(secs: u32, mut happened: impl FnMut() -> bool) -> bool {
    (0..secs * 10).any(|_| {
        let happened = happened();
        if !happened {
            thread::sleep(Duration::from_millis(100));
        }
        happened
    })
}
