//! The README is the truth: its commands exist and do what it says.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The fenced blocks of the README, in order.
fn blocks() -> Vec<String> {
    let text = std::fs::read_to_string("README.md").unwrap();
    let fenced = text.split("```").skip(1).step_by(2);
    fenced
        .map(|block| block.split_once('\n').unwrap().1.trim_end().to_string())
        .collect()
}

#[test]
fn the_first_block_runs_the_main_job_and_the_second_passes_all_tests() {
    let blocks = blocks();
    assert_eq!(
        blocks[0],
        "cargo run -- server --workflows-dir examples --embedded-worker"
    );
    assert_eq!(blocks[1], "tests/all");
    assert!(
        std::fs::read_to_string("tests/all")
            .unwrap()
            .contains("cargo test --all-features")
    );
    let all = std::fs::read_to_string("tests/all").unwrap();
    for command in blocks
        .iter()
        .filter(|block| block.starts_with("cargo bench"))
    {
        assert!(all.contains(&format!("{command} -- --quick")), "{command}");
    }
    assert!(
        std::fs::read_to_string(".ci/run")
            .unwrap()
            .contains("tests/all")
    );
}

/// A process of ours that does not outlive the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts one of the README's own commands, with a few more words, and waits until it says this.
fn start(command: &str, more: &[&str], says: &str) -> (Process, String) {
    let words = command.strip_prefix("cargo run -- ").unwrap().split(' ');
    let mut child = Command::new(env!("CARGO_BIN_EXE_stepward"))
        .args(words)
        .args(more)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let process = Process(child);
    let mut lines = stderr.lines().map_while(Result::ok);
    let found = lines.find(|line| line.contains(says));
    let found = found.unwrap_or_else(|| panic!("{command} never said {says}"));
    // Whoever closes its stderr would end it.
    std::thread::spawn(move || lines.for_each(drop));
    (process, found)
}

