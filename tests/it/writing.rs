//! What those who write workflows type: `render`, `graph`, `explain`, `validate`, through the real binary, with no server anywhere.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use stepward::domain::reason::{Reason, Waiting};
use tempfile::TempDir;

const RELEASE: &str = r#"
tasks:
  release:
    input:
      version: { type: string, required: true, pattern: '^\d+\.\d+$' }
      count: { type: integer, default: 2 }
      pin: { type: string, secret: true, required: true }
      regions: { type: json, default: [eu, us] }
    env: { VERSION: "{{ input.version }}", PIN: "{{ input.pin }}" }
    flow:
      build:
        script: echo {{ input.version | sh }} {{ (input.count + 1) | sh }} {{ job.id }}
      test:
        depends_on: [build]
        for_each: [unit, api]
        env: { IMAGE: "{{ steps.build.output.image }}", SUITE: "{{ each.item }}" }
        script: ./test.sh {{ each.item | sh }} {{ env.IMAGE | sh }} {{ env.VERSION | sh }}
      spread:
        depends_on: [build]
        for_each: "{{ steps.build.output.places }}"
        script: echo {{ each.item | sh }}
      near:
        for_each: "{{ input.regions }}"
        script: echo {{ each.item | sh }}
      tell:
        depends_on: [test]
        when: "{{ input.count > 5 }}"
        action: say
        input: { text: "{{ input.version }} is out", to: "{{ steps.build.output.who }}", loud: "true" }
      box:
        type: docker
        image: "app:{{ input.version }}"
        command: [run, "--pin", "{{ input.pin }}", "--key={{ secret.key }}"]
      ask:
        type: approval
        depends_on: [build]
        message: "Publish {{ input.version }} as {{ steps.build.output.image }}?"
      call:
        type: task
        task: other
        input: { n: "{{ input.count }}" }
  other:
    input: { n: { type: integer } }
    flow: { s: { script: "echo {{ input.n | sh }}" } }
actions:
  say:
    input:
      text: { type: string, required: true }
      to: { type: string, required: true }
      loud: { type: boolean }
    env: { LOUD: "{{ input.loud }}", TO: "{{ input.to }}" }
    script: say "$INPUT_TEXT" {{ input.text | sh }}
secrets:
  key: { file: /nowhere/at/all }
"#;

struct Typed {
    code: i32,
    out: String,
    err: String,
}

fn typed(folder: &Path, words: &[&str]) -> Typed {
    let output = Command::new(env!("CARGO_BIN_EXE_stepward"))
        .args(words)
        .current_dir(folder)
        .env_clear()
        .output()
        .unwrap();
    Typed {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("workflows")).unwrap();
    fs::write(folder.path().join("workflows/release.yaml"), RELEASE).unwrap();
    folder
}

fn rendered(words: &[&str]) -> Value {
    let folder = folder();
    let all = ["render", "release", "-i", "version=1.4", "--json"];
    let all: Vec<&str> = all.iter().chain(words).copied().collect();
    let typed = typed(folder.path(), &all);
    assert_eq!((typed.code, typed.err.as_str()), (0, ""), "{}", typed.out);
    serde_json::from_str(&typed.out).unwrap()
}

/// What became of a key of a step, and when the rest of it is known.
fn part(rendering: &Value, step: &str, key: &str) -> (Value, Vec<String>) {
    let steps = rendering["steps"].as_array().unwrap();
    let found = steps.iter().find(|one| one["name"] == step).unwrap();
    let parts = found["parts"].as_array().unwrap();
    let Some(part) = parts.iter().find(|part| part["key"] == key) else {
        panic!("no {key} in {found}");
    };
    let unknown = part["unknown"].as_array().into_iter().flatten();
    let unknown = unknown.map(|when| when.as_str().unwrap().to_string());
    (part["value"].clone(), unknown.collect())
}

