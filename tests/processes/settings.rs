//! Where settings come from, what is wrong with them, and a server that goes on whatever becomes of its own worker and its audience.

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use stepward::client::Client;
use stepward::config::environment::{server_variables, worker_variables};
use stepward::wire::api::{JobJson, List, SubmitRequest, WorkerJson};

use crate::house::{BINARY, await_that, check_database, processes};

const TIMEOUT: Duration = Duration::from_secs(5);

/// A process that tells a file what it has to say. It does not outlive its story.
struct Run {
    child: Child,
    told: PathBuf,
}

impl Run {
    fn start(mut command: Command, folder: &Path) -> Run {
        let told = folder.join("told");
        command.stderr(File::create(&told).unwrap());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = child.unwrap();
        Run { child, told }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.told).unwrap()
    }

    fn await_said(&mut self, words: &str) -> String {
        await_that(words, || {
            let said = self.said();
            let line = said.lines().find(|line| line.contains(words));
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none() || line.is_some(), "{ended:?}: {said}");
            line.map(str::to_string)
        })
    }

    /// Once it listens.
    fn client(&mut self, token: Option<&str>) -> Client {
        let line = self.await_said("listening on");
        let port = line.rsplit(':').next().unwrap();
        Client::new(&format!("http://127.0.0.1:{port}"), token)
    }

    fn signal(&self, signal: Signal) {
        signal_child(&self.child, signal);
    }

    fn ended(&mut self) -> ExitStatus {
        await_end(&mut self.child)
    }

    fn stop(&mut self) {
        self.signal(Signal::TERM);
        let ended = self.ended();
        assert!(ended.success(), "{ended:?}: {}", self.said());
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal_child(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn await_end(child: &mut Child) -> ExitStatus {
    await_that("the process ends", || child.try_wait().unwrap())
}

/// A server with its data below the folder, on any port.
fn server(folder: &Path, settings: &str) -> Command {
    server_at(folder, "127.0.0.1:0", settings)
}

fn server_at(folder: &Path, address: &str, settings: &str) -> Command {
    let file = folder.join("server.yaml");
    let data = folder.join("data");
    // These stories are not about who may come in, unless their settings say so.
    let auth = match settings.contains("auth:") {
        true => "",
        false => "auth: { required: false }\n",
    };
    let settings = format!("data_dir: {}\n{auth}{settings}", data.display());
    fs::write(&file, settings).unwrap();
    let mut command = Command::new(BINARY);
    command.arg("server").arg("--config").arg(file);
    command.args(["--listen", address]);
    command
}

fn workers(client: &Client) -> Vec<WorkerJson> {
    let listed = client.get::<List<WorkerJson>>("/api/workers", TIMEOUT);
    listed.unwrap().items
}

fn await_worker(client: &Client) -> WorkerJson {
    await_that("a worker is active", || {
        let mut all = workers(client).into_iter();
        all.find(|worker| worker.status == "active")
    })
}

fn refused(command: &mut Command) -> String {
    let Output { status, stderr, .. } = command.output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert!(
        matches!(status.code(), Some(1..=3 | 5)),
        "{status:?}: {said}"
    );
    assert!(!said.contains("listening"), "{said}");
    said
}

#[test]
fn a_server_whose_words_find_no_room_runs_and_stops() {
    let folder = tempfile::tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let mut command = Command::new(BINARY);
    command.args([
        "server",
        "--no-auth",
        "--embedded-worker",
        "--listen",
        &address,
    ]);
    command.arg("--data-dir").arg(folder.path().join("data"));
    let full = File::options().write(true).open("/dev/full").unwrap();
    let child = command.stderr(full).spawn().unwrap();
    let mut run = Run {
        child,
        told: "/dev/null".into(),
    };
    let client = Client::new(&format!("http://{address}"), None);
    await_that("its own worker is there", || {
        let ended = run.child.try_wait().unwrap();
        assert!(ended.is_none(), "{ended:?}");
        let listed = client.get::<List<WorkerJson>>("/api/workers", TIMEOUT);
        (!listed.ok()?.items.is_empty()).then_some(())
    });
    run.stop();
}

#[test]
fn a_server_whose_audience_has_gone_still_ends_what_its_worker_runs() {
    let folder = tempfile::tempdir().unwrap();
    let workflows = "tasks:\n  long:\n    flow:\n      work: { script: sleep 870060 }\n";
    fs::create_dir(folder.path().join("flows")).unwrap();
    fs::write(folder.path().join("flows/all.yaml"), workflows).unwrap();
    let mut command = server(folder.path(), "embedded_worker: {}");
    command
        .arg("--workflows-dir")
        .arg(folder.path().join("flows"));
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    let client = Client::new(line.rsplit(' ').next().unwrap(), None);
    let opened = |line: &std::io::Result<String>| line.as_ref().unwrap().contains("session opened");
    assert!(lines.any(|line| opened(&line)));
    drop(lines);
    let mut run = Run {
        child,
        told: "/dev/null".into(),
    };
    let request = SubmitRequest::default();
    let job: Result<JobJson, _> = client.post("/api/tasks/long/jobs", &request, TIMEOUT);
    job.unwrap();
    await_that("it sleeps", || {
        (!processes("sleep 870060").is_empty()).then_some(())
    });
    run.stop();
    assert!(processes("sleep 870060").is_empty());
    check_database(&folder.path().join("data"));
}

#[test]
fn a_check_whose_reader_has_gone_still_tells_by_its_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    drop(stepward::store::Store::open(folder.path(), Default::default()).unwrap());
    let mut command = Command::new(BINARY);
    command.args(["db", "check"]).arg(folder.path());
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert!(command.stdout(writer).status().unwrap().success());
    // Whoever wants it in a file has none of it: that is no success.
    let full = File::options().write(true).open("/dev/full").unwrap();
    let told = command.stdout(full).stderr(Stdio::piped()).output();
    let told = told.unwrap();
    assert_eq!(told.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&told.stderr).contains("No space left"));
}

