//! Single values: durations, time zones, images, what is given to whom.

use super::Rule;

pub const RULES: &[Rule] = &[
    Rule {
        code: "E021",
        title: "not a duration",
        text: "A duration is a number of seconds or has units: `90`, `30s`, `5m`, `1h30m`, `2d`. Each unit \
               stands once, the large before the small, without spaces and fractions.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        timeout: 5 minutes
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        timeout: 5m
"#,
    },
    Rule {
        code: "E022",
        title: "not a cron expression",
        text: "Five fields say minute, hour, day of the month, month and day of the week; six begin with the \
               seconds. Names (`MON`, `JAN`), lists, ranges, steps and words such as `@daily` are known. One \
               that never fires, such as 30 February, is refused.",
        wrong: r#"tasks:
  hello:
    timeout: 1h
    schedules:
      nightly: { cron: "0 25 * * *" }
    flow:
      greet:
        script: echo hello
"#,
        right: r#"tasks:
  hello:
    timeout: 1h
    schedules:
      nightly: { cron: "0 2 * * *" }
    flow:
      greet:
        script: echo hello
"#,
    },
    Rule {
        code: "E023",
        title: "not a time zone",
        text: "Time zones are named as in the IANA database: `Europe/Oslo`, `America/New_York`, `UTC`. \
               Abbreviations such as `CEST` say nothing about daylight saving and are not taken.",
        wrong: r#"tasks:
  hello:
    timeout: 1h
    schedules:
      nightly: { cron: "0 2 * * *", timezone: Europe/Olso }
    flow:
      greet:
        script: echo hello
"#,
        right: r#"tasks:
  hello:
    timeout: 1h
    schedules:
      nightly: { cron: "0 2 * * *", timezone: Europe/Oslo }
    flow:
      greet:
        script: echo hello
"#,
    },
    Rule {
        code: "E024",
        title: "not a tag",
        text: "A tag is what a worker offers and a step needs: letters, digits and `. _ : / - =`, at most 64. \
               A space in it is mostly two tags.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        tags: ["gpu large"]
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        tags: [gpu, large]
"#,
    },
    Rule {
        code: "E025",
        title: "not the name of a variable",
        text: "A variable of the environment is letters, digits and `_`, and does not begin with a digit, so \
               that every shell can read it. Names that begin with `STEPWARD_` are the worker's own.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        env:
          my-name: Ada
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        env:
          MY_NAME: Ada
"#,
    },
    Rule {
        code: "E026",
        title: "not the name of an image",
        text: "The name of an image is handed to docker or to a cluster: letters, digits and `. _ : / @ -`, a \
               letter or digit first.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        type: docker
        image: "alpine 3.20"
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        type: docker
        image: alpine:3.20
"#,
    },
    Rule {
        code: "E027",
        title: "not a regular expression",
        text: "The `pattern` of an input is a regular expression that is looked for in the value; `^` and `$` \
               bind it to the beginning and the end. Look-ahead and back-references are not known.",
        wrong: r#"tasks:
  hello:
    input:
      version: { type: string, pattern: '^(\d+' }
    flow:
      greet:
        script: echo hello
"#,
        right: r#"tasks:
  hello:
    input:
      version: { type: string, pattern: '^\d+$' }
    flow:
      greet:
        script: echo hello
"#,
    },
    Rule {
        code: "E028",
        title: "a script file that cannot be used",
        text: "`file:` names a text inside the workflows folder, relative to it: no `..`, no link that leads \
               out, at most 1 MiB, UTF-8. It is read when the workflows are loaded and kept with the job.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        file: ../outside.sh
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
"#,
    },
    Rule {
        code: "E029",
        title: "not the name of a program",
        text: "`language` is the program that reads the script: `sh`, `bash`, `python`, `node` or any other \
               that is found. One with arguments stands in a `#!` line at the beginning of the script.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        script: print("hello")
        language: python -u
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: print("hello")
        language: python
"#,
    },
    Rule {
        code: "E050",
        title: "a rule that breaks itself",
        text: "What an input says about itself does not fit together: a default that is not one of its \
               options, a minimum above the maximum, a pattern for a number.",
        wrong: r#"tasks:
  hello:
    input:
      channel: { type: string, options: [stable, beta], default: alpha }
    flow:
      greet:
        script: echo hello
"#,
        right: r#"tasks:
  hello:
    input:
      channel: { type: string, options: [stable, beta], default: beta }
    flow:
      greet:
        script: echo hello
"#,
    },
    Rule {
        code: "E051",
        title: "an input that is not taken",
        text: "The task or action that is called has no input of this name. What it takes is under its \
               `input:`.",
        wrong: r#"tasks:
  outer:
    flow:
      call:
        type: task
        task: inner
        input: { nmae: Ada }
  inner:
    input:
      name: { type: string }
    flow:
      greet:
        script: echo "$INPUT_NAME"
"#,
        right: r#"tasks:
  outer:
    flow:
      call:
        type: task
        task: inner
        input: { name: Ada }
  inner:
    input:
      name: { type: string }
    flow:
      greet:
        script: echo "$INPUT_NAME"
"#,
    },
    Rule {
        code: "E052",
        title: "a required input is not given",
        text: "The task or action needs this input, has no default for it, and is not given it. A schedule and \
               a webhook must give it as well, since nobody is there to be asked.",
        wrong: r#"tasks:
  outer:
    flow:
      call:
        type: task
        task: inner
  inner:
    input:
      name: { type: string, required: true }
    flow:
      greet:
        script: echo "$INPUT_NAME"
"#,
        right: r#"tasks:
  outer:
    flow:
      call:
        type: task
        task: inner
        input: { name: Ada }
  inner:
    input:
      name: { type: string, required: true }
    flow:
      greet:
        script: echo "$INPUT_NAME"
"#,
    },
    Rule {
        code: "E056",
        title: "a reserved key",
        text: "The server keeps the value of a secret input as an object with the key `$sealed`. Nobody else may \
               write this key: a sealed value opens only for the job that it was sealed for.",
        wrong: r#"tasks:
  outer:
    flow:
      call:
        type: task
        task: inner
        input: { settings: { $sealed: v1.AAAA } }
  inner:
    input:
      settings: { type: json }
    flow:
      greet:
        script: echo "$INPUT_SETTINGS"
"#,
        right: r#"tasks:
  outer:
    flow:
      call:
        type: task
        task: inner
        input: { settings: { sealed: v1.AAAA } }
  inner:
    input:
      settings: { type: json }
    flow:
      greet:
        script: echo "$INPUT_SETTINGS"
"#,
    },
    Rule {
        code: "E053",
        title: "an input that does not fit",
        text: "The value that is given does not fit the type or the rules of the input. Values that are \
               templates are checked when they are known.",
        wrong: r#"tasks:
  outer:
    flow:
      call:
        type: task
        task: inner
        input: { name: Ada }
  inner:
    input:
      name: { type: integer }
    flow:
      greet:
        script: echo "$INPUT_NAME"
"#,
        right: r#"tasks:
  outer:
    flow:
      call:
        type: task
        task: inner
        input: { name: 3 }
  inner:
    input:
      name: { type: integer }
    flow:
      greet:
        script: echo "$INPUT_NAME"
"#,
    },
];
