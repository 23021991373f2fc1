//! Nothing of a step outlives it: not after its end, not after a stop, not after the death of its worker or its supervisor.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use stepward::domain::protocol::Finished;
use stepward::domain::reason::Reason;
use stepward::worker::executor::Invocation;
use stepward::worker::slot::Stop;
use stepward::worker::supervised::{End, Exit, Supervised};

use super::{Bench, Held, eventually, failed, until};

/// One in its own session, one whose parent is gone, one that is an ordinary child.
const THREE_WAYS: &str = "setsid sleep 1000 & (sleep 1000 &) ; echo up; sleep 1000";

fn running(bench: &Bench, script: &str, processes: usize) -> Held {
    let held = bench.run(bench.assignment(None, script));
    until("it runs", || {
        bench.stdout().first().is_some_and(|line| line == "up") && bench.alive() == processes
    });
    held
}

#[test]
fn a_stop_ends_everything_below() {
    for stop in [Stop::Gently, Stop::AtOnce] {
        let bench = Bench::new();
        let held = running(&bench, THREE_WAYS, 4);
        held.slot.stop(stop);
        let finished = held.finished();
        assert_eq!(bench.alive(), 0, "{stop:?}");
        let signal = match stop {
            Stop::Gently => "signal 15 (SIGTERM)",
            Stop::AtOnce => "signal 9 (SIGKILL)",
        };
        let message = format!("killed by {signal}");
        assert_eq!(failed(&finished), (Reason::Signal, message.as_str()));
        assert_eq!(
            bench.notes(),
            ["stopped: 4 processes killed, none left", &message]
        );
    }
}

#[test]
fn a_step_that_is_asked_to_end_may_tidy_up() {
    let bench = Bench::new();
    let script = "trap 'sleep 0.3; echo tidy; exit 5' TERM; echo up; sleep 1000 & wait";
    let held = running(&bench, script, 2);
    held.slot.stop(Stop::Gently);
    assert_eq!(held.finished(), Finished::exited(5));
    assert_eq!(bench.stdout(), ["up", "tidy"]);
}

#[test]
fn a_step_that_does_not_listen_is_killed_after_the_grace() {
    let bench = Bench::new().with_grace_ms(300);
    let script = "trap '' TERM; echo up; while true; do sleep 1000; done";
    let held = running(&bench, script, 2);
    held.slot.stop(Stop::Gently);
    assert_eq!(
        failed(&held.finished()),
        (Reason::Signal, "killed by signal 9 (SIGKILL)")
    );
    assert_eq!(bench.alive(), 0);
}

#[test]
fn whoever_cannot_wait_for_the_grace_does_not() {
    let bench = Bench::new().with_grace_ms(3_600_000);
    let held = running(&bench, "trap '' TERM; echo up; sleep 1000", 2);
    held.slot.stop(Stop::Gently);
    held.slot.stop(Stop::AtOnce);
    assert_eq!(failed(&held.finished()).0, Reason::Signal);
    assert_eq!(bench.alive(), 0);
}

#[test]
fn a_stopped_process_is_ended_as_well() {
    let bench = Bench::new();
    let held = running(
        &bench,
        "sh -c 'kill -STOP $$; sleep 1000' & echo up; sleep 1000",
        3,
    );
    held.slot.stop(Stop::Gently);
    held.finished();
    assert_eq!(bench.alive(), 0);
}

#[test]
fn what_a_step_leaves_behind_goes_with_it_and_the_log_says_so() {
    let bench = Bench::new();
    let begun = std::time::Instant::now();
    let finished = bench.finish_script("setsid sleep 1000 & sleep 1000 & echo done");
    assert_eq!(finished, Finished::completed());
    assert_eq!(bench.alive(), 0);
    assert!(begun.elapsed().as_secs() < 30);
    assert_eq!(bench.stdout(), ["done"]);
    assert_eq!(
        bench.notes(),
        [
            "2 processes that the step left behind were killed, none is left",
            "exit code 0"
        ]
    );
}

#[test]
fn what_ends_by_itself_right_after_the_step_may_do_so() {
    let bench = Bench::new();
    let script = "exec > >(sleep 0.02; sed s/^/seen:/); echo last";
    let finished = bench.finish(bench.assignment(Some("bash"), script));
    assert_eq!(finished, Finished::completed());
    assert_eq!(bench.stdout(), ["seen:last"]);
    assert_eq!(bench.notes(), ["exit code 0"]);
}

