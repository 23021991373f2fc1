//! Files that are meant to cost: each gets a clear answer, in bounded time and memory.

use std::fs::File;
use std::path::Path;

use stepward::language::{self, Checked, Library};

use super::{check, codes};

fn load(write: impl Fn(&Path)) -> Checked {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("hostile.yaml"));
    language::load(folder.path())
}

#[test]
fn an_alias_bomb_is_refused_at_its_first_anchor() {
    let mut text = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_string();
    for (letter, last) in ('b'..='i').zip('a'..='h') {
        let nine = vec![format!("*{last}"); 9].join(", ");
        text.push_str(&format!("{letter}: &{letter} [{nine}]\n"));
    }
    let found = check(&text);
    assert!(codes(&found).contains(&"E005"), "{:?}", codes(&found));
}

#[test]
fn a_hundred_thousand_levels_are_refused_at_the_first_that_is_too_deep() {
    for text in [
        "[".repeat(100_000),
        "{a: ".repeat(100_000),
        "- ".repeat(100_000),
        format!("a: {}", "[".repeat(100)),
        (0..1_000)
            .map(|depth| format!("{}a:\n", " ".repeat(depth)))
            .collect(),
    ] {
        assert_eq!(codes(&check(&text)), ["E008"], "{}", &text[..20]);
    }
}

#[test]
fn a_file_of_100_mb_is_not_read() {
    let found = load(|path| File::create(path).unwrap().set_len(100 << 20).unwrap());
    assert_eq!(codes(&found), ["E007"]);
    let message = &found.diagnostics[0].message;
    assert!(message.contains("104857600 bytes"), "{message}");
}

#[test]
fn too_many_values_are_refused() {
    let text = format!("tasks: [{}]", "1,".repeat(600_000));
    assert_eq!(codes(&check(&text)), ["E008"]);
}

#[test]
fn bytes_that_are_no_text_are_named_by_their_line() {
    let found = load(|path| std::fs::write(path, b"tasks:\n  a\xff: {}\n").unwrap());
    assert_eq!(codes(&found), ["E007"]);
    assert_eq!(found.diagnostics[0].message, "line 2 is not UTF-8");
}

#[test]
fn a_nul_byte_is_shown_where_it_is() {
    let found = check("tasks:\n  a: \0\n");
    assert_eq!(codes(&found), ["E009"]);
    assert_eq!(
        (found.diagnostics[0].at.line, found.diagnostics[0].at.column),
        (2, 6)
    );
}

#[test]
fn what_is_said_of_hostile_names_shows_no_control_characters() {
    let text = "tasks:\n  \"a\\e[31m\\u0007\": { flow: { s: { script: x } } }\n";
    let found = check(text);
    let shown = language::render::human(&found.diagnostics, false);
    assert_eq!(codes(&found), ["E020"]);
    assert!(
        !shown.contains('\x1b') && !shown.contains('\x07'),
        "{shown:?}"
    );
}

#[test]
fn a_key_of_a_megabyte_is_told_in_few_words() {
    let text = format!("{}: 1\n", "k".repeat(1 << 20));
    let found = check(&text);
    let shown = language::render::human(&found.diagnostics, false);
    assert!(!found.diagnostics.is_empty());
    assert!(shown.len() < 10_000, "{}", shown.len());
    let json = serde_json::to_string(&found.diagnostics).unwrap();
    assert!(json.len() < 10_000, "{}", json.len());
}

#[test]
fn ten_thousand_problems_are_fifty_and_a_count() {
    let mut text = "tasks:\n  t:\n    flow:\n".to_string();
    for at in 0..5_000 {
        text.push_str(&format!("      s{at}: {{ scrpt: x{at} }}\n"));
    }
    let found = check(&text);
    assert_eq!(found.diagnostics.len(), 50);
    let last = found.diagnostics.last().unwrap();
    assert!(
        last.help.iter().any(|help| help.contains("more problems")),
        "{:?}",
        last.help
    );
}