#[test]
fn backups_that_nobody_said_where_to_make_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::start(
        server(folder.path(), "backup: { every_hours: 2 }"),
        folder.path(),
    );
    let said = run.await_said("no backups are made");
    assert!(said.ends_with("name a folder with backup.dir"), "{said}");
    run.stop();
}

#[test]
fn the_page_of_settings_shows_where_the_worker_of_the_server_has_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::start(server(folder.path(), "embedded_worker: {}"), folder.path());
    let client = run.client(None);
    await_worker(&client);
    let page = client.text("/settings", TIMEOUT).unwrap();
    let page = std::io::read_to_string(page).unwrap();
    assert!(folder.path().join("data/worker").is_dir());
    assert!(page.contains("/data/worker"), "{page}");
    assert!(!page.contains(".stepward-worker</"), "{page}");
    run.stop();
}

#[test]
fn a_drained_worker_of_the_server_stays_away_and_the_server_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::start(server(folder.path(), "embedded_worker: {}"), folder.path());
    let client = run.client(None);
    let id = await_worker(&client).id;
    let body = serde_json::json!({});
    let path = format!("/api/workers/{id}/drain");
    let _: serde_json::Value = client.post(&path, &body, TIMEOUT).unwrap();
    let said = run.await_said("was drained");
    assert_eq!(
        said,
        "stepward: the embedded worker was drained and has left, restart the server to have it back"
    );
    run.stop();
    // And so it is.
    let mut run = Run::start(server(folder.path(), "embedded_worker: {}"), folder.path());
    let client = run.client(None);
    await_worker(&client);
    run.stop();
}

#[test]
fn a_worker_of_the_server_that_ended_with_an_error_is_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let pinned = folder.path().join("data/worker/installation");
    fs::create_dir_all(pinned.parent().unwrap()).unwrap();
    fs::write(&pinned, "another").unwrap();
    let mut run = Run::start(server(folder.path(), "embedded_worker: {}"), folder.path());
    let client = run.client(None);
    let said = run.await_said("ended");
    let told = "the embedded worker ended and is started again in 1 s: ";
    assert!(
        said.contains(told) && said.contains("another installation"),
        "{said}"
    );
    fs::remove_file(&pinned).unwrap();
    await_that("it has come back", || pinned.exists().then_some(()));
    await_worker(&client);
    run.stop();
}