/// The commands of the README in their order, against a server of our own.
#[test]
fn the_main_job_runs_and_is_told_as_the_readme_says() {
    let blocks = blocks();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let more = [
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        data.to_str().unwrap(),
    ];
    let (_server, listening) = start(&blocks[0], &more, "listening on");
    let address = listening.rsplit("http://").next().unwrap();
    let story = &blocks[3];
    let mut said = String::new();
    for command in blocks[2].lines() {
        let command = command.replace("127.0.0.1:7717", address);
        let deadline = Instant::now() + Duration::from_secs(30);
        // A job takes its time; asking again does no harm, and submitting happens once.
        loop {
            let output = Command::new("sh").args(["-c", &command]).output().unwrap();
            said = String::from_utf8(output.stdout).unwrap();
            assert!(output.status.success(), "{command}: {said}");
            let is_over = match () {
                () if command.contains("POST") => said.contains("\"id\":"),
                () if command.contains("/api/jobs/1/steps") => said.starts_with("Hello, Ada!\n"),
                () if command.ends_with("/api/jobs/1") => said.contains("\"completed\""),
                () if command.ends_with("/why") => said.contains("exit code 2"),
                () => said.trim_end() == story,
            };
            if is_over {
                break;
            }
            assert!(Instant::now() < deadline, "{command}: {said}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    assert_eq!(said.trim_end(), story);

    let worker = blocks[4].replace("127.0.0.1:7717", address);
    let own = folder.path().join("worker");
    let more = ["--data-dir", own.to_str().unwrap()];
    let (_worker, offers) = start(&worker, &more, "offers");
    assert!(offers.contains("gpu, script with 4 slots"), "{offers}");
}

#[test]
fn the_other_commands_work() {
    let commands: Vec<String> = blocks()
        .into_iter()
        .flat_map(|block| block.lines().map(str::to_string).collect::<Vec<_>>())
        .filter(|line| line.starts_with("cargo run -- "))
        .collect();
    assert_eq!(
        commands[2..],
        [
            "cargo run -- validate examples",
            "cargo run -- explain E012",
            "cargo run -- schema workflow",
            "cargo run -- import crontab FILE",
            "cargo run -- import stroem FOLDER",
            "cargo run -- db check FOLDER",
        ],
        "the first two are run above"
    );
    let folder = tempfile::tempdir().unwrap();
    let check = || {
        Command::new(env!("CARGO_BIN_EXE_stepward"))
            .args(["db", "check"])
            .arg(folder.path())
            .output()
            .unwrap()
    };
    let holds_no_database = || {
        let nothing = check();
        assert_eq!(nothing.status.code(), Some(1));
        let said = String::from_utf8(nothing.stderr).unwrap();
        let told = "holds no database (stepward.db is missing or empty), name the data folder";
        assert!(said.contains(told), "{said}");
    };
    holds_no_database();
    let file = folder.path().join("stepward.db");
    std::fs::write(&file, "").unwrap();
    holds_no_database();
    assert_eq!(file.metadata().unwrap().len(), 0, "it stays as it was");
    std::fs::remove_file(&file).unwrap();

    drop(stepward::store::Store::open(folder.path(), Default::default()).unwrap());
    let good = check();
    assert_eq!(good.status.code(), Some(0));
    assert!(
        String::from_utf8(good.stdout)
            .unwrap()
            .ends_with(": every rule holds\n")
    );

    let sql = rusqlite::Connection::open(&file).unwrap();
    sql.execute_batch(
        "INSERT INTO definition (hash, body)
         VALUES ('h', '[{\"name\":\"t\",\"steps\":[{\"name\":\"a\",\"action\":{\"type\":\"pod\",\"manifest\":\"m\"},
                  \"on_worker_loss\":\"fail\",\"unmatched\":\"fail\"}]}]');
         INSERT INTO job (definition_id, task_index, task, state, source, input, labels, priority, depth, steps_open,
                          change_seq, created_at, since_up)
         VALUES (1, 0, 't', 'pending', 'submit', '{}', '{}', 0, 0, 1, 1, 0, 0)",
    )
    .unwrap();
    drop(sql);
    let bad = check();
    assert_eq!(bad.status.code(), Some(1), "{bad:?}");
    let found = String::from_utf8(bad.stdout).unwrap();
    assert!(
        found.contains("a job whose steps have all ended has ended: job 1 is pending"),
        "{found}"
    );
}

/// Runs one of the README's commands, with these words for those in capitals.
fn run(command: &str, words: &[(&str, &str)]) -> (Option<i32>, String) {
    let words_of = command.strip_prefix("cargo run -- ").unwrap().split(' ');
    let put = |word: &str| {
        let found = words.iter().find(|(name, _)| *name == word);
        found.map_or(word, |(_, value)| value).to_string()
    };
    let output = Command::new(env!("CARGO_BIN_EXE_stepward"))
        .args(words_of.map(put))
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn what_the_readme_says_of_workflow_files_works() {
    let (code, said) = run("cargo run -- validate examples", &[]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = run("cargo run -- explain E012", &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("Wrong:") && said.contains("Right:"), "{said}");
    let (code, said) = run("cargo run -- schema workflow", &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        serde_json::from_str::<serde_json::Value>(&said).is_ok(),
        "{said}"
    );

    let folder = tempfile::tempdir().unwrap();
    let in_folder = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (file, out) = (in_folder("crontab"), in_folder("out"));
    std::fs::write(&file, "0 2 * * * /usr/bin/backup\n").unwrap();
    let import = "cargo run -- import crontab FILE --output OUT";
    let (code, said) = run(import, &[("FILE", &file), ("OUT", &out)]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = run("cargo run -- validate OUT", &[("OUT", &out)]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn the_workflow_in_the_readme_is_right() {
    let blocks = blocks();
    let yaml = blocks
        .iter()
        .find(|block| block.starts_with("tasks:"))
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("readme.yaml");
    std::fs::write(&file, yaml).unwrap();
    let (code, said) = run(
        "cargo run -- validate FILE",
        &[("FILE", file.to_str().unwrap())],
    );
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("nothing is wrong"), "{said}");
}