#[test]
fn odd_files_do_not_upset_anybody() {
    for text in [
        "",
        "\u{feff}",
        "---\n",
        "# nothing\n",
        "~\n",
        "tasks:\n",
        "tasks: {}\r\n",
        "[]",
        "x",
        "? a\n: b\n",
        "\"",
        "'",
        "|",
        ">",
        "&",
        "*",
        "!",
        "%",
        "@",
        "`",
        "tasks: [\n",
        "{{ x }}",
        "\u{85}",
        "\u{2028}",
        "a:\n\t- b",
        "- - - - -",
        ": : :",
        "{[]: 1}",
        "? [a]\n: b",
        "tasks: {t: {flow: {s: {script: \"\\ud800\"}}}}",
    ] {
        let found = check(text);
        for one in &found.diagnostics {
            assert!(one.at.line >= 1 && one.at.column >= 1, "{text:?}: {one:?}");
        }
        language::render::human(&found.diagnostics, true);
    }
    for text in [
        "",
        "\u{feff}",
        "---\n",
        "# nothing\n",
        "tasks:\n",
        "tasks: {}\r\n",
        "~\n",
    ] {
        assert_eq!(codes(&check(text)), Vec::<&str>::new(), "{text:?}");
    }
}

#[test]
fn a_script_file_stays_in_its_folder() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("workflows");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(root.path().join("outside.sh"), "echo outside").unwrap();
    std::fs::write(folder.join("inside.sh"), "echo inside").unwrap();
    std::os::unix::fs::symlink("../outside.sh", folder.join("link.sh")).unwrap();
    File::create(folder.join("large.sh"))
        .unwrap()
        .set_len(2 << 20)
        .unwrap();
    for (file, good) in [
        ("inside.sh", true),
        ("./inside.sh", true),
        ("../outside.sh", false),
        ("link.sh", false),
        ("/etc/passwd", false),
        ("large.sh", false),
        ("missing.sh", false),
        (".", false),
    ] {
        let text = format!("tasks: {{ t: {{ flow: {{ s: {{ file: {file} }} }} }} }}\n");
        std::fs::write(folder.join("t.yaml"), text).unwrap();
        let found = language::load(&folder);
        let expected: &[&str] = if good { &[] } else { &["E028"] };
        assert_eq!(codes(&found), expected, "{file}");
        let mut library = Library::new(&folder);
        assert_eq!(
            library.reload().workflows.tasks().count(),
            usize::from(good),
            "{file}"
        );
    }
}

/// Good and bad files with pieces cut out, doubled, moved and put in: there is always an answer, and its places are in the file.
#[test]
fn no_file_makes_it_panic() {
    const PIECES: &[&str] = &[
        "\n",
        " ",
        "  ",
        "\t",
        ": ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ",",
        "\"",
        "'",
        "|",
        ">",
        "&a ",
        "*a",
        "!t ",
        "#",
        "é",
        "🚀",
        "{{",
        "}}",
        "{% if %}",
        "\r\n",
        "\u{feff}",
        "---\n",
        "...",
        "? ",
        "<<: ",
        "~",
        "no",
        "012",
        "\\x41",
        "depends_on: [",
        "cron: \"é 25\"",
        "input: ",
        "{{ input.é }}",
        "when: ",
        "type: ",
        "\u{2028}",
    ];
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/language/golden");
    let goldens = std::fs::read_dir(folder).unwrap();
    let goldens = goldens.filter_map(|entry| {
        let path = entry.unwrap().path();
        let is_yaml = path
            .extension()
            .is_some_and(|extension| extension == "yaml");
        is_yaml
            .then(|| std::fs::read_to_string(path).ok())
            .flatten()
    });
    let mut seeds: Vec<String> = goldens.collect();
    seeds.sort();
    seeds.push(super::drafts::RELEASE.to_string());
    // A xorshift, so that a failure comes again.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    for _ in 0..3_000 {
        let mut text: Vec<char> = seeds[next(seeds.len())].chars().collect();
        for _ in 0..next(6) + 1 {
            let at = next(text.len() + 1);
            let end = (at + next(12)).min(text.len());
            match next(4) {
                0 => drop(text.drain(at..end)),
                1 => {
                    let piece = text[at..end].to_vec();
                    text.splice(end..end, piece);
                }
                _ => {
                    let piece: Vec<char> = PIECES[next(PIECES.len())].chars().collect();
                    text.splice(at..at, piece);
                }
            }
        }
        let text: String = text.into_iter().collect();
        let found = check(&text);
        for one in &found.diagnostics {
            let after = (one.at.end_line, one.at.end_column) >= (one.at.line, one.at.column);
            assert!(after && one.at.line >= 1, "{text:?}: {one:?}");
        }
        language::render::human(&found.diagnostics, false);
    }
}
