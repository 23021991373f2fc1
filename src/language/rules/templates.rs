//! What templates may speak of, and where.

use super::Rule;

pub const RULES: &[Rule] = &[
    Rule {
        code: "E040",
        title: "a template that cannot be read",
        text: "Texts with `{{ … }}` or `{% … %}` are Jinja templates. Braces that are meant for somebody else, \
               such as `docker --format`, stand between `{% raw %}` and `{% endraw %}`.",
        wrong: r#"tasks:
  hello:
    input:
      name: { type: string }
    flow:
      greet:
        script: echo hello
        env: { NAME: "{{ input.name" }
"#,
        right: r#"tasks:
  hello:
    input:
      name: { type: string }
    flow:
      greet:
        script: echo hello
        env: { NAME: "{{ input.name }}" }
"#,
    },
    Rule {
        code: "E041",
        title: "an unknown name in a template",
        text: "Templates know `input`, `steps`, `each`, `env`, `job`, `secret`, and at their places `hook`, \
               `body`, `headers` and `schedule`, and nothing else. An unknown name is found here and not in \
               the night when it is needed.",
        wrong: r#"tasks:
  hello:
    input:
      name: { type: string }
    flow:
      greet:
        script: echo hello
        env: { NAME: "{{ input.nmae }}" }
"#,
        right: r#"tasks:
  hello:
    input:
      name: { type: string }
    flow:
      greet:
        script: echo hello
        env: { NAME: "{{ input.name }}" }
"#,
    },
    Rule {
        code: "E042",
        title: "the output of a step that is not waited for",
        text: "A step sees the outputs of the steps that it depends on, directly or through others. Any other \
               may not have ended yet.",
        wrong: r#"tasks:
  hello:
    flow:
      build:
        script: echo "image=app" >> "$STEPWARD_OUTPUT"
      test:
        type: docker
        image: "{{ steps.build.output.image }}"
"#,
        right: r#"tasks:
  hello:
    flow:
      build:
        script: echo "image=app" >> "$STEPWARD_OUTPUT"
      test:
        type: docker
        image: "{{ steps.build.output.image }}"
        depends_on: [build]
"#,
    },
    Rule {
        code: "E043",
        title: "an unknown secret",
        text: "Secrets are named under `secrets:` with the place where the server finds them, and never \
               written into a file.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        script: ./deploy.sh
        env:
          TOKEN: "{{ secret.deploy }}"
"#,
        right: r#"tasks:
  hello:
    flow:
      greet:
        script: ./deploy.sh
        env:
          TOKEN: "{{ secret.deploy }}"
secrets:
  deploy: { env: STEPWARD_SECRET_DEPLOY }
"#,
    },
    Rule {
        code: "E044",
        title: "not available at this place",
        text: "The name exists, but not here: `secret` is only in texts that go to a worker and are stored \
               nowhere, `each` only in a loop, `hook` in the input of a hook, `body` and `headers` in that of \
               a webhook.",
        wrong: r#"tasks:
  hello:
    flow:
      greet:
        script: echo hello
        when: "{{ secret.deploy }}"
secrets:
  deploy: { env: STEPWARD_SECRET_DEPLOY }
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
        code: "E045",
        title: "an untrusted value in a script or command",
        text: "A value that somebody gives becomes part of the program here: a name such as `; rm -rf ~` would \
               be run. Read it from the environment (`\"$INPUT_NAME\"`), or make one quoted word of it with `| \
               sh`. In other languages `| json` writes a literal, and `| unsafe` says that it is meant. The same holds \
               for the text that an interpreter runs: what follows `-c` or `-e` in `command`, `entrypoint` and the \
               manifest of a pod, such as `command: [sh, -c, \"…\"]`. All other items of such a list are data. Kubernetes \
               replaces `$(NAME)` in a command of a manifest: there a variable counts as what its value is.",
        wrong: r#"tasks:
  hello:
    input:
      name: { type: string }
    flow:
      greet:
        script: echo {{ input.name }}
"#,
        right: r#"tasks:
  hello:
    input:
      name: { type: string }
    flow:
      greet:
        script: echo "$INPUT_NAME" {{ input.name | sh }}
"#,
    },
    Rule {
        code: "E046",
        title: "a secret input that would be stored",
        text: "The value of an input with `secret: true` is sealed. What stands here is stored and shown as it \
               is: messages, names of groups, items of loops, inputs of other tasks that are not secret \
               themselves. If one input is secret, `input` as a whole is secret too: name the inputs you need, \
               such as `input.channel`. The same holds for what an approval asks for with `secret: true`.",
        wrong: r#"tasks:
  hello:
    input:
      token: { type: string, secret: true }
    flow:
      ask:
        type: approval
        message: Use {{ input.token }}?
"#,
        right: r#"tasks:
  hello:
    input:
      token: { type: string, secret: true }
    flow:
      ask:
        type: approval
        message: Use the token?
"#,
    },
    Rule {
        code: "E047",
        title: "an unknown step in a template",
        text: "`steps.NAME` is a step of the same task. A name with `-` in it is written `steps[\"build-app\"]`, \
               since a minus in a template is a difference.",
        wrong: r#"tasks:
  hello:
    flow:
      build:
        script: echo "image=app" >> "$STEPWARD_OUTPUT"
      test:
        type: docker
        image: "{{ steps.biuld.output.image }}"
        depends_on: [build]
"#,
        right: r#"tasks:
  hello:
    flow:
      build:
        script: echo "image=app" >> "$STEPWARD_OUTPUT"
      test:
        type: docker
        image: "{{ steps.build.output.image }}"
        depends_on: [build]
"#,
    },
    Rule {
        code: "E048",
        title: "a filter that does not protect at its place",
        text: "`| sh` makes one quoted word for a shell. Inside quotes, comments, backquotes and here-documents, \
               or behind a `$`, its own quotes are letters or end those around it, and the value is run. `| json` \
               in a shell stands in double quotes, where `$(…)` is run; in a language that is no shell it is right, \
               and `| sh` is not. JSON is a whole literal and brings its own quotes: inside quotes, template \
               literals, regular expressions and block comments of a program its text may end what is around it. \
               Take away the quotes around it, or best read the value from the environment.",
        wrong: r#"tasks:
  hello:
    input:
      name: { type: string, required: true }
    flow:
      greet:
        script: echo "hello {{ input.name | sh }}"
"#,
        right: r#"tasks:
  hello:
    input:
      name: { type: string, required: true }
    flow:
      greet:
        script: echo "hello $INPUT_NAME" and {{ input.name | sh }}
"#,
    },
    Rule {
        code: "E049",
        title: "steps or secrets that are not named",
        text: "A job loads the steps and secrets that its templates name, and no others: `steps[input.which]`, \
               `secret[…]` and `{% set all = steps %}` would find nothing. Name each plainly, and choose between \
               them with `if`.",
        wrong: r#"tasks:
  hello:
    input:
      which: { type: string, required: true }
    flow:
      build:
        script: make
      tell:
        depends_on: [build]
        script: ./tell.sh
        env:
          STATUS: "{{ steps[input.which].status }}"
"#,
        right: r#"tasks:
  hello:
    flow:
      build:
        script: make
      tell:
        depends_on: [build]
        script: ./tell.sh
        env:
          STATUS: "{{ steps.build.status }}"
"#,
    },
    Rule {
        code: "E070",
        title: "an untrusted value decides what is run",
        text: "An image, an entrypoint, a program, a working folder, a language, an option of an interpreter and a variable \
               such as `LD_PRELOAD` or `PATH` decide which code is run. A value that people give may only decide that if its \
               input says what it may be: with `options`, with a `pattern` that begins with `^` and ends with `$`, or with a \
                type that is no text. A filter that gives a number, such as `int`, is enough as well. In the manifest of a pod \
                the same holds for every field but labels, names, resources, deadlines, arguments and values of variables, and a \
                reference `$(NAME)` counts as the value of its variable. Items of a list that is written in the file and outputs \
                of steps are trusted, but not what people enter at an approval of this job or of a child job. \
                The first item of `command` counts as a program if there is no `entrypoint`: to give a value to the program of \
                the image, name that program in `entrypoint` (in a pod: in `command`). \
               `| unsafe` says that whoever gives the value may run anything.",
        wrong: r#"tasks:
  hello:
    input:
      image: { type: string, required: true }
    flow:
      greet:
        type: docker
        image: "{{ input.image }}"
"#,
        right: r#"tasks:
  hello:
    input:
      image: { type: string, options: ["alpine:3.20", "alpine:3.21"], default: "alpine:3.21" }
      tag: { type: string, pattern: "^[0-9.]+$", default: "1.2" }
    flow:
      greet:
        type: docker
        image: "{{ input.image }}"
      test:
        type: docker
        image: "ghcr.io/org/app:{{ input.tag }}"
"#,
    },
    Rule {
        code: "E071",
        title: "a template that changes the structure of a manifest",
        text: "The manifest of a pod is read first, and then each of its texts is rendered by itself. So a value can never add \
               a key, a container or a right. A template therefore stands inside one quoted text: not in a key, not around \
               several lines, and not in place of the whole manifest. A text that is exactly one `{{ … }}` becomes \
               what Kubernetes expects there: text in `args`, `env`, labels and the like, and the type of its value elsewhere, so \
               a number may stand in quotes.",
        wrong: r#"tasks:
  hello:
    input:
      words: { type: string, required: true }
      loud: { type: boolean, default: false }
    flow:
      greet:
        type: pod
        manifest: |
          apiVersion: v1
          kind: Pod
          spec:
            containers:
              - name: main
                image: busybox:1.36
                {% if input.loud %}
                command: [echo, "{{ input.words | upper }}"]
                {% endif %}
"#,
        right: r#"tasks:
  hello:
    input:
      words: { type: string, required: true }
      loud: { type: boolean, default: false }
    flow:
      greet:
        type: pod
        manifest: |
          apiVersion: v1
          kind: Pod
          spec:
            containers:
              - name: main
                image: busybox:1.36
                command: [echo, "{% if input.loud %}{{ input.words | upper }}{% else %}{{ input.words }}{% endif %}"]
"#,
    },
];
