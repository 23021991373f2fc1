//! How a file is written: YAML itself, sizes, encoding.

use super::Rule;

pub const RULES: &[Rule] = &[
    Rule {
        code: "E001",
        title: "the file is not YAML",
        text: "The file cannot be read as YAML from this place on, so nothing behind it was looked at. Most \
               often a quote or a bracket is not closed, a text with `: ` in it has no quotes, or a line is \
               indented by one space too many.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        script: "echo hello
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
"#,
    },
    Rule {
        code: "E002",
        title: "a tab in the indentation",
        text: "YAML indents with spaces alone: how wide a tab is differs from reader to reader, so it is not \
               allowed there. Let your editor write spaces.",
        wrong: "tasks:\n  hello:\n\t  flow:\n\t    greet:\n\t      script: echo hello\n",
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
"#,
    },
    Rule {
        code: "E003",
        title: "a key is there twice",
        text: "A map has each key once. Readers of YAML differ in which of two they take, so we take neither. \
               This is also said of two steps or tasks of one name in one file.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        script: echo again
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: |
          echo hello
          echo again
"#,
    },
    Rule {
        code: "E004",
        title: "several documents in one file",
        text: "A workflow file is one document. Every `*.yaml` of the folder is read, so a second document is \
               a second file.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
---
tasks:
  again:
    flow:
      greet:
        script: echo again
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
"#,
    },
    Rule {
        code: "E005",
        title: "an anchor, an alias or a merge key",
        text: "Anchors (`&name`), aliases (`*name`) and merge keys (`<<`) are refused: a few lines of them can \
               stand for billions of values, and whoever reads a step should see all of it. What several steps \
               share is a named action.",
        wrong: r#"tasks:
  hello:
    flow:
      greet: &same
        script: echo hello
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        action: say
actions:
  say:
    script: echo hello
"#,
    },
    Rule {
        code: "E006",
        title: "a YAML tag",
        text: "Tags such as `!!str` or `!include` change what a value is. Here every key says itself what it \
               expects; a text that looks like a number is put in quotes.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        env:
          VERSION: !!str 1.10
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        env:
          VERSION: "1.10"
"#,
    },
    Rule {
        code: "E007",
        title: "the file cannot be read",
        text: "The file or folder is not there, is not allowed to be read, is longer than 4 MiB, or is not \
               UTF-8. A large file is refused before it is read. A link in the workflows folder has to lead to \
               a file of that folder, because everybody who may look at workflows sees the text, and files of \
               the server itself are never read.",
        wrong: r#"# file: not-utf8.yaml
tasks: {}
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
"#,
    },
    Rule {
        code: "E008",
        title: "too much or too deep",
        text: "Values are nested more than 64 deep, or the file holds more than 500,000 of them. Nobody writes \
               that by hand; the bound keeps a hostile file from costing memory.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        script: echo
        input:
          deep: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
"#,
    },
    Rule {
        code: "E009",
        title: "a NUL byte",
        text: "The file holds a NUL byte, which no text has. It was probably saved as UTF-16, or is not a text \
               at all.",
        wrong: "tasks:\0 {}\n",
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
"#,
    },
    Rule {
        code: "E064",
        title: "a template without quotes",
        text: "YAML reads braces as a map, so a value that begins with `{{` must be in quotes. Inside a longer \
               text, or under `|`, they are not needed.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        workdir: {{ job.id }}
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        workdir: "{{ job.id }}"
"#,
    },
];
