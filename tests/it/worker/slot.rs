//! One attempt from its assignment to its end: what runs it, what is said of it, and that something always is.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::unbounded;
use stepward::domain::Json;
use stepward::domain::protocol::{Assignment, Finished};
use stepward::domain::reason::Reason;
use stepward::domain::task::Action;
use stepward::worker::slot::{Listeners, Slot, SlotNews, Stop};

use super::{Bench, Held, PATIENCE, exists, failed, until};
use crate::executor::desk::Desk;

#[test]
fn a_script_runs_in_sh_and_its_exit_code_is_what_counts() {
    let bench = Bench::new();
    assert_eq!(
        bench.finish_script("echo hello; echo oh no >&2"),
        Finished::completed()
    );
    assert_eq!(bench.stdout(), ["hello"]);
    assert_eq!(bench.notes(), ["exit code 0"]);

    let bench = Bench::new();
    assert_eq!(
        bench.finish_script("echo before; exit 3; echo after"),
        Finished::exited(3)
    );
    assert_eq!(bench.stdout(), ["before"]);
    assert_eq!(bench.notes(), ["exit code 3"]);
}

#[test]
fn a_language_or_the_first_line_says_who_reads_it() {
    for (language, script, printed) in [
        (Some("sh"), "echo sh", "sh"),
        (Some("bash"), "a=(1 2); echo bash ${#a[@]}", "bash 2"),
        (Some("python"), "print('python', 1 + 1)", "python 2"),
        (Some("node"), "console.log(`node ${1 + 1}`)", "node 2"),
        (Some("/bin/bash"), "echo $BASH_VERSION | grep -c .", "1"),
        (None, "#!/usr/bin/env python3\nprint('line')", "line"),
        (
            None,
            "#!/bin/bash -e\nfalse || echo \"$-\" | grep -o e",
            "e",
        ),
    ] {
        let bench = Bench::new();
        let finished = bench.finish(bench.assignment(language, script));
        assert_eq!(
            finished,
            Finished::completed(),
            "{script}: {:?}",
            bench.notes()
        );
        assert_eq!(bench.stdout(), [printed]);
    }
}

#[test]
fn a_missing_program_is_named_with_what_to_do_about_it() {
    let bench = Bench::new();
    let finished = bench.finish(bench.assignment(Some("cobolscript"), "x"));
    let sentence = "there is no \"cobolscript\" on this worker: install it, or give the step a tag of workers that have it";
    assert_eq!(failed(&finished), (Reason::SpawnError, sentence));
    assert_eq!(bench.notes(), [sentence]);

    let bench = Bench::new();
    let mut assignment = bench.assignment(Some("python"), "x");
    assignment
        .env
        .insert("PATH".to_string(), "/nowhere".to_string());
    let finished = bench.finish(assignment);
    let (reason, message) = failed(&finished);
    assert_eq!(reason, Reason::SpawnError);
    let start =
        "there is no \"python3\" and no \"python\" on this worker: install it (the package python3";
    assert!(message.starts_with(start), "{message}");

    let bench = Bench::new();
    let finished = bench.finish_script("#!/usr/bin/nope -x\n1");
    let sentence =
        "the program that the script's first line names does not exist: #!/usr/bin/nope -x";
    assert_eq!(failed(&finished), (Reason::SpawnError, sentence));
}

