//! Which keys there are, what they hold, what things are called.

use super::Rule;

pub const RULES: &[Rule] = &[
    Rule {
        code: "E010",
        title: "a key is missing",
        text: "Something cannot work without this key: a task without its `flow`, a step that does not say \
               what it does, a schedule without its `cron`.",
        wrong: r#"tasks:
  hello:
    description: Says hello
"#,
        right: r#"tasks:
  hello:
    description: Says hello
    flow:
      greet:
        script: echo hello
"#,
    },
    Rule {
        code: "E011",
        title: "a value of the wrong type",
        text: "The key is right, its value is not of the kind that it holds: a list where a text is expected, \
               a text where a map is. Words such as `yes` and `on` are texts in YAML 1.2; write `true`.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        script: [echo, hello]
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
"#,
    },
    Rule {
        code: "E012",
        title: "an unknown key",
        text: "Every key is known; one that is not is refused, since a key that is silently left out is found \
               only when something goes wrong. Mostly it is a typing error.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        timout: 5m
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
        code: "E013",
        title: "a key that this type does not have",
        text: "The key exists, but steps of this type do not have it: a `docker` step has a `command` and no \
               `script`, a `task` step has no `tags` because the server itself carries it out.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        type: docker
        image: alpine:3.20
        script: echo hello
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        type: docker
        image: alpine:3.20
        command: [echo, hello]
"#,
    },
    Rule {
        code: "E014",
        title: "two keys that exclude each other",
        text: "Only one of the two can be meant: a script is written here or in a file, a secret is in the \
               environment or in a file.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        file: hello.sh
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
"#,
    },
    Rule {
        code: "E015",
        title: "a word of another tool",
        text: "GitHub Actions, GitLab CI, Dagu and Strøm have other words for much of what is here. The help \
               says what it is called in a Stepward file. `stepward import` converts crontabs and Strøm \
               workspaces.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        run: echo hello
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
"#,
    },
    Rule {
        code: "E016",
        title: "an unknown word",
        text: "The key takes one of a few words, and this is not one of them.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        unmatched: waits
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        unmatched: wait
"#,
    },
    Rule {
        code: "E017",
        title: "a number out of bounds",
        text: "Everything has a bound: a step is tried at most 100 times, a loop runs at least one item at a \
               time, a timeout is more than nothing and at most ten years.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        retry: { max_attempts: 0 }
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        retry: { max_attempts: 3 }
"#,
    },
    Rule {
        code: "E019",
        title: "something is empty",
        text: "A task without steps, a script without text: there is nothing to do.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        script: ""
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
"#,
    },
    Rule {
        code: "E020",
        title: "not a name",
        text: "Names are typed, stand in addresses and in logs. They hold no control characters and none of `[ \
               ] / @`, are at most 128 bytes long, and do not begin with `hook.`. Inputs are letters, digits, \
               `_` and `-`.",
        wrong: r#"tasks:
  hello/world:
    flow:
      greet:
        script: echo hello
"#,
        right: r#"tasks:
  hello-world:
    flow:
      greet:
        script: echo hello
"#,
    },
    Rule {
        code: "E055",
        title: "a key that needs another",
        text: "`max_parallel` bounds how many items of a loop run at once; without `for_each` there is no \
               loop.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        max_parallel: 2
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: echo "$EACH_ITEM"
        for_each: [hello, world]
        max_parallel: 2
"#,
    },
    Rule {
        code: "E060",
        title: "a name is taken",
        text: "All files of the folder are read together, so a task, an action, a secret or a webhook has its \
               name once in all of them. Both places are shown.",
        wrong: r#"# file: a.yaml
tasks:
  hello:
    flow:
      greet:
        script: echo hello
# file: b.yaml
tasks:
  hello:
    flow:
      greet:
        script: echo hello
"#,
        right: r#"# file: a.yaml
tasks:
  hello:
    flow:
      greet:
        script: echo hello
# file: b.yaml
tasks:
  hello-again:
    flow:
      greet:
        script: echo hello
"#,
    },
    Rule {
        code: "E062",
        title: "more than is allowed",
        text: "Definitions have bounds: 10,000 steps in a task, 10,000 items in a loop, 100 tags, 1 MiB of \
               script, 128 variables, 256 MiB of text in all steps with the actions they use. They keep one file from stopping the server for all others.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        tags: [t0, t1, t2, t3, t4, t5, t6, t7, t8, t9, t10, t11, t12, t13, t14, t15, t16, t17, t18, t19, t20, t21, t22, t23, t24, t25, t26, t27, t28, t29, t30, t31, t32, t33, t34, t35, t36, t37, t38, t39, t40, t41, t42, t43, t44, t45, t46, t47, t48, t49, t50, t51, t52, t53, t54, t55, t56, t57, t58, t59, t60, t61, t62, t63, t64, t65, t66, t67, t68, t69, t70, t71, t72, t73, t74, t75, t76, t77, t78, t79, t80, t81, t82, t83, t84, t85, t86, t87, t88, t89, t90, t91, t92, t93, t94, t95, t96, t97, t98, t99, t100]
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
        code: "E065",
        title: "the check took too long",
        text: "A server that checks files for somebody stops after 2 seconds and reports what it has found so far, so that nobody \
               keeps others waiting. Only files that are very large or very intricate take as long. Split the files, or run \
               `stepward validate` on your machine: there a check may take as long as it needs.",
        wrong: r#"# a file of many thousands of tasks, sent to POST /api/validate
tasks:
  hello:
    flow:
      greet:
        script: echo hello
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
"#,
    },
    Rule {
        code: "E072",
        title: "a secret from a place that is not allowed",
        text: "A server takes secrets of workflow files only from the places that its setting `secrets` lists: files below \
               `allow_files`, credentials that systemd gives to the server, and variables whose names begin with `allow_env_prefix`. Links \
               are followed first. Files of the \
               server itself are always refused. `stepward dev` and `stepward run` without a server allow what you can read, \
               and `stepward validate` does not know the server's setting.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        script: ./deploy.sh
        env:
          TOKEN: "{{ secret.deploy }}"
secrets:
  deploy: { file: /home/me/deploy.key }
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: ./deploy.sh
        env:
          TOKEN: "{{ secret.deploy }}"
secrets:
  deploy: { file: /etc/stepward/secrets/deploy.key }
"#,
    },
    Rule {
        code: "E073",
        title: "a secret that is too short",
        text: "Logs show `***` in the place of a secret. Lines of fewer than 6 bytes are not masked, because that would hide \
               half of every log, so a server does not accept a secret that has no longer line. Blanks around a line do not count.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        script: ./deploy.sh
        env:
          PIN: "{{ secret.pin }}"
secrets:
  # The file holds 4711.
  pin: { file: /etc/stepward/secrets/pin }
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: ./deploy.sh
        env:
          PIN: "{{ secret.pin }}"
secrets:
  # The file holds 4711-0815-2342.
  pin: { file: /etc/stepward/secrets/pin }
"#,
    },
];
