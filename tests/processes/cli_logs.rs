//! `stepward logs` as people and scripts type it: every line once, whatever happens meanwhile.

use std::process::{Command, Stdio};

use stepward::wire::api::LogsJson;

use crate::house::{BINARY, House, PATIENT, await_that};
use crate::pseudo_terminal::{fits, plain, shown};
use crate::typed::{Typed, command, typed};

fn at(house: &House, words: &[&str]) -> Command {
    let mut command = command(house.folder.path(), words);
    command.env("STEPWARD_SERVER_URL", house.url());
    command
}

/// It goes on while the story does.
fn begun(house: &House, words: &[&str]) -> std::process::Child {
    at(house, words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn ended(child: std::process::Child) -> Typed {
    child.wait_with_output().unwrap().into()
}

/// As typed at a shell, where `stepward` is ours.
fn piped(house: &House, line: &str) -> Typed {
    let line = line.replace("stepward", BINARY);
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(line)
        .env("STEPWARD_SERVER_URL", house.url());
    command.output().unwrap().into()
}

#[test]
fn a_job_is_followed_over_its_retries_to_its_end() {
    let workflows = "
tasks:
  flaky:
    flow:
      try:
        script: 'echo try $STEPWARD_ATTEMPT; [ $STEPWARD_ATTEMPT = 3 ]'
        retry: { max_attempts: 3, delay: 1s }
";
    let mut house = House::with_settings(workflows, PATIENT);
    let job_id = house.submit("flaky");
    // Before anything of it is there.
    let live = begun(&house, &["logs", "-f", "latest", "--exit-status"]);
    let _worker = house.worker(1);
    let live = ended(live);
    let all = "try 1\ntry 2\ntry 3\n";
    assert_eq!(
        (live.code, live.stdout.as_str()),
        (Some(0), all),
        "{live:?}"
    );
    // Where a busy machine is slow to begin the next try, the follower is told what the step waits for.
    let waits = |line: &&str| line.starts_with("stepward: step try waits: try ");
    let said: Vec<&str> = live.stderr.lines().filter(|line| !waits(line)).collect();
    assert_eq!(
        &said[..2],
        [
            "stepward: step try: attempt 2 begins",
            "stepward: step try: attempt 3 begins"
        ]
    );
    assert!(
        said[2].starts_with("stepward: job 1 completed in "),
        "{said:?}"
    );
    assert_eq!(said.len(), 3);

    // It has ended: the same again, at once.
    let again = typed(&house, &["logs", "1", "-f"]);
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), all));
    // Without following, the last attempt counts.
    assert_eq!(typed(&house, &["logs", "1"]).stdout, "try 3\n");
    let first = typed(&house, &["logs", "1/try", "--attempt", "1", "-s", "stdout"]);
    assert_eq!(first.stdout, "try 1\n");
    let none = typed(&house, &["logs", "1/try", "--attempt", "4"]);
    assert_eq!(none.code, Some(5));
    assert!(none.stderr.contains("no attempt 4"), "{none:?}");
    assert_eq!(job_id, 1);
    house.check();
}

#[test]
fn a_job_that_fails_says_so_with_its_code_if_asked() {
    let workflows = "
tasks:
  bad: { flow: { work: { script: 'echo so far; exit 3' } } }
";
    let mut house = House::with_settings(workflows, PATIENT);
    let _worker = house.worker(1);
    house.submit("bad");
    let live = typed(&house, &["logs", "-f", "1", "--exit-status"]);
    assert_eq!(live.code, Some(10), "{live:?}");
    assert!(live.stderr.contains("job 1 failed in "), "{live:?}");
    assert_eq!(typed(&house, &["logs", "-f", "1"]).code, Some(0));
    let failed = typed(&house, &["logs", "bad@failed", "--failed", "-n", "2"]);
    assert_eq!(failed.stdout, "so far\n");
    house.check();
}