/// Not a test: the worker that another one kills.
#[test]
#[ignore = "run by the_death_of_the_worker_is_the_end_of_its_steps"]
fn a_worker_that_runs_a_step_until_it_is_killed() {
    let Ok(key) = std::env::var("TEST_INSTANCE_KEY") else {
        return;
    };
    let mut bench = Bench::new();
    let mut tools = (*bench.tools).clone();
    tools.instance_key = key;
    bench.tools = tools.into();
    bench.place.folder = std::env::var("TEST_PLACE").unwrap().into();
    let _held = running(&bench, THREE_WAYS, 4);
    println!("\nit runs");
    loop {
        std::thread::park();
    }
}

#[test]
fn the_death_of_the_worker_is_the_end_of_its_steps() {
    let bench = Bench::new();
    let mut worker = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "--nocapture"])
        .arg("worker::supervisor::a_worker_that_runs_a_step_until_it_is_killed")
        .env("TEST_INSTANCE_KEY", &bench.tools.instance_key)
        .env("TEST_PLACE", &bench.place.folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(worker.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap() == "it runs"));
    assert_eq!(bench.alive(), 4);
    worker.kill().unwrap();
    worker.wait().unwrap();
    until("none is left", || bench.alive() == 0);
    let expected = ["the worker died: 4 processes were killed, none is left"];
    until("the log says so", || bench.notes() == expected);
}

#[test]
fn a_record_that_the_worker_did_not_finish_does_not_spoil_the_last_one() {
    let bench = Bench::new();
    std::fs::create_dir_all(&bench.place.folder).unwrap();
    std::fs::write(bench.place.log(), "1 o whole\n2 o ha").unwrap();
    let supervised = supervised(&bench, &["sleep", "1000"], Vec::new());
    until("it runs", || bench.alive() == 1);
    drop(supervised);
    assert_eq!(bench.alive(), 0);
    let log = std::fs::read_to_string(bench.place.log()).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines[..2], ["1 o whole", "2 o ha"]);
    assert!(lines[2].ends_with(" w the worker died: 1 process was killed, none is left"));
    assert_eq!(lines.len(), 3);
}

#[test]
fn a_supervisor_that_is_killed_leaves_nothing_either() {
    let bench = Bench::new();
    let held = running(&bench, THREE_WAYS, 4);
    let supervisor = eventually("the supervisor", || supervisor_of(&bench));
    kill_process(supervisor, Signal::KILL).unwrap();
    let finished = held.finished();
    assert_eq!(bench.alive(), 0);
    let message = "its supervisor was killed by signal 9 (SIGKILL), and the step with it";
    assert_eq!(failed(&finished), (Reason::Signal, message));
    let note = "its supervisor was killed by signal 9 (SIGKILL): 4 processes killed, none left";
    assert_eq!(bench.notes(), [note, message]);
}

#[test]
fn a_step_that_kills_its_supervisor_has_failed() {
    let bench = Bench::new();
    let finished = bench.finish_script("kill -9 $PPID; sleep 1000");
    assert_eq!(failed(&finished).0, Reason::Signal);
    assert_eq!(bench.alive(), 0);
}

#[test]
fn a_supervisor_that_does_not_do_as_it_is_told_can_be_done_without() {
    let bench = Bench::new();
    let supervised = supervised(
        &bench,
        &["sh", "-c", "kill -STOP $PPID; sleep 1000"],
        Vec::new(),
    );
    until("it stands still", || supervised.is_suspended());
    supervised.kill_supervisor();
    assert!(matches!(supervised.wait().exit, Exit::Unsupervised(_)));
    assert_eq!(bench.alive(), 0);
}

#[test]
fn a_step_that_makes_its_supervisor_stand_still_ends_within_its_grace() {
    let tries = [
        // Once, and obedient itself.
        ("kill -STOP $PPID; echo up; sleep 1000", 2),
        // Again and again, and deaf.
        (
            "trap '' TERM; parent=$PPID; (while :; do kill -STOP $parent; done) & echo up; sleep 1000",
            3,
        ),
    ];
    for (script, processes) in tries {
        for (stop, grace_ms) in [(Stop::Gently, 1_000), (Stop::AtOnce, 3_600_000)] {
            let bench = Bench::new().with_grace_ms(grace_ms);
            let held = running(&bench, script, processes);
            let begun = std::time::Instant::now();
            held.slot.stop(stop);
            let finished = held.finished();
            assert_eq!(failed(&finished).0, Reason::Signal);
            assert_eq!(bench.alive(), 0, "{script}");
            // Far below the minute that a supervisor may take, also on a busy machine.
            assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
        }
    }
}