#[test]
fn what_is_known_is_rendered_and_what_is_not_stays_as_it_is() {
    let rendering = rendered(&["-i", "count=3", "-i", "pin=4711-0815"]);
    assert_eq!(
        rendering["input"],
        json!({ "version": "1.4", "count": 3, "pin": "***", "regions": ["eu", "us"] })
    );
    let of = |step: &str, key: &str| part(&rendering, step, key);
    let known = |value: Value| (value, Vec::<String>::new());
    let later = |value: &str, when: &str| (Value::from(value), vec![when.to_string()]);
    assert_eq!(of("build", "env.VERSION"), known("1.4".into()));
    assert_eq!(
        of("build", "script"),
        later("echo '1.4' '4' {{ job.id }}", "when the job runs")
    );
    // One list is written out, one is given to the job, one is not known before `build` has ended.
    assert_eq!(of("test[1]", "each.item"), known("api".into()));
    assert_eq!(of("test[1]", "env.SUITE"), known("api".into()));
    assert_eq!(
        of("test[1]", "script"),
        later(
            "./test.sh 'api' {{ env.IMAGE | sh }} '1.4'",
            "when build has ended"
        )
    );
    assert_eq!(of("near[0]", "script"), known("echo 'eu'".into()));
    assert_eq!(
        of("spread", "for_each"),
        later("{{ steps.build.output.places }}", "when build has ended")
    );
    assert_eq!(
        of("spread", "script"),
        later("echo {{ each.item | sh }}", "when the loop begins")
    );
    // A named action sees what it is given, with its types.
    assert_eq!(of("tell", "when"), known(false.into()));
    assert_eq!(of("tell", "input.loud"), known(true.into()));
    assert_eq!(of("tell", "env.LOUD"), known("true".into()));
    assert_eq!(
        of("tell", "env.TO"),
        later("{{ input.to }}", "when build has ended")
    );
    assert_eq!(
        of("tell", "script"),
        known("say \"$INPUT_TEXT\" '1.4 is out'".into())
    );
    assert_eq!(of("box", "image"), known("app:1.4".into()));
    assert_eq!(of("box", "command[2]"), known("***".into()));
    assert_eq!(of("box", "command[3]"), known("--key=***".into()));
    assert_eq!(
        of("ask", "message"),
        later(
            "Publish 1.4 as {{ steps.build.output.image }}?",
            "when build has ended"
        )
    );
    assert_eq!(of("call", "input.n"), known(3.into()));
    assert!(!rendering.to_string().contains("4711"), "{rendering}");
}

#[test]
fn people_read_it_as_yaml_with_a_line_where_something_is_missing() {
    let folder = folder();
    let words = ["render", "release", "-i", "version=1.4", "--step", "test"];
    let told = typed(folder.path(), &words);
    let expected = "\
# task release
#   count: 2
#   pin: \"***\"
#   regions: [\"eu\",\"us\"]
#   version: \"1.4\"

test[0]:
  type: script
  each.item: unit
  env:
    # known when build has ended
    IMAGE: \"{{ steps.build.output.image }}\"
    PIN: \"***\"
    SUITE: unit
    VERSION: \"1.4\"
  # known when build has ended
  script: \"./test.sh 'unit' {{ env.IMAGE | sh }} '1.4'\"
";
    assert!(told.out.starts_with(expected), "{}", told.out);
    // It is YAML, and says what the JSON says.
    let yaml: Value = serde_yaml::from_str(&told.out).unwrap();
    assert_eq!(yaml["test[1]"]["env"]["SUITE"], "api");
}

#[test]
fn rendering_refuses_code_that_only_the_values_show() {
    let folder = folder();
    let file = folder.path().join("workflows/late.yaml");
    let text = r#"tasks:
  late:
    input: { x: { type: string, required: true } }
    flow:
      s: { type: docker, image: a, command: [psql, "{{ input.x }}"] }
  pod:
    input: { x: { type: string, required: true } }
    flow:
      s:
        type: pod
        manifest:
          { apiVersion: v1, kind: Pod, spec: { containers: [{ name: a, image: b, command: [psql, "{{ input.x }}"] }] } }
"#;
    fs::write(file, text).unwrap();
    for (task, key) in [("late", "command"), ("pod", "manifest")] {
        let render = |value: &str| typed(folder.path(), &["render", task, "-i", value]);
        let told = render("x=$(shop)");
        assert_eq!(told.code, 0, "{}", told.err);
        let expected = if task == "pod" { "$$(shop)" } else { "$(shop)" };
        assert!(
            told.out.contains(&format!("\"{expected}\"")),
            "{}",
            told.out
        );
        let told = render("x=--command=drop table users");
        assert_eq!(told.code, 3, "{}", told.out);
        let place = format!("step s, {key}: ");
        assert!(told.err.contains(&place), "{}", told.err);
        assert!(
            told.err.contains("input.x would become code"),
            "{}",
            told.err
        );
    }
}