#[test]
fn a_server_that_is_killed_meanwhile_costs_no_line_and_doubles_none() {
    let workflows = "
tasks:
  count:
    flow:
      count:
        script: |
          i=0
          while [ ! -e LEDGER.gate ]; do i=$((i+1)); echo line $i; sleep 0.05; done
          printf half; sleep 1; echo ' and whole'
          echo the end
";
    let mut house = House::with_settings(workflows, PATIENT);
    let _worker = house.worker(1);
    let job_id = house.submit("count");
    let live = begun(&house, &["logs", "-f", "1"]);
    house.await_log_line(job_id, "count", "line 5");
    for round in 1..=2 {
        house.kill_server();
        // The step goes on, and nobody hears it.
        std::thread::sleep(std::time::Duration::from_millis(600 * round));
        house.start_server();
        let before = house.log(job_id, "count").total_lines;
        await_that("the log goes on", || {
            (house.log(job_id, "count").total_lines > before).then_some(())
        });
    }
    house.kill_server();
    house.open_gate();
    std::thread::sleep(std::time::Duration::from_millis(2_500));
    house.start_server();
    house.await_job(job_id, "completed");
    let live = ended(live);
    assert_eq!(live.code, Some(0), "{live:?}");
    let lines: Vec<&str> = live.stdout.lines().collect();
    await_that("the whole log", || {
        let log: LogsJson = house.get("/api/jobs/1/steps/count/logs?from=1&n=1000");
        let kept: Vec<String> = log.lines.into_iter().map(|line| line.text).collect();
        kept.contains(&"exit code 0".to_string()).then(|| {
            assert_eq!(lines, kept[..kept.len() - 1]);
        })
    });
    let counted = lines.len() - 2;
    assert_eq!(lines[0], "line 1");
    assert_eq!(lines[counted - 1], format!("line {counted}"));
    assert_eq!(lines[counted..], ["half and whole", "the end"]);
    assert!(live.stderr.contains("the server answers again"), "{live:?}");
    house.check();
}

#[test]
fn any_number_of_lines_passes_and_whoever_has_had_enough_is_left_alone() {
    let workflows = "
tasks:
  gush: { flow: { gush: { script: 'seq 1 100000' } } }
  quiet: { flow: { wait: { script: 'echo first; SLEEP' } } }
";
    let mut house = House::with_settings(workflows, PATIENT);
    let _worker = house.worker(2);
    let gush = house.submit("gush");
    house.await_job(gush, "completed");
    for how in ["", "--json", "-f", "--timestamps"] {
        let counted = piped(&house, &format!("stepward logs 1 {how} | wc -l"));
        // Programs are told what the worker says as well.
        let expected = if how == "--json" { "100001" } else { "100000" };
        assert_eq!(counted.stdout.trim(), expected, "{how}");
        let head = piped(
            &house,
            &format!("stepward logs 1 {how} | head -n 1 | wc -l"),
        );
        assert_eq!(head.stdout.trim(), "1", "{how}");
        let is_end = head.stderr.is_empty() || head.stderr.contains("completed in");
        assert!(is_end, "{how}: {head:?}");
    }
    for (words, expected) in [
        (vec!["-n", "2"], "99999\n100000\n"),
        (vec!["--from", "7", "-n", "2"], "7\n8\n"),
        (vec!["--grep", "9999", "-n", "2"], "99998\n99999\n"),
        (vec!["--grep", "EXIT", "-i"], ""),
        (vec!["-s", "worker"], "exit code 0\n"),
        (vec!["-s", "stdout", "-n", "1"], "100000\n"),
        (vec!["-n", "0"], ""),
    ] {
        let typed = typed(&house, &[&["logs", "1/gush"], words.as_slice()].concat());
        assert_eq!((typed.code, typed.stdout.as_str()), (Some(0), expected));
    }
    let found = piped(&house, "stepward logs 1 --grep 9 | wc -l");
    // All but those without a nine.
    assert_eq!(found.stdout.trim(), (100_000 - 59_049).to_string());

    // It says one line and then nothing, for ever; whoever wanted one line is not kept.
    let quiet = house.submit("quiet");
    house.await_log_line(quiet, "wait", "first");
    let one = piped(&house, "stepward logs -f 2 | head -n 1");
    assert_eq!(one.stdout, "first\n");
    house.cancel(quiet);
    house.await_job(quiet, "cancelled");
    house.check();
}