#[test]
fn a_step_that_stops_its_supervisor_and_exits_ends_with_its_exit_code() {
    let bench = Bench::new();
    let finished = bench.finish_script("kill -STOP $PPID; echo up; exit 3");
    assert_eq!(finished, Finished::exited(3));
    let resumed = "a signal (SIGSTOP) stopped the supervisor of the step: the worker resumed it";
    assert_eq!(bench.notes(), [resumed, "exit code 3"]);
    assert_eq!(bench.stdout(), ["up"]);
}

#[test]
fn a_step_that_leaves_behind_who_stops_its_supervisor_ends_with_all_of_it() {
    let bench = Bench::new();
    let script = "parent=$PPID; (while :; do kill -STOP $parent; done) & exit 0";
    // The supervisor may be quick enough to kill whoever stops it. Otherwise the worker does without the supervisor.
    match bench.finish_script(script) {
        Finished::Completed { .. } => {}
        finished => {
            let sentence = "its supervisor was killed by signal 9 (SIGKILL) after a signal (SIGSTOP) had stopped it again and \
                            again, and the step with it";
            assert_eq!(failed(&finished), (Reason::Signal, sentence));
        }
    }
    assert_eq!(bench.alive(), 0);
}

#[test]
fn a_storm_that_outlives_its_step_ends() {
    let bench = Bench::new();
    let script = "
import os, time
if os.fork() == 0:
    os.setsid()
    for _ in range(100):
        if os.fork() == 0: break
    while True:
        if os.fork() > 0:
            os._exit(0)
        time.sleep(0.002)
time.sleep(0.1)
";
    let finished = bench.finish(bench.assignment(Some("python3"), script));
    assert_eq!(finished, Finished::completed());
    assert_eq!(bench.alive(), 0);
}

#[test]
fn what_a_terminal_sends_to_everybody_does_not_end_a_supervisor() {
    let bench = Bench::new();
    let held = running(
        &bench,
        "echo up; read line < /dev/tty; echo $?; sleep 1000",
        2,
    );
    let supervisor = supervisor_of(&bench).unwrap();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        kill_process(supervisor, signal).unwrap();
    }
    held.slot.stop(Stop::Gently);
    assert_eq!(
        failed(&held.finished()),
        (Reason::Signal, "killed by signal 15 (SIGTERM)")
    );
    assert_ne!(
        bench.stdout().get(1).map(String::as_str),
        Some("0"),
        "there is no terminal"
    );
}

#[test]
fn a_storm_of_forks_ends() {
    let bench = Bench::new();
    let script = "
import os, time
open('up', 'w')
print('up', flush=True)
alive = 200
while True:
    for _ in range(alive):
        if os.fork() == 0:
            if os.fork() == 0:
                time.sleep(0.01)
            os._exit(0)
    time.sleep(0.01)
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0): break
        except ChildProcessError: break
";
    let held = bench.run(bench.assignment(Some("python3"), script));
    until("it storms", || bench.alive() > 20);
    held.slot.stop(Stop::AtOnce);
    held.finished();
    assert_eq!(bench.alive(), 0);
}

#[test]
fn a_step_cannot_talk_to_its_supervisor() {
    let bench = Bench::new();
    let script = "ls -l /proc/self/fd";
    assert_eq!(bench.finish_script(script), Finished::completed());
    let open = bench.stdout();
    assert!(
        !open.iter().any(|line| line.contains("socket:")),
        "{open:?}"
    );
    assert!(
        open.iter().any(|line| line.ends_with("0 -> /dev/null")),
        "{open:?}"
    );
}

#[test]
fn a_step_has_no_descriptor_but_the_standard_three() {
    let bench = Bench::new();
    // As whoever starts a worker may leave one open.
    let secret = std::fs::File::create(bench.file("left-open")).unwrap();
    rustix::io::fcntl_setfd(&secret, rustix::io::FdFlags::empty()).unwrap();
    let script = "for open in /proc/$$/fd/*; do readlink $open || true; done";
    assert_eq!(bench.finish_script(script), Finished::completed());
    let mut open = bench.stdout();
    // Through which the shell reads it.
    open.retain(|file| *file != bench.place.script().display().to_string());
    assert_eq!(open.len(), 3, "{open:?}");
    assert_eq!(open[0], "/dev/null");
    assert!(
        open[1..].iter().all(|file| file.starts_with("pipe:")),
        "{open:?}"
    );
}

