//! The README is the truth: its commands exist and do what it says. Each is run here, as it stands there.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const BINARY: &str = env!("CARGO_BIN_EXE_stepward");

/// Nothing here takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whoever has Rust builds it; here it is built already.
const BUILT: &str = "cargo run --release -- ";

/// The fenced blocks of the README in this language, in order.
fn blocks(language: &str) -> Vec<String> {
    let text = std::fs::read_to_string("README.md").unwrap();
    let fenced = text.split("```").skip(1).step_by(2);
    fenced
        .map(|block| block.split_once('\n').unwrap())
        .filter(|(found, _)| *found == language)
        .map(|(_, block)| block.trim_end().to_string())
        .collect()
}

/// The block of commands that begins so.
fn block(begins: &str) -> Vec<String> {
    let blocks = blocks("sh");
    let found = blocks.iter().find(|block| block.starts_with(begins));
    let found = found.unwrap_or_else(|| panic!("no block begins with {begins}"));
    found.lines().map(str::to_string).collect()
}

#[test]
fn the_first_block_runs_the_main_job_and_the_second_passes_all_tests() {
    let blocks = blocks("sh");
    assert_eq!(blocks[0], "cargo run --release -- run examples/hello.yaml");
    assert_eq!(blocks[1], "tests/all");
    let all = std::fs::read_to_string("tests/all").unwrap();
    assert!(all.contains("cargo test --all-features"));
    for command in blocks
        .iter()
        .filter(|block| block.starts_with("cargo bench"))
    {
        let bench = command.trim_start_matches("cargo bench ");
        assert!(all.contains(&format!("{bench} -- --quick")), "{command}");
    }
    let ci = std::fs::read_to_string(".ci/run").unwrap();
    assert!(ci.contains("tests/all"));
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

/// Somebody in a folder, with `stepward` at hand.
struct Reader {
    folder: PathBuf,
    path: String,
}

impl Reader {
    fn in_folder(folder: &Path, bin: &Path) -> Reader {
        if !bin.join("stepward").exists() {
            std::os::unix::fs::symlink(BINARY, bin.join("stepward")).unwrap();
        }
        Reader {
            folder: folder.to_path_buf(),
            path: format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()),
        }
    }

    fn shell(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        let line = line.replace(BUILT, "stepward ");
        command.args(["-c", &format!("exec {line}")]);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("STEPWARD_") {
                command.env_remove(name);
            }
        }
        command.env("PATH", &self.path).current_dir(&self.folder);
        command.stdin(Stdio::null());
        command
    }

    /// Types it, and says what came of it.
    fn types(&self, line: &str) -> (Option<i32>, String) {
        let output = self.shell(line).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        (output.status.code(), said)
    }

    fn types_well(&self, line: &str) -> String {
        let (code, said) = self.types(line);
        assert_eq!(code, Some(0), "{line}: {said}");
        said
    }

    /// Starts something that stays, and waits until it says this.
    fn starts(&self, line: &str, says: &str) -> (Process, Vec<String>) {
        let mut command = self.shell(line);
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let process = Process(child);
        let mut lines = stderr.lines().map_while(Result::ok);
        let mut said = Vec::new();
        for line in lines.by_ref() {
            let is_it = line.contains(says);
            said.push(line);
            if is_it {
                // Whoever closes its stderr would end it.
                std::thread::spawn(move || lines.for_each(drop));
                return (process, said);
            }
        }
        panic!("{line} never said {says}: {said:?}");
    }
}

fn address_in(said: &[String]) -> String {
    let line = said.iter().find(|line| line.contains("http://")).unwrap();
    let rest = line.split("http://").nth(1).unwrap();
    rest.split(['/', ' ']).next().unwrap().to_string()
}