#[test]
fn a_server_that_stops_is_not_missed_by_its_own_worker() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::start(server(folder.path(), "embedded_worker: {}"), folder.path());
    let client = run.client(None);
    await_worker(&client);
    run.await_said("session opened");
    // Its poll comes next, and nobody else knows when that waits.
    std::thread::sleep(Duration::from_millis(300));
    run.stop();
    let said = run.said();
    assert!(!said.contains("WARN") && !said.contains("503"), "{said}");
}

#[test]
fn a_folder_that_the_worker_of_a_server_cannot_use_is_told_before_it_listens() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let settings = format!("embedded_worker: {{ data_dir: {}/below }}", file.display());
    let said = refused(&mut server(folder.path(), &settings));
    let told = format!(
        "stepward: embedded_worker: {}/below cannot be used: ",
        file.display()
    );
    assert!(said.starts_with(&told), "{said}");
}

#[test]
fn a_server_goes_on_without_the_tool_of_its_worker_until_it_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let tool = folder.path().join("docker");
    let settings = format!(
        "embedded_worker: {{ tags: [docker], docker: {{ command: {} }} }}",
        tool.display()
    );
    let mut run = Run::start(server(folder.path(), &settings), folder.path());
    let client = run.client(None);
    let said = run.await_said("does not start");
    assert!(said.contains("tag docker is not offered"), "{said}");
    assert!(workers(&client).is_empty());
    let draft = folder.path().join("draft");
    fs::write(&draft, "#!/bin/sh\nexit 0\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&draft, executable).unwrap();
    fs::rename(&draft, &tool).unwrap();
    assert_eq!(await_worker(&client).tags, ["docker"]);
    assert_eq!(run.said().matches("does not start").count(), 1);
    run.stop();
}

/// Started with SIGHUP ignored, as by nohup.
fn nohup(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]);
    shell.arg(command.get_program()).args(command.get_args());
    shell
}

#[test]
fn what_was_started_with_nohup_stays_when_the_terminal_goes() {
    let catches = |run: &Run| {
        let status = fs::read_to_string(format!("/proc/{}/status", run.child.id())).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        u64::from_str_radix(mask.unwrap().trim(), 16).unwrap() & 1 == 1
    };
    let folder = tempfile::tempdir().unwrap();
    let command = server(folder.path(), "");
    let mut run = Run::start(nohup(&command), folder.path());
    let client = run.client(None);
    assert!(!catches(&run));
    run.signal(Signal::HUP);
    assert!(workers(&client).is_empty());
    run.stop();
    // The tests themselves may have been started with nohup.
    let mut plain = Command::new("env");
    plain.arg("--default-signal=HUP");
    plain.arg(command.get_program()).args(command.get_args());
    let mut run = Run::start(plain, folder.path());
    run.client(None);
    assert!(catches(&run));
    run.signal(Signal::HUP);
    assert!(run.ended().success());

    let own = folder.path().join("worker");
    let mut command = Command::new(BINARY);
    command.args(["worker", "--server", "http://127.0.0.1:1"]);
    command.arg("--data-dir").arg(own);
    let mut run = Run::start(nohup(&command), folder.path());
    run.await_said("offers");
    assert!(!catches(&run));
    run.signal(Signal::HUP);
    run.stop();
    assert_eq!(run.said().matches("finishing").count(), 1, "{}", run.said());
}