#[test]
fn steps_that_share_a_job_say_whose_line_it_is() {
    let workflows = "
tasks:
  both:
    flow:
      one: { script: 'echo a; echo b >&2' }
      second: { depends_on: [one], script: 'echo c' }
      never: { depends_on: [second], when: '{{ false }}', script: 'echo d' }
";
    let mut house = House::with_settings(workflows, PATIENT);
    let _worker = house.worker(1);
    let job_id = house.submit("both");
    house.await_job(job_id, "completed");
    let whole = "one | a\none | b\nsecond | c\n";
    assert_eq!(typed(&house, &["logs", "1"]).stdout, whole);
    assert_eq!(typed(&house, &["logs", "1", "--raw"]).stdout, "a\nb\nc\n");
    // Whether lines say whose they are does not depend on what is found.
    let found = typed(&house, &["logs", "1", "--grep", "c"]);
    assert_eq!(found.stdout, "second | c\n");
    assert_eq!(typed(&house, &["logs", "both@latest/second"]).stdout, "c\n");
    assert_eq!(
        typed(&house, &["logs", "1", "-s", "stderr"]).stdout,
        "one | b\n"
    );
    let server = typed(&house, &["logs", "1", "_server"]);
    assert!(server.stdout.ends_with("job 1 completed\n"), "{server:?}");
    let also = typed(&house, &["logs", "1", "--server-log"]);
    assert!(also.stdout.starts_with(whole), "{also:?}");
    assert!(
        also.stdout.ends_with("_server | job 1 completed\n"),
        "{also:?}"
    );
    let json = typed(&house, &["logs", "1/one", "--json"]);
    let first: serde_json::Value =
        serde_json::from_str(json.stdout.lines().next().unwrap()).unwrap();
    let fields: Vec<&String> = first.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["at", "attempt", "n", "step", "stream", "text"]);
    assert_eq!((&first["n"], &first["text"]), (&1.into(), &"a".into()));

    for (words, code, why) in [
        (vec!["logs", "9"], 5, "job 9 does not exist"),
        (vec!["logs", "1/secnod"], 5, "did you mean second?"),
        (vec!["logs", "1/one", "second"], 2, "two steps are named"),
        (vec!["logs", "nobody@latest"], 5, "nobody"),
        (vec!["logs", "1", "--from", "0"], 2, "0"),
        (vec!["logs", "1", "-i"], 2, "--grep"),
        (vec!["logs"], 2, "JOB"),
    ] {
        let typed = typed(&house, &words);
        assert_eq!(typed.code, Some(code), "{typed:?}");
        assert!(typed.stderr.contains(why), "{typed:?}");
        assert_eq!(typed.stdout, "");
    }
    house.check();
}

#[test]
fn a_terminal_sees_colours_and_is_not_taken_over() {
    let workflows = r#"
tasks:
  evil:
    flow:
      print: { script: "printf '\\033[31mred\\033[0m\\033[2J\\033]0;title\\007 end\\n'; echo bad >&2" }
"#;
    let mut house = House::with_settings(workflows, PATIENT);
    let _worker = house.worker(1);
    let job_id = house.submit("evil");
    house.await_job(job_id, "completed");
    let printed = "\x1b[31mred\x1b[0m\x1b[2J\x1b]0;title\x07 end\nbad\n";
    let piped = typed(&house, &["logs", "1", "-n", "3"]);
    assert_eq!(piped.stdout, printed);

    let (code, seen) = shown(at(&house, &["logs", "1"]), 80);
    assert_eq!(code, Some(0));
    assert!(seen.contains("\x1b[31mred\x1b[0m end"), "{seen:?}");
    assert!(
        !seen.contains("\x1b[2J") && !seen.contains("title"),
        "{seen:?}"
    );
    assert!(plain(&seen).contains("! bad\n"), "{seen:?}");
    assert!(plain(&seen).contains("exit code 0"), "{seen:?}");
    let (_, raw) = shown(at(&house, &["logs", "1", "--raw"]), 80);
    assert!(raw.contains("\x1b[2J"), "{raw:?}");
    let mut dull = at(&house, &["logs", "1"]);
    dull.env("NO_COLOR", "1");
    let (_, dull) = shown(dull, 80);
    assert!(
        !dull.contains('\x1b') && dull.contains("red end"),
        "{dull:?}"
    );
    let (_, followed) = shown(at(&house, &["logs", "-f", "1"]), 40);
    assert!(!followed.contains("\x1b[2J"), "{followed:?}");
    fits(&followed, 40);
    house.check();
}

#[test]
fn what_prints_elsewhere_is_named() {
    let workflows = "
tasks:
  parent: { flow: { call: { type: task, task: child } } }
  child: { flow: { l: { for_each: [1, 2], script: 'echo item' } } }
";
    let mut house = House::with_settings(workflows, PATIENT);
    let _worker = house.worker(1);
    let job_id = house.submit("parent");
    house.await_job(job_id, "completed");
    for words in [vec!["logs", "1"], vec!["logs", "-f", "1"]] {
        let typed = typed(&house, &words);
        assert!(
            typed
                .stderr
                .contains("step call is job 2: stepward logs 2\n"),
            "{typed:?}"
        );
    }
    let of_loop = typed(&house, &["logs", "2/l"]);
    assert!(
        of_loop
            .stderr
            .contains("l[0], l[1]; stepward logs 2 'l[0]'\n"),
        "{of_loop:?}"
    );
    house.check();
}

#[test]
fn whoever_follows_what_nobody_runs_is_told_why_nothing_comes() {
    let workflows = "tasks: { fit: { flow: { learn: { script: echo x, tags: [gpu] } } } }";
    let mut house = House::with(workflows);
    let _worker = house.worker(1);
    house.submit("fit");
    let logs = typed(&house, &["logs", "-f", "1"]);
    assert_eq!(logs.code, Some(0), "{logs:?}");
    let told = "step learn waits: no worker offers gpu + script";
    assert!(logs.stderr.contains(told), "{logs:?}");
    assert_eq!(logs.stderr.matches("waits").count(), 1, "{logs:?}");
    house.check();
}