#[test]
fn what_cleans_up_runs_in_every_ending() {
    for way in [
        "ends",
        "is stopped",
        "loses its worker",
        "loses its supervisor",
        "never starts",
    ] {
        let bench = Bench::new();
        let cleaned = bench.file("cleaned");
        let cleanup = vec![
            vec!["no-such-program".to_string()],
            shell("echo the disk is >&2; echo full >&2; exit 3"),
            shell("yes | head -c 1000000 >&2"),
            vec!["touch".to_string(), cleaned.display().to_string()],
        ];
        let argv: &[&str] = match way {
            "ends" => &["true"],
            "never starts" => &["/no/such/program"],
            _ => &["sleep", "1000"],
        };
        let supervised = supervised(&bench, argv, cleanup);
        match way {
            "ends" | "never starts" => {}
            "is stopped" => supervised.stop(Stop::Gently),
            "loses its supervisor" => {
                until("it runs", || bench.alive() == 1);
                supervised.kill_supervisor();
            }
            _ => {
                drop(supervised);
                assert!(cleaned.exists(), "{way}");
                continue;
            }
        }
        let End { exit, unclean, .. } = supervised.wait();
        let expected = match way {
            "ends" => Exit::Code(0),
            "is stopped" => Exit::Signal(15),
            "never starts" => {
                Exit::SpawnFailed("/no/such/program was not found on this worker".to_string())
            }
            _ => Exit::Unsupervised("its supervisor was killed by signal 9 (SIGKILL)".to_string()),
        };
        assert_eq!(exit, expected, "{way}");
        assert!(cleaned.exists(), "{way}");
        assert_eq!(unclean.len(), 2, "{way}");
        assert!(unclean[0].starts_with("no-such-program: "), "{unclean:?}");
        assert!(unclean[1].ends_with("exit status: 3: full"), "{unclean:?}");
        assert_eq!(bench.alive(), 0, "{way}");
    }
}

#[test]
fn nobody_supervises_by_hand() {
    let run = Command::new(env!("CARGO_BIN_EXE_stepward"))
        .arg("supervise")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(1));
    let said = String::from_utf8(run.stderr).unwrap();
    assert!(said.contains("nothing for people to type"), "{said}");
}

fn supervised(bench: &Bench, argv: &[&str], cleanup: Vec<Vec<String>>) -> Supervised {
    std::fs::create_dir_all(&bench.place.folder).unwrap();
    let path = std::env::var("PATH").unwrap();
    let invocation = Invocation {
        argv: argv.iter().map(|word| word.to_string()).collect(),
        env: [("PATH".to_string(), path)].into(),
        cwd: bench.place.folder.clone(),
        settled: None,
        cleanup,
    };
    let attempt = bench.assignment(None, "").attempt;
    let log = bench.place.log();
    Supervised::start(&bench.tools, &invocation, attempt, 1_000, &log).unwrap()
}

fn shell(script: &str) -> Vec<String> {
    ["sh", "-c", script].map(str::to_string).to_vec()
}

/// The parent of the step's own process, which is the first of those that carry the mark.
fn supervisor_of(bench: &Bench) -> Option<Pid> {
    let mark = format!("STEPWARD_ATTEMPT_KEY={}/", bench.tools.instance_key);
    let script = bench.place.script();
    let script = script.to_string_lossy();
    for entry in std::fs::read_dir("/proc").unwrap() {
        let folder = entry.unwrap().path();
        let read = |name: &str| std::fs::read(folder.join(name)).unwrap_or_default();
        if memchr::memmem::find(&read("environ"), mark.as_bytes()).is_none()
            || memchr::memmem::find(&read("cmdline"), script.as_bytes()).is_none()
        {
            continue;
        }
        let status = String::from_utf8(read("status")).unwrap();
        let parent = status
            .lines()
            .find_map(|line| line.strip_prefix("PPid:\t"))?;
        let parent: i32 = parent.parse().unwrap();
        let command = std::fs::read(format!("/proc/{parent}/cmdline")).unwrap_or_default();
        if memchr::memmem::find(&command, b"supervise").is_some() {
            return Pid::from_raw(parent);
        }
    }
    None
}
