//! What checking workflow files costs per line, for files of one shape and two sizes: a check whose cost grows faster than its file
//! lets one request take as long as it likes.
//!
//! `cargo bench --bench validate` prints one JSON line on stdout and fails if a line of the large file costs more than
//! `RATIO_MAX` times a line of the small one; progress is on stderr. `-- --quick` uses smaller files.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::{Value, json};
use stepward::language::{self, CheckOptions, SourceFile};

/// Sorted maps and cold memory make a line of a larger file somewhat more expensive.
const RATIO_MAX: f64 = 2.5;
const ROUNDS: usize = 5;

/// Writes a file of about so many lines.
type Shape = fn(usize) -> String;

const SHAPES: &[(&str, Shape)] = &[
    ("tasks", tasks),
    ("tasks with mistakes", mistaken_tasks),
    ("schedules that never fire", schedules),
    ("unknown time zones", zones),
    ("unknown dependencies", dependencies),
    ("unknown keys", keys),
    ("calls that lack inputs", inputs),
    ("templates in one script", templates),
    ("unknown names in one line", names),
    ("secrets that do not exist", secrets),
    ("words of a pod's command", pod_words),
    ("equal words of a pod's containers", pod_containers),
    ("a manifest full of aliases", aliases),
    ("a script in twelve loops", loops),
    ("a long variable that many steps use", uses),
    ("branches that set a variable, and its uses", branches),
    ("many values in many places", values),
];

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let (small, large) = if quick {
        (2_000, 8_000)
    } else {
        (5_000, 20_000)
    };
    let mut measured = Vec::new();
    let mut failed = false;
    for (name, shape) in SHAPES {
        let (small_us, large_us) = (us_per_line(*shape, small), us_per_line(*shape, large));
        let ratio = large_us / small_us;
        eprintln!("{name}: {small_us:.2} us and {large_us:.2} us per line, ratio {ratio:.2}");
        failed |= ratio > RATIO_MAX;
        measured.push(json!({ "shape": name, "us_per_line": large_us, "ratio": ratio }));
    }
    let all =
        json!({ "bench": "validate", "lines": [small, large], "shapes": Value::Array(measured) });
    println!("{all}");
    if failed {
        eprintln!("a line of a large file costs more than {RATIO_MAX} times a line of a small one");
        std::process::exit(1);
    }
}

/// The fastest of several rounds: whatever else the machine does makes a round slower, never faster.
fn us_per_line(shape: Shape, lines: usize) -> f64 {
    let text = shape(lines);
    let lines = lines as f64;
    let rounds = (0..ROUNDS).map(|_| {
        let file = SourceFile {
            path: PathBuf::from("a.yaml"),
            text: text.clone(),
        };
        let begun = Instant::now();
        let checked = language::check_sources(vec![file], &CheckOptions::default());
        let took = begun.elapsed().as_secs_f64();
        drop(checked);
        took * 1e6 / lines
    });
    rounds.fold(f64::INFINITY, f64::min)
}

fn lines(head: &str, count: usize, line: impl Fn(usize) -> String) -> String {
    let mut text = head.to_string();
    for at in 0..count {
        writeln!(text, "{}", line(at)).expect("a string takes everything");
    }
    text
}

fn tasks(count: usize) -> String {
    lines("tasks:\n", count, |at| {
        format!("  t{at}: {{ flow: {{ a: {{ script: x }} }} }}")
    })
}

fn mistaken_tasks(count: usize) -> String {
    lines("tasks:\n", count, |at| {
        format!("  t{at}: {{ flow: {{ a: {{ script: x, tags: [\"a b\"] }} }} }}")
    })
}

const SCHEDULED: &str =
    "tasks:\n  t:\n    timeout: 5m\n    flow: { a: { script: x } }\n    schedules:\n";

fn schedules(count: usize) -> String {
    lines(SCHEDULED, count, |at| {
        format!("      s{at}: {{ cron: \"0 0 30 2 *\" }}")
    })
}

fn zones(count: usize) -> String {
    lines(SCHEDULED, count, |at| {
        format!("      s{at}: {{ cron: \"@daily\", timezone: Europe/Osl{at} }}")
    })
}

/// A task has at most 10,000 steps, each of which waits for two here.
fn dependencies(count: usize) -> String {
    lines("tasks:\n  t:\n    flow:\n", count / 2, |at| {
        format!("      s{at}: {{ script: x, depends_on: [r{at}, q{at}] }}")
    })
}

