//! Names that point at each other: dependencies, tasks, actions.

use super::Rule;

pub const RULES: &[Rule] = &[
    Rule {
        code: "E030",
        title: "an unknown dependency",
        text: "`depends_on` names steps of the same task. A step of another task is waited for by calling that \
               task in a step of `type: task`.",
        wrong: r#"tasks:
  hello:
    flow:
      build:
        script: make
      test:
        script: make test
        depends_on: [biuld]
"#,
        right: r#"tasks:
  hello:
    flow:
      build:
        script: make
      test:
        script: make test
        depends_on: [build]
"#,
    },
    Rule {
        code: "E031",
        title: "steps wait for each other",
        text: "Each of these steps waits for the next, and the last one for the first, so none could ever \
               begin. Every place is shown; one of the dependencies has to go.",
        wrong: r#"tasks:
  hello:
    flow:
      build:
        script: make
        depends_on: [test]
      test:
        script: make test
        depends_on: [build]
"#,
        right: r#"tasks:
  hello:
    flow:
      build:
        script: make
      test:
        script: make test
        depends_on: [build]
"#,
    },
    Rule {
        code: "E032",
        title: "a step waits for itself",
        text: "A step cannot wait for its own end. To try it again, use `retry`.",
        wrong: r#"tasks:
  hello:
    flow:
      build:
        script: make
      test:
        script: make test
        depends_on: [build, test]
"#,
        right: r#"tasks:
  hello:
    flow:
      build:
        script: make
      test:
        script: make test
        depends_on: [build]
"#,
    },
    Rule {
        code: "E033",
        title: "an unknown task",
        text: "A step of `type: task`, or a hook, names a task that no file of the folder defines.",
        wrong: r#"tasks:
  hello:
    flow:
      call:
        type: task
        task: helo
"#,
        right: r#"tasks:
  hello:
    flow:
      call:
        type: task
        task: other
  other:
    flow:
      greet:
        script: echo hello
"#,
    },
    Rule {
        code: "E034",
        title: "tasks call each other",
        text: "A task that calls itself, directly or through others, would never end. It is found over all \
               files, and every call is shown.",
        wrong: r#"# file: a.yaml
tasks:
  ping:
    flow:
      call: { type: task, task: pong }
# file: b.yaml
tasks:
  pong:
    flow:
      call: { type: task, task: ping }
"#,
        right: r#"# file: a.yaml
tasks:
  ping:
    flow:
      call: { type: task, task: pong }
# file: b.yaml
tasks:
  pong:
    flow:
      greet: { script: echo pong }
"#,
    },
    Rule {
        code: "E035",
        title: "an empty group",
        text: "A group in `depends_on` names at least one step. Nothing to wait for is said by leaving \
               `depends_on` out.",
        wrong: r#"tasks:
  hello:
    flow:
      build:
        script: make
      test:
        script: make test
        depends_on: { any: [] }
"#,
        right: r#"tasks:
  hello:
    flow:
      build:
        script: make
      test:
        script: make test
        depends_on: { any: [build] }
"#,
    },
    Rule {
        code: "E036",
        title: "an edge that accepts nothing",
        text: "`accept` lists the outcomes after which this step runs; with none of them it never would. Left \
               out it means `[completed]`, and `terminal` means any.",
        wrong: r#"tasks:
  hello:
    flow:
      build:
        script: make
      test:
        script: make test
        depends_on: [{ step: build, accept: [] }]
"#,
        right: r#"tasks:
  hello:
    flow:
      build:
        script: make
      test:
        script: make test
        depends_on: [{ step: build, accept: terminal }]
"#,
    },
    Rule {
        code: "E037",
        title: "an unknown action",
        text: "A step or hook names an action that no file of the folder defines under `actions:`.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        action: sya
actions:
  say:
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
        code: "E038",
        title: "nested too deep",
        text: "Groups in `depends_on` nest at most 10 deep, and tasks call tasks at most 10 levels deep.",
        wrong: r#"tasks:
  hello:
    flow:
      build:
        script: make
      test:
        script: make test
        depends_on: [[[[[[[[[[[[build]]]]]]]]]]]]
"#,
        right: r#"tasks:
  hello:
    flow:
      build:
        script: make
      test:
        script: make test
        depends_on: [build]
"#,
    },
];