#[test]
fn a_flag_comes_before_the_environment_and_that_before_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let names = |name: &str| folder.path().join(name);
    let start = |flag: Option<&Path>, variable: Option<&Path>| {
        // Nobody without a token may listen there: the flag says otherwise, and what counts is what came of all.
        let file = folder.path().join("server.yaml");
        let settings = format!(
            "listen: 0.0.0.0:7717\ndata_dir: {}",
            names("data").display()
        );
        fs::write(&file, settings).unwrap();
        let mut command = Command::new(BINARY);
        command.args(["server", "--listen", "127.0.0.1:0"]);
        command.arg("--config").arg(file);
        if let Some(flag) = flag {
            command.arg("--data-dir").arg(flag);
        }
        if let Some(variable) = variable {
            command.env("STEPWARD_DATA_DIR", variable);
        }
        let mut run = Run::start(command, folder.path());
        let line = run.await_said("data in ");
        run.stop();
        line.split("data in ")
            .nth(1)
            .unwrap()
            .split(',')
            .next()
            .unwrap()
            .to_string()
    };
    let (flag, variable, file) = (names("flag"), names("variable"), names("data"));
    assert_eq!(start(None, None), file.to_str().unwrap());
    assert_eq!(start(None, Some(&variable)), variable.to_str().unwrap());
    assert_eq!(start(Some(&flag), Some(&variable)), flag.to_str().unwrap());

    let mut command = Command::new(BINARY);
    command.arg("server").env("STEPWARD_LISTEN", "127.0.0.1:0");
    command.env("STEPWARD_DATA_DIR", &variable);
    command.env("STEPWARD_EMBEDDED_WORKER", "true");
    command.env("STEPWARD_WORKFLOWS_DIR", "examples");
    command.env("STEPWARD_AUTH_REQUIRED", "false");
    let mut server = Run::start(command, folder.path());
    let client = server.client(None);
    assert!(!server.await_said("data in ").contains(" 0 tasks"));
    await_worker(&client);
    server.stop();

    let mut command = Command::new(BINARY);
    command
        .arg("worker")
        .env("STEPWARD_DATA_DIR", names("worker"));
    command.env("STEPWARD_SERVER_URL", "http://127.0.0.1:1");
    command.env("STEPWARD_NAME", "by variable");
    command.env("STEPWARD_TAGS", "gpu,script");
    command.env("STEPWARD_SLOTS", "3").args(["--slots", "4"]);
    let mut worker = Run::start(command, folder.path());
    assert_eq!(
        worker.await_said("offers"),
        "stepward: worker by variable offers gpu, script with 4 slots to http://127.0.0.1:1"
    );
    worker.stop();
    assert!(names("worker/instance").exists());
}

/// The head of each example file lists the variables of its flags and of its settings.
#[test]
fn every_variable_is_named_where_settings_are_explained() {
    let first_names = [
        "STEPWARD_NAME",
        "STEPWARD_TAGS",
        "STEPWARD_SLOTS",
        "STEPWARD_DATA_DIR",
        "STEPWARD_LOG_FORMAT",
    ];
    for (verb, file, of_settings, first_names) in [
        (
            "server",
            "server-config.example.yaml",
            server_variables(),
            &[][..],
        ),
        (
            "worker",
            "worker-config.example.yaml",
            worker_variables(),
            &first_names,
        ),
    ] {
        let help = Command::new(BINARY).args([verb, "--help"]).output();
        let help = String::from_utf8(help.unwrap().stdout).unwrap();
        let head = fs::read_to_string(file).unwrap();
        let comment = head.lines().take_while(|line| line.starts_with('#'));
        let comment: String = comment.collect::<Vec<_>>().join(" ");
        let names = |text: &str| {
            let words = text.split(|c: char| !c.is_ascii_uppercase() && c != '_');
            let words = words.filter(|word| word.starts_with("STEPWARD_"));
            words
                .map(str::to_string)
                .collect::<std::collections::BTreeSet<_>>()
        };
        let mut expected = names(&help);
        assert!(expected.len() >= 4);
        expected.extend(of_settings.into_iter().map(|variable| variable.name));
        expected.extend(first_names.iter().map(|name| name.to_string()));
        assert_eq!(names(&comment), expected, "{file}");
    }
}