#[test]
fn what_does_not_fit_is_told_as_a_submission_tells_it() {
    let folder = folder();
    let render = |words: &[&str]| {
        let all: Vec<&str> = ["render"].iter().chain(words).copied().collect();
        typed(folder.path(), &all)
    };
    let told = render(&["release"]);
    assert_eq!((told.code, told.out.as_str()), (3, ""));
    assert!(told.err.contains("version is required"), "{}", told.err);
    let told = render(&["release", "-i", "version=1.4", "-i", "count=many"]);
    assert_eq!(told.code, 3);
    assert!(told.err.contains("count expected"), "{}", told.err);
    let told = render(&["release", "-i", "version=1.4", "-i", "cuont=3"]);
    assert_eq!(told.code, 3);
    assert!(told.err.contains("did you mean count?"), "{}", told.err);
    assert_eq!(render(&["release", "-i", "version"]).code, 2);
    let told = render(&["relaese"]);
    assert_eq!(told.code, 5);
    assert!(told.err.contains("did you mean release?"), "{}", told.err);
    let told = render(&["release", "-i", "version=1.4", "--step", "buidl"]);
    assert_eq!(told.code, 5);
    assert!(told.err.contains("did you mean build?"), "{}", told.err);
    let told = render(&["workflows/release.yaml"]);
    assert_eq!(told.code, 3, "the task that is called like its file");
    assert!(told.err.contains("version is required"), "{}", told.err);
    let other = ["workflows/release.yaml", "--task", "other"];
    let told = render(&other);
    assert_eq!(told.code, 3, "nothing is no word: {}", told.err);
    assert!(told.err.contains("step s, script: "), "{}", told.err);
    let given: Vec<&str> = other.into_iter().chain(["-i", "n=3"]).collect();
    assert_eq!(render(&given).code, 0);
    assert_eq!(render(&["workflows/nowhere.yaml"]).code, 5);

    fs::write(
        folder.path().join("bad.yaml"),
        "tasks: { t: { flow: { s: { scrpt: x } } } }",
    )
    .unwrap();
    for verb in ["render", "graph"] {
        let told = typed(folder.path(), &[verb, "bad.yaml"]);
        assert_eq!((told.code, told.out.as_str()), (3, ""));
        assert!(told.err.contains("bad.yaml:1:"), "{}", told.err);
        assert!(told.err.contains("error[E012]"), "{}", told.err);
    }
}

#[test]
fn a_graph_is_drawn_from_a_file_or_the_folder() {
    let folder = folder();
    let told = typed(folder.path(), &["graph", "release"]);
    assert_eq!((told.code, told.err.as_str()), (0, ""));
    assert!(told.out.starts_with("○"), "{}", told.out);
    assert_eq!(
        told.out
            .lines()
            .filter(|line| line.contains("script"))
            .count(),
        5
    );
    let ascii = typed(folder.path(), &["graph", "release", "--ascii"]);
    assert!(ascii.out.is_ascii(), "{}", ascii.out);
    let file = [
        "graph",
        "workflows/release.yaml",
        "--task",
        "other",
        "--json",
    ];
    let json: Value = serde_json::from_str(&typed(folder.path(), &file).out).unwrap();
    assert_eq!(
        (&json["title"], json["nodes"].as_array().unwrap().len()),
        (&json!("other"), 1)
    );
    let into = ["graph", "release", "--format", "svg", "-o", "release.svg"];
    let told = typed(folder.path(), &into);
    assert_eq!((told.code, told.out.as_str()), (0, ""));
    let svg = fs::read_to_string(folder.path().join("release.svg")).unwrap();
    assert!(
        svg.starts_with("<svg ") && svg.contains(">build</text>"),
        "{svg}"
    );
    for (format, begins) in [
        ("mermaid", "flowchart TD\n"),
        ("dot", "digraph \"release\" {\n"),
    ] {
        let told = typed(folder.path(), &["graph", "release", "--format", format]);
        assert!(told.out.starts_with(begins), "{}", told.out);
    }
    assert_eq!(typed(folder.path(), &["graph", "relase"]).code, 5);
    assert_eq!(typed(folder.path(), &["graph"]).code, 2);
    assert_eq!(typed(folder.path(), &["graph", "./workflows"]).code, 2);
    assert_eq!(typed(folder.path(), &["graph", "--job", "1"]).code, 6);
}