/// Every line of every block, in the order of the README, in one folder.
#[test]
fn every_command_does_what_the_readme_says() {
    let folder = tempfile::tempdir().unwrap();
    let (project, bin) = (folder.path().join("project"), folder.path().join("bin"));
    std::fs::create_dir(&project).unwrap();
    std::fs::create_dir(&bin).unwrap();
    let here = Reader::in_folder(Path::new("."), &bin);
    let reader = Reader::in_folder(&project, &bin);
    let mut typed = BTreeSet::new();
    let mut type_all = |lines: &[String], act: &mut dyn FnMut(&str)| {
        for line in lines {
            act(line);
            typed.insert(line.clone());
        }
    };

    type_all(&block("cargo run --release -- run"), &mut |line| {
        let said = here.types_well(line);
        assert!(said.contains("completed"), "{said}");
    });
    type_all(&block("cargo run --release -- demo"), &mut |line| {
        if line.contains("demo") {
            let said = here.types_well(line);
            for phase in ["phase 1", "phase 2", "phase 3", "phase 4"] {
                assert!(said.contains(phase), "{phase}: {said}");
            }
        } else {
            let data = folder.path().join("data");
            let line = format!("{line} --port 0 --data-dir {}", data.display());
            let (_dev, said) = here.starts(&line, "ready in");
            assert!(said.iter().any(|line| line.contains("tasks")), "{said:?}");
        }
    });

    let mut address = String::new();
    let mut server = None;
    type_all(&block("stepward init"), &mut |line| match line {
        "stepward run checks" => assert_eq!(reader.types(line).0, Some(10)),
        "stepward dev" => {
            let (dev, said) = reader.starts("stepward dev --port 0", "Worker ");
            address = address_in(&said);
            server = Some(dev);
        }
        _ => drop(reader.types_well(line)),
    });
    type_all(&block("stepward\n"), &mut |line| match line {
        "stepward run checks" => assert_eq!(reader.types(line).0, Some(10)),
        "stepward why latest" => {
            let said = reader.types_well(line);
            assert!(said.contains("exit code"), "{said}");
        }
        _ => drop(reader.types_well(line)),
    });
    type_all(&block("stepward worker --server"), &mut |line| {
        let line = line.replace("127.0.0.1:7717", &address);
        let more = folder.path().join("worker");
        let line = format!("{line} --data-dir {}", more.display());
        let (_worker, said) = reader.starts(&line, "offers");
        let offers = said.last().unwrap();
        assert!(offers.contains("gpu, script with 4 slots"), "{offers}");
    });
    // The workflow that the README shows comes into the folder, and is noticed.
    let shown = blocks("yaml").remove(0);
    std::fs::write(project.join("workflows/release.yaml"), shown).unwrap();
    let begun = Instant::now();
    while reader.types("stepward task show release").0 != Some(0) {
        assert!(begun.elapsed() < PATIENCE, "it is never noticed");
        std::thread::sleep(Duration::from_millis(50));
    }
    type_all(&block("stepward task show"), &mut |line| {
        drop(reader.types_well(line));
    });
    type_all(&block("curl -s -X POST"), &mut |line| {
        let said = reader.types_well(&line.replace("127.0.0.1:7717", &address));
        assert!(!said.contains("\"error\""), "{line}: {said}");
    });
    type_all(&block("curl -s -H"), &mut |line| {
        let said = reader.types_well(&line.replace("127.0.0.1:7717", &address));
        assert!(!said.contains("\"error\""), "{line}: {said}");
    });
    type_all(&block("stepward job keep"), &mut |line| {
        drop(reader.types_well(line));
    });
    let hangs = "tasks: { hangs: { flow: { build: { script: sleep 600 } } } }\n";
    std::fs::write(project.join("workflows/hangs.yaml"), hangs).unwrap();
    let types_until_it_works = |line: &str| {
        let begun = Instant::now();
        while reader.types(line).0 != Some(0) {
            assert!(begun.elapsed() < PATIENCE, "never: {line}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    types_until_it_works("stepward run hangs --detach");
    type_all(&block("stepward recovery sweep"), &mut |line| {
        // The step is refused until a worker has it.
        types_until_it_works(&line.replace("42/build", "hangs@latest/build"));
    });
    // Made while the server runs, and put elsewhere.
    type_all(&block("stepward backup"), &mut |line| {
        drop(reader.types_well(line));
    });
    drop(server);
    second_machine(&folder.path().join("office"), &bin, &mut type_all);

    type_all(&block("stepward validate examples"), &mut |line| {
        let said = here.types_well(line);
        if line.contains("explain") {
            assert!(said.contains("Wrong:") && said.contains("Right:"), "{said}");
        }
    });
    std::fs::write(project.join("crontab"), "0 2 * * * /usr/bin/backup\n").unwrap();
    let stroem = project.join("stroem");
    std::fs::create_dir(&stroem).unwrap();
    std::fs::write(stroem.join("a.yaml"), STROEM).unwrap();
    let dags = project.join("dags");
    std::fs::create_dir(&dags).unwrap();
    std::fs::write(dags.join("a.yaml"), "steps:\n  - command: echo hello\n").unwrap();
    type_all(&block("stepward import"), &mut |line| {
        let folder = if line.contains("dagu") {
            "dags"
        } else {
            "stroem"
        };
        let line = line.replace("FILE", "crontab").replace("FOLDER", folder);
        reader.types_well(&format!("{line} --output out-{}", line.len()));
    });
    type_all(&block("stepward db check FOLDER"), &mut |line| {
        let said = reader.types_well(&line.replace("FOLDER", ".stepward"));
        assert!(said.contains("every rule holds"), "{said}");
    });

    // `tests/packaging` makes the package and installs it.
    let elsewhere = [
        "tests/all",
        "cargo bench",
        "cargo test",
        "packaging/build-deb",
    ];
    let lines = blocks("sh").into_iter().flat_map(|block| {
        let lines: Vec<String> = block.lines().map(str::to_string).collect();
        lines
    });
    let missed: Vec<String> = lines
        .filter(|line| !elsewhere.iter().any(|word| line.starts_with(word)))
        .filter(|line| !typed.contains(line))
        .collect();
    assert_eq!(missed, Vec::<String>::new(), "nobody has tried these");
}

type TypeAll<'a> = dyn FnMut(&[String], &mut dyn FnMut(&str)) + 'a;

/// A server that others reach, as the README sets it up, but for its address; and a worker that enrols.
fn second_machine(folder: &Path, bin: &Path, type_all: &mut TypeAll) {
    std::fs::create_dir(folder).unwrap();
    let reader = Reader::in_folder(folder, bin);
    type_all(&block("openssl"), &mut |line| drop(reader.types_well(line)));
    let settings = blocks("yaml");
    let settings = settings
        .iter()
        .find(|block| block.contains("tls:"))
        .unwrap();
    let here = settings.replace("0.0.0.0:7717", "127.0.0.1:0\nauth: { required: true }");
    assert_ne!(&here, settings);
    std::fs::write(folder.join("server-config.yaml"), here).unwrap();
    let mut server = None;
    let mut address = String::new();
    type_all(&block("stepward server --config"), &mut |line| {
        let (process, said) = reader.starts(line, "a worker is marked inactive");
        let line = said.iter().find(|line| line.contains("https://")).unwrap();
        address = line.split("127.0.0.1:").nth(1).unwrap().trim().to_string();
        server = Some(process);
    });
    let mut worker = None;
    type_all(&block("stepward token new edge-1"), &mut |line| {
        let line = line.replace("localhost:7717", &format!("localhost:{address}"));
        match line.starts_with("stepward worker --server") {
            true => worker = Some(reader.starts(&line, "session opened")),
            false => {
                let said = reader.types_well(&line);
                assert!(
                    said.contains("edge-1") || said.contains("gpu"),
                    "{line}: {said}"
                );
            }
        }
    });
    drop(worker);
    drop(server);
}

const STROEM: &str = "
actions:
  hello: { type: script, script: echo hello }
tasks:
  greet:
    flow:
      greet: { action: hello }
";

#[test]
fn the_workflow_in_the_readme_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("readme.yaml");
    std::fs::write(&file, blocks("yaml").remove(0)).unwrap();
    let output = Command::new(BINARY).arg("validate").arg(&file).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("nothing is wrong"), "{said}");
}

#[test]
fn a_folder_without_a_sound_database_is_told_from_one_with() {
    let folder = tempfile::tempdir().unwrap();
    let check = || {
        Command::new(BINARY)
            .args(["db", "check"])
            .arg(folder.path())
            .output()
            .unwrap()
    };
    let holds_no_database = || {
        let nothing = check();
        assert_eq!(nothing.status.code(), Some(5));
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