#[test]
fn the_worker_of_a_server_that_listens_everywhere_reaches_it_without_a_proxy() {
    for everywhere in ["0.0.0.0:0", "[::]:0"] {
        let folder = tempfile::tempdir().unwrap();
        let token_file = folder.path().join("token");
        fs::write(&token_file, "0123456789abcdef0123\n").unwrap();
        let settings = format!(
            "embedded_worker: {{}}\nplain_http: true\nauth: {{ token_file: {} }}",
            token_file.display()
        );
        let mut command = server_at(folder.path(), everywhere, &settings);
        for variable in ["http_proxy", "HTTP_PROXY", "ALL_PROXY"] {
            command.env(variable, "http://127.0.0.1:1");
        }
        let mut run = Run::start(command, folder.path());
        let here = match everywhere.starts_with('[') {
            true => "to http://[::1]:",
            false => "to http://127.0.0.1:",
        };
        run.await_said(here);
        run.await_said("session opened");
        run.stop();
    }
}

#[test]
fn what_flags_say_is_refused_in_words_that_help() {
    let folder = tempfile::tempdir().unwrap();
    let command = |words: &[&str]| {
        let mut command = Command::new(BINARY);
        command.args(words).current_dir(folder.path());
        command
    };
    for (words, told) in [
        (
            &["server", "--listen", "here:7717"][..],
            "write an address such as 127.0.0.1:7717, names but localhost are not looked up",
        ),
        (
            &["server", "--workflows-dir", "nowhere"],
            "stepward: workflows_dir is nowhere, which cannot be read: ",
        ),
        (
            &["server", "--config", "/dev/zero"],
            "stepward: /dev/zero: is not a plain file",
        ),
        (
            &["worker", "--server", "http://"],
            "stepward: server_url is \"http://\", write http://HOST:PORT or https://HOST:PORT",
        ),
        (
            &["worker", "--name", " "],
            "stepward: name is blank, write one or leave it out",
        ),
    ] {
        let said = refused(&mut command(words));
        assert!(said.contains(told), "{words:?}: {said}");
    }
}

/// Starting again would not help, and a service manager that knows the code does not.
#[test]
fn whatever_is_wrong_with_settings_ends_with_the_same_code() {
    let folder = tempfile::tempdir().unwrap();
    let short = folder.path().join("short");
    fs::write(&short, "short").unwrap();
    let (certificate, key) = (
        folder.path().join("cert.pem"),
        folder.path().join("key.pem"),
    );
    let made = rcgen::generate_simple_self_signed(["localhost".to_string()]).unwrap();
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    let here = folder.path().display();
    let settings = |text: String| text.into_bytes();
    for (settings, fault) in [
        (
            settings(format!("auth: {{ token_file: {here}/none }}")),
            "none",
        ),
        (
            settings(format!("auth: {{ token_file: {here}/short }}")),
            "holds no token",
        ),
        (
            settings(format!(
                "tls: {{ cert_file: {here}/cert.pem, key_file: {here}/key.pem }}"
            )),
            "chmod",
        ),
        (b"listen: 7717".to_vec(), "listen"),
        (b"# caf\xe9".to_vec(), "is not text in UTF-8"),
    ] {
        let file = folder.path().join("settings.yaml");
        fs::write(&file, settings).unwrap();
        let mut command = Command::new(BINARY);
        command.arg("server").arg("--config").arg(&file);
        command.arg("--data-dir").arg(folder.path().join("data"));
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains(fault), "{fault}: {said}");
    }
}

/// A mistyped name must not leave a setting as it was without a word.
#[test]
fn a_variable_that_is_no_setting_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = server(folder.path(), "");
    command.env("STEPWARD_RECOVERY_HEARTBEAT_TIMEOUT_SEC", "60");
    command.env("STEPWARD_JOB_ID", "7");
    let mut run = Run::start(command, folder.path());
    run.client(None);
    let meant = "STEPWARD_RECOVERY_HEARTBEAT_TIMEOUT_SEC is no setting and is ignored; did you mean STEPWARD_RECOVERY_HEARTBEAT_TIMEOUT_SECS?";
    let said = run.await_said("is no setting");
    assert!(said.contains(meant), "{said}");
    assert!(!run.said().contains("STEPWARD_JOB_ID"), "{}", run.said());
    run.stop();
}