#[test]
fn everything_that_can_happen_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let told = typed(folder.path(), &["explain", "--list", "--json"]);
    let list: Value = serde_json::from_str(&told.out).unwrap();
    assert!(list["next"].is_null());
    let items = list["items"].as_array().unwrap();
    let has = |kind: &str, code: &str| {
        let found = items
            .iter()
            .find(|one| one["kind"] == kind && one["code"] == code);
        let text = found.unwrap_or_else(|| panic!("{kind} {code}"))["text"]
            .as_str()
            .unwrap();
        assert!(text.len() > 40, "{code}: {text}");
        // Two to four lines, or a page.
        assert!(
            kind == "topic" || kind == "rule" || text.lines().count() <= 4,
            "{code}"
        );
    };
    Reason::ALL
        .iter()
        .for_each(|reason| has("reason", reason.as_str()));
    Waiting::ALL
        .iter()
        .for_each(|waiting| has("waiting", waiting.as_str()));
    for topic in [
        "exit-codes",
        "recovery",
        "selectors",
        "templates",
        "durations",
        "environment",
    ] {
        has("topic", topic);
    }
    let mut codes: Vec<&str> = items
        .iter()
        .map(|one| one["code"].as_str().unwrap())
        .collect();
    let count = codes.len();
    codes.sort();
    codes.dedup();
    assert_eq!(codes.len(), count, "each has a name of its own");

    let of = |word: &str| typed(folder.path(), &["explain", word]);
    assert!(of("worker_lost").out.starts_with("worker_lost: "));
    assert_eq!(of("Worker-Lost").out, of("worker_lost").out);
    assert!(of("13").out.contains("no worker could run a step"));
    assert!(
        of("exit-codes")
            .out
            .contains("\n  124  the waiting timed out")
    );
    let told = of("recovry");
    assert_eq!((told.code, told.out.as_str()), (5, ""));
    assert!(told.err.contains("did you mean recovery?"), "{}", told.err);
    assert_eq!(of("\u{1b}[2J").code, 5);
    assert!(!of("\u{1b}[2J").err.contains('\u{1b}'));
}

#[test]
fn problems_are_told_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    let bad = "tasks: { t: { flow: { s: { scrpt: x } } } }\n";
    fs::write(folder.path().join("a,b.yaml"), bad).unwrap();
    let of = |words: &[&str]| {
        let all = ["validate", "a,b.yaml"];
        let all: Vec<&str> = all.iter().chain(words).copied().collect();
        typed(folder.path(), &all)
    };
    assert_eq!(of(&["--json"]).out, of(&["--format", "json"]).out);
    assert!(of(&["--color", "always"]).out.contains('\u{1b}'));
    assert!(!of(&[]).out.contains('\u{1b}'));
    let told = of(&["--format", "github"]);
    assert_eq!(told.code, 3);
    let line = told.out.lines().next().unwrap();
    assert!(
        line.starts_with("::error file=a%2Cb.yaml,line=1,col="),
        "{line}"
    );
    assert!(line.contains(",title=E012::unknown key `scrpt`"), "{line}");
    assert_eq!(of(&["--json", "--format", "short"]).code, 2);
}

/// A folder may name a server; these ask nobody, and write nothing.
#[test]
fn what_needs_no_server_connects_to_none_and_leaves_nothing_behind() {
    let folder = folder();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let started: u64 = fields.split_whitespace().nth(19).unwrap().parse().unwrap();
    let pid = std::process::id();
    let announced = json!({ "url": url, "pid": pid, "started_ticks": started, "token_file": null });
    fs::create_dir(folder.path().join(".stepward")).unwrap();
    fs::write(
        folder.path().join(".stepward/server.json"),
        announced.to_string(),
    )
    .unwrap();
    let all = |folder: &Path| {
        let mut found = Vec::new();
        let mut folders = vec![folder.to_path_buf()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path.clone());
                }
                found.push(path);
            }
        }
        found.sort();
        found
    };
    let before = all(folder.path());
    for words in [
        &["--help"][..],
        &["--version"],
        &["run", "--help"],
        &["validate"],
        &["validate", "workflows", "--format", "json"],
        &["completions", "bash"],
        &["completions", "zsh"],
        &["explain", "worker_lost"],
        &["schema", "server-config"],
        &["render", "release", "-i", "version=1.4"],
        &["graph", "workflows/release.yaml", "--task", "release"],
    ] {
        // Nor does the environment make them.
        let output = Command::new(env!("CARGO_BIN_EXE_stepward"))
            .args(words)
            .current_dir(folder.path())
            .env_clear()
            .env("STEPWARD_SERVER_URL", &url)
            .output()
            .unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        let came = listener.accept().map(|(_, who)| who);
        let nobody = std::io::ErrorKind::WouldBlock;
        assert_eq!(came.unwrap_err().kind(), nobody, "{words:?}");
    }
    assert_eq!(all(folder.path()), before);
}
