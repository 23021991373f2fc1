//! What is allowed and probably not meant.

use super::Rule;

pub const RULES: &[Rule] = &[
    Rule {
        code: "W101",
        title: "a tag that no worker offers",
        text: "No worker that is connected offers this tag. Such a step waits, and fails when nobody came in \
               time (`unmatched: wait` lets it wait for ever).",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        tags: [tpu]
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        tags: [gpu]
"#,
    },
    Rule {
        code: "W102",
        title: "a step that never runs",
        text: "`when: false` and a loop over nothing are always skipped.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        when: false
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        when: "{{ job.attempt == 1 }}"
"#,
    },
    Rule {
        code: "W103",
        title: "a schedule without a timeout",
        text: "Nobody watches what a schedule starts. Without a `timeout` of its own the task may run as long \
               as the server's default allows, and with `overlap: skip` the next fires are skipped meanwhile.",
        wrong: r#"tasks:
  hello:
    schedules:
      nightly: { cron: "0 2 * * *" }
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
        code: "W104",
        title: "a step's timeout above its task's",
        text: "The whole job ends at the task's timeout, so this one is never reached.",
        wrong: r#"tasks:
  hello:
    timeout: 10m
    flow:
      greet:
        script: echo hello
        timeout: 1h
"#,
        right: r#"tasks:
  hello:
    timeout: 1h
    flow:
      greet:
        script: echo hello
        timeout: 10m
"#,
    },
    Rule {
        code: "W105",
        title: "a literal that looks like a secret",
        text: "Everybody who sees this file, and everybody who sees the job, can read it. Name it under \
               `secrets:` with the place where the server finds it.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        script: ./deploy.sh
        env:
          DB_PASSWORD: correct-horse-battery
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: ./deploy.sh
        env:
          DB_PASSWORD: "{{ secret.db }}"
secrets:
  db: { env: DB_PASSWORD }
"#,
    },
    Rule {
        code: "W106",
        title: "a word that older YAML takes for true or false",
        text: "`yes`, `no`, `on` and `off` are texts in YAML 1.2, and true or false for readers of YAML 1.1, \
               so the file means different things to different tools. Quotes make it a text for all of them.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        env:
          COUNTRY: no
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        env:
          COUNTRY: "no"
"#,
    },
    Rule {
        code: "W107",
        title: "a number that begins with a zero",
        text: "`012` is twelve in YAML 1.2 and ten in YAML 1.1. In an environment it stays the text `012`; \
               quotes say so to every reader.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        env:
          MODE: 0755
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        env:
          MODE: "0755"
"#,
    },
    Rule {
        code: "W108",
        title: "a schedule of every second",
        text: "Six fields begin with the seconds, so six stars fire every second. Five stars fire every \
               minute.",
        wrong: r#"tasks:
  hello:
    timeout: 1h
    schedules:
      often: { cron: "* * * * * *" }
    flow:
      greet:
        script: echo hello
"#,
        right: r#"tasks:
  hello:
    timeout: 1h
    schedules:
      often: { cron: "* * * * *" }
    flow:
      greet:
        script: echo hello
"#,
    },
    Rule {
        code: "W109",
        title: "a retry that never tries again",
        text: "`max_attempts` counts all tries, the first one too. With 1 the other keys of `retry` say \
               nothing.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        retry: { max_attempts: 1, delay: 10s }
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        retry: { max_attempts: 2, delay: 10s }
"#,
    },
    Rule {
        code: "W115",
        title: "a secret on a command line",
        text: "Every user of the worker's machine can read command lines with `ps`, and the container engine keeps them. Pass the \
               secret by `env`, and let the program read it from there. In a pod `$(NAME)` puts the variable on the command line.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        type: docker
        image: app
        command: [deploy, "--token={{ secret.deploy }}"]
secrets:
  deploy: { env: STEPWARD_SECRET_DEPLOY }
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        type: docker
        image: app
        command: [deploy]
        env:
          TOKEN: "{{ secret.deploy }}"
secrets:
  deploy: { env: STEPWARD_SECRET_DEPLOY }
"#,
    },
];