#[test]
fn a_signal_is_named() {
    let bench = Bench::new();
    let finished = bench.finish_script("kill -9 $$");
    assert_eq!(
        failed(&finished),
        (Reason::Signal, "killed by signal 9 (SIGKILL)")
    );
    let bench = Bench::new();
    let finished = bench.finish(bench.assignment(
        Some("python"),
        "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    ));
    assert_eq!(
        failed(&finished),
        (Reason::Signal, "killed by signal 11 (SIGSEGV)")
    );
}

#[test]
fn nothing_of_the_users_runs_before_the_yes() {
    let bench = Bench::new();
    let touched = bench.file("touched");
    let held = bench.start(bench.assignment(None, &format!("touch {}", touched.display())));
    assert!(matches!(held.news(), SlotNews::Prepared(_)));
    let mode = bench
        .place
        .script()
        .metadata()
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
    for folder in [
        &bench.place.folder,
        &bench.place.tmp(),
        &bench.place.workspace(),
    ] {
        assert_eq!(
            folder.metadata().unwrap().permissions().mode() & 0o777,
            0o700
        );
    }
    assert!(!exists(&touched));
    held.slot.run();
    assert_eq!(held.finished(), Finished::completed());
    assert!(exists(&touched));
}

#[test]
fn a_stop_before_the_yes_is_its_end() {
    let bench = Bench::new();
    let held = bench.start(bench.assignment(None, "echo never"));
    let SlotNews::Prepared(attempt) = held.news() else {
        panic!("prepared first");
    };
    held.slot.stop(Stop::Gently);
    let why = "it was stopped before it ran".to_string();
    assert_eq!(held.news(), SlotNews::Unprepared { attempt, why });
    held.slot.run();
    assert!(held.news_rx.recv().is_err(), "nothing more is said");
}

#[test]
fn who_lets_go_of_a_slot_ends_its_attempt() {
    let bench = Bench::new();
    let held = bench.run(bench.assignment(None, "echo up; sleep 1000"));
    until("it runs", || bench.stdout() == ["up"]);
    let news_rx = held.news_rx.clone();
    drop(held);
    assert!(matches!(news_rx.recv(), Ok(SlotNews::Ended { .. })));
    assert_eq!(bench.alive(), 0);
}

#[test]
fn the_end_is_first_told_to_who_writes_it_down() {
    let bench = Bench::new();
    let (news_tx, news_rx) = unbounded();
    let written = Arc::new(AtomicBool::new(false));
    let written_by_hook = written.clone();
    let listeners = Listeners {
        on_log: Arc::new(|| {}),
        before_end: Box::new(move |finished, _| {
            assert_eq!(*finished, Finished::exited(9));
            written_by_hook.store(true, Ordering::SeqCst);
            panic!("a listener with a bug");
        }),
        news: news_tx,
    };
    let assignment = bench.assignment(None, "exit 9");
    let slot = Slot::start(
        assignment,
        bench.place.clone(),
        bench.tools.clone(),
        bench.settings,
        listeners,
    );
    slot.run();
    assert!(matches!(news_rx.recv(), Ok(SlotNews::Prepared(_))));
    let ended = news_rx.recv().unwrap();
    assert!(matches!(ended, SlotNews::Ended { finished, .. } if finished == Finished::exited(9)));
    assert!(written.load(Ordering::SeqCst));
}

#[test]
fn a_folder_that_cannot_be_made_sends_the_assignment_back() {
    let mut bench = Bench::new();
    std::fs::write(bench.file("file"), "").unwrap();
    bench.place.folder = bench.file("file").join("attempt");
    let held = bench.start(bench.assignment(None, "true"));
    let SlotNews::Unprepared { why, .. } = held.news() else {
        panic!("it cannot be prepared");
    };
    assert!(why.starts_with("its log cannot be written in "), "{why}");
}

#[test]
fn a_runner_that_the_worker_has_not_sends_the_assignment_back() {
    let bench = Bench::new();
    let mut assignment = bench.assignment(None, "true");
    assignment.action = Action::Approval {
        message: "now?".to_string(),
        inputs: Vec::new(),
    };
    let held = bench.start(assignment);
    assert!(matches!(held.news(), SlotNews::Unprepared { .. }));
}

#[test]
fn what_a_step_gives_is_its_output() {
    let bench = Bench::new();
    let finished = bench.finish_script(
        "echo 'OUTPUT: {\"from\": \"line\", \"n\": 1}'; echo from=file >> \"$STEPWARD_OUTPUT\"",
    );
    assert_eq!(
        finished,
        Finished::Completed {
            output: Some(Json(r#"{"from":"file","n":1}"#.to_string())),
            exit_code: Some(0),
        }
    );

    let bench = Bench::new();
    let finished =
        bench.finish_script("echo a=1 >> $STEPWARD_OUTPUT; echo oops >> $STEPWARD_OUTPUT");
    let Finished::Failed {
        reason,
        message,
        exit_code,
    } = finished
    else {
        panic!("a bad output is a failure");
    };
    assert_eq!((reason, exit_code), (Reason::OutputInvalid, Some(0)));
    assert_eq!(
        message,
        "line 2 of the output file is neither key=value nor key<<END"
    );

    // A step that failed has failed for its own reason.
    let bench = Bench::new();
    let finished = bench.finish_script("echo oops >> $STEPWARD_OUTPUT; exit 4");
    assert_eq!(finished, Finished::exited(4));
}

#[test]
fn a_secret_is_seen_neither_in_the_log_nor_in_the_reason() {
    let bench = Bench::new();
    let mut assignment = bench.assignment(None, "#!/usr/bin/hunter2hunter2\n");
    assignment.masks = vec!["hunter2hunter2".to_string(), "abc".to_string()];
    let finished = bench.finish(assignment);
    let sentence = "the program that the script's first line names does not exist: #!/usr/bin/***";
    assert_eq!(failed(&finished), (Reason::SpawnError, sentence));
    let short = "secrets without a line of at least 6 bytes are not hidden in this log: there is 1";
    assert_eq!(bench.notes(), [short, sentence]);
}

#[test]
fn a_step_that_deletes_its_folder_on_the_worker_has_not_completed_and_its_log_is_whole() {
    let bench = Bench::new();
    let script = "echo before; rm -rf \"$(dirname \"$STEPWARD_WORKSPACE\")\"; echo after";
    let finished = bench.finish_script(script);
    let sentence = format!(
        "the attempt's folder on the worker was deleted while the step ran, and the step's output with it: {}; \
         let steps write only to $STEPWARD_WORKSPACE, $STEPWARD_TMP and $STEPWARD_OUTPUT",
        bench.place.folder.display()
    );
    assert_eq!(
        failed(&finished),
        (Reason::OutputInvalid, sentence.as_str())
    );
    assert_eq!(bench.stdout(), ["before", "after"]);
    assert_eq!(bench.notes(), [sentence]);

    // A step that failed anyway keeps its own reason, and its log tells of the folder.
    let bench = Bench::new();
    let finished = bench.finish_script("rm -rf \"$(dirname \"$STEPWARD_TMP\")\"; exit 3");
    assert_eq!(finished, Finished::exited(3));
    let notes = bench.notes();
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(
        notes[0].contains("was deleted while the step ran"),
        "{notes:?}"
    );
    assert_eq!(notes[1], "exit code 3");
}

#[test]
fn a_step_that_deletes_or_replaces_its_log_does_not_lose_it() {
    let note =
        "the log file on the worker was deleted while the step ran: the worker wrote it again";
    for replace in [
        "",
        "mkdir ../log; touch ../log/x",
        "ln -s /etc/passwd ../log",
    ] {
        let bench = Bench::new();
        let script = format!("echo before; rm ../log; {replace}\necho after");
        assert_eq!(bench.finish_script(&script), Finished::completed());
        assert_eq!(bench.stdout(), ["before", "after"], "{replace}");
        assert_eq!(bench.notes(), [note, "exit code 0"], "{replace}");
    }
}

/// A step in an image that this docker does not have, and what its `pull` does.
fn pulling(bench: &mut Bench, desk: &Desk, pull: &str) -> Assignment {
    let script = format!(
        "case $1 in\nimage) [ ! -e hang ] || exec sleep 1000; echo none; exit 1 ;;\npull) {pull} ;;\nrun) echo ran ;;\nesac"
    );
    let tools = Arc::get_mut(&mut bench.tools).expect("nobody else has them yet");
    tools.docker = desk.tool("docker", &script);
    let mut assignment = bench.assignment(None, "");
    assignment.action = Action::Docker {
        image: "app:1".to_string(),
        entrypoint: Vec::new(),
        command: Vec::new(),
    };
    assignment
}

#[test]
fn what_the_worker_runs_for_itself_speaks_in_the_log_as_the_worker() {
    let (mut bench, desk) = (Bench::new(), Desk::new());
    let pull = "echo layer; echo OUTPUT: 1; echo unpacked >&2";
    let assignment = pulling(&mut bench, &desk, pull);
    let held = bench.run(assignment);
    assert_eq!(held.finished(), Finished::completed());
    let mut notes = bench.notes();
    notes.sort();
    assert_eq!(notes, ["OUTPUT: 1", "exit code 0", "layer", "unpacked"]);
    assert_eq!(bench.stdout(), ["ran"]);
}

#[test]
fn what_preparing_prints_is_kept_up_to_a_limit_and_the_log_says_so() {
    let (mut bench, desk) = (Bench::new(), Desk::new());
    let pull = "yes 'a layer of the image' | head -n 20000; echo last >&2";
    let assignment = pulling(&mut bench, &desk, pull);
    let held = bench.run(assignment);
    assert_eq!(held.finished(), Finished::completed());
    let marker = "preparing the step printed more than 64 KiB: the rest is not kept";
    let notes = bench.notes();
    let (layers, end) = notes.split_at(notes.len() - 2);
    assert_eq!(end, [marker, "exit code 0"]);
    assert!(layers.iter().all(|line| line == "a layer of the image"));
    let bytes = bench.place.log().metadata().unwrap().len();
    assert!((60 << 10..66 << 10).contains(&bytes), "{bytes} bytes");
    assert_eq!(bench.stdout(), ["ran"]);
}

#[test]
fn what_the_worker_runs_for_itself_fails_with_its_last_words() {
    let (mut bench, desk) = (Bench::new(), Desk::new());
    let pull = "echo trying; echo 'no host hunter2hunter2' >&2; exit 4";
    let mut assignment = pulling(&mut bench, &desk, pull);
    assignment.masks = vec!["hunter2hunter2".to_string()];
    let held = bench.start(assignment);
    let SlotNews::Unprepared { why, .. } = held.news() else {
        panic!("there is no image");
    };
    let docker = &bench.tools.docker;
    let sentence = format!(
        "image app:1 is not here and could not be pulled: {docker} pull -- app:1: exit code 4: no host ***"
    );
    assert_eq!(why, sentence);
    let notes = bench.notes();
    assert_eq!(notes.last(), Some(&format!("not prepared: {sentence}")));
    assert!(notes.contains(&"trying".to_string()), "{notes:?}");

    let (mut bench, desk) = (Bench::new(), Desk::new());
    let assignment = pulling(&mut bench, &desk, "kill -9 $$");
    let held = bench.start(assignment);
    let SlotNews::Unprepared { why, .. } = held.news() else {
        panic!("there is no image");
    };
    assert!(why.ends_with("killed by signal 9 (SIGKILL)"), "{why}");
}

#[test]
fn what_the_worker_runs_for_itself_ends_when_the_attempt_is_stopped() {
    let pull = "echo pulling; setsid sleep 1000 & (sleep 1000 &); sleep 1000";
    for way in ["gently", "at once", "let go"] {
        let (mut bench, desk) = (Bench::new(), Desk::new());
        let assignment = pulling(&mut bench, &desk, pull);
        let held = bench.start(assignment);
        until("it pulls", || {
            bench.notes() == ["pulling"] && bench.alive() >= 4
        });
        let Held { slot, news_rx } = held;
        match way {
            "gently" => slot.stop(Stop::Gently),
            "at once" => slot.stop(Stop::AtOnce),
            _ => drop(slot),
        }
        let news = news_rx.recv_timeout(PATIENCE).unwrap();
        assert!(
            matches!(&news, SlotNews::Unprepared { why, .. } if why == "it was stopped before it ran"),
            "{way}: {news:?}"
        );
        assert_eq!(bench.alive(), 0, "{way}");
        assert_eq!(desk.ledger().len(), 2, "nothing was run after it");
    }
}

#[test]
fn a_stop_while_docker_does_not_answer_is_the_end_of_the_attempt() {
    let (mut bench, desk) = (Bench::new(), Desk::new());
    desk.write("hang", "");
    let assignment = pulling(&mut bench, &desk, "true");
    let attempt = assignment.attempt;
    let held = bench.start(assignment);
    until("docker is asked", || desk.ledger().len() == 1);
    held.slot.stop(Stop::Gently);
    let why = "it was stopped before it ran".to_string();
    assert_eq!(held.news(), SlotNews::Unprepared { attempt, why });
    assert_eq!(bench.alive(), 0);
    assert_eq!(desk.ledger().len(), 1, "nothing was pulled");
}