fn keys(count: usize) -> String {
    lines("tasks:\n  t:\n    flow:\n      a:\n", count, |at| {
        format!("        script{at}: x")
    })
}

/// A task has at most 1,000 inputs.
fn inputs(count: usize) -> String {
    let taken = lines("tasks:\n  u:\n    input:\n", 1_000, |at| {
        format!("      i{at}: {{ required: true }}")
    });
    let calls = "    flow: { a: { script: x } }\n  t:\n    flow:\n";
    lines(&format!("{taken}{calls}"), count / 2, |at| {
        format!(
            "      s{at}: {{ type: task, task: u, input: {{ i{}: x }} }}",
            at % 1_000
        )
    })
}

fn templates(count: usize) -> String {
    let head = "tasks:\n  t:\n    input: { a: { type: string } }\n    flow:\n      a:\n        script: |\n";
    lines(head, count, |_| {
        "          echo {{ input.a | sh }}".to_string()
    })
}

fn names(count: usize) -> String {
    let head = "tasks:\n  t:\n    flow:\n      a:\n        script: |\n          ";
    let names: String = (0..count).map(|at| format!("{{{{ q{at} }}}} ")).collect();
    format!("{head}{names}\n")
}

fn secrets(count: usize) -> String {
    let known = lines("secrets:\n", count / 2, |at| {
        format!("  k{at}: {{ env: K{at} }}")
    });
    let head = "tasks:\n  t:\n    flow:\n      a:\n        script: |\n";
    lines(&format!("{known}{head}"), count / 2, |at| {
        format!("          {{{{ secret.l{at} }}}}")
    })
}

const POD: &str = "secrets: { s: { env: S } }\ntasks:\n  t:\n    flow:\n      a:\n        type: pod\n        manifest:";

/// Many words make the manifest a list of texts, each of which could be looked for in all others.
fn pod_words(count: usize) -> String {
    let head = format!(
        "{POD} |\n          spec:\n            containers:\n            - name: \"{{{{ secret.s }}}}\"\n              args:\n"
    );
    lines(&head, count, |at| {
        format!("              - \"{{{{ job.id }}}} {at}\"")
    })
}

fn pod_containers(count: usize) -> String {
    let head = format!("{POD}\n          spec:\n            containers:\n");
    lines(&head, count / 4, |_| {
        "            - name: a\n              image: b\n              args:\n              - '{{ secret.s }}'".to_string()
    })
}

/// The manifest would become larger than any memory.
fn aliases(count: usize) -> String {
    let (items, aliases) = ("x,".repeat(count), "*a,".repeat(count));
    format!(
        "{POD} |\n          a: &a [{items}]\n          b: [{aliases}]\n          c: \"{{{{ job.id }}}}\"\n"
    )
}

fn loops(count: usize) -> String {
    let (begin, end) = ("{% for i in [1] %}".repeat(12), "{% endfor %}".repeat(12));
    let head = format!("tasks:\n  t:\n    flow:\n      a:\n        script: |\n          {begin}\n");
    lines(&head, count, |_| "          echo it is long".to_string()) + &format!("          {end}\n")
}

/// A task has at most 10,000 steps.
fn uses(count: usize) -> String {
    let head = "actions:\n  a: { type: docker, image: \"{{ input.i }}\", input: { i: { type: string } } }\n\
                tasks:\n  t:\n    env:\n      B: |\n";
    let variable = lines(head, count / 2, |_| "        {{ job.id }}".to_string());
    lines(&format!("{variable}    flow:\n"), count / 2, |at| {
        format!("      s{at}: {{ action: a, input: {{ i: \"{{{{ env.B }}}}\" }} }}")
    })
}

const SCRIPT: &str =
    "tasks:\n  t:\n    input: { a: { type: string } }\n    flow:\n      a:\n        script: |\n";

fn branches(count: usize) -> String {
    let set = lines(SCRIPT, count / 2, |_| {
        "          {% if 1 %}{% set x = input.a %}{% endif %}".to_string()
    });
    lines(&set, count / 2, |_| "          {{ x }}".to_string())
}

fn values(count: usize) -> String {
    let (inputs, filters) = ("input.a,".repeat(64), "|capitalize".repeat(31));
    let head = format!("{SCRIPT}          {{% set x = [{inputs}] %}}{{% set y = x{filters} %}}\n");
    lines(&head, count, |_| "          {{ y }}".to_string())
}
