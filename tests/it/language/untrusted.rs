//! Untrusted values: what may stand where, and what an upgrade from version 0.1 tolerates.

use std::path::Path;

use stepward::domain::task::Rules;
use stepward::language::{Library, render};
use tempfile::TempDir;

use super::{check, codes};

/// A task with these inputs and this step.
fn task(inputs: &str, step: &str) -> String {
    format!("tasks:\n  t:\n    input: {{ {inputs} }}\n    flow:\n      s: {{ {step} }}\n")
}

const FREE: &str = "x: { type: string, required: true }";

#[test]
fn a_value_may_decide_what_runs_if_its_input_says_what_it_may_be() {
    let image = "type: docker, image: \"{{ input.x }}\"";
    for (inputs, expected) in [
        (FREE, vec!["E070"]),
        ("x: { type: text, required: true }", vec!["E070"]),
        ("x: { type: json, required: true }", vec!["E070"]),
        ("x: { type: string, multiple: true }", vec!["E070"]),
        (
            "x: { type: string, pattern: '[a-z]+', default: a }",
            vec!["E070"],
        ),
        (
            "x: { type: string, pattern: '^a|b$', default: a }",
            vec!["E070"],
        ),
        (
            "x: { type: string, pattern: '(?x)^a # $', default: a }",
            vec!["E070"],
        ),
        (
            "x: { type: string, pattern: '^[a-z]+$', default: a }",
            vec![],
        ),
        ("x: { type: string, options: [a, b], default: a }", vec![]),
        ("x: { type: integer, default: 1 }", vec![]),
    ] {
        let checked = check(&task(inputs, image));
        let shown = render::human(&checked.diagnostics, false);
        assert_eq!(codes(&checked), expected, "{inputs}\n{shown}");
    }
}

#[test]
fn arguments_are_data_and_trusted_values_decide() {
    for step in [
        "type: docker, image: a, command: [echo, \"{{ input.x }}\"]",
        "type: docker, image: a, command: [sh, -c, 'echo \"$1\"', name, \"{{ input.x }}\"]",
        "type: docker, image: a, command: [sh, -c, \"echo {{ input.x | sh }}\"]",
        "type: docker, image: a, command: [python, train.py, \"{{ input.x }}\"]",
        "type: docker, image: a, entrypoint: [/app], command: [\"--name={{ input.x }}\"]",
        "type: docker, image: a, entrypoint: [/app], command: [\"{{ input.x }}\"]",
        "type: docker, image: ghcr.io/org/job:1, command: [\"--name={{ input.x }}\"]",
        "type: docker, image: a, command: [scp, --, \"{{ input.x }}\", 'h:/b']",
        "type: docker, image: a, command: [ssh, --, \"{{ input.x }}\", uptime]",
        "type: docker, image: a, command: [npm, run, watch, --, \"--env={{ input.x }}\"]",
        "type: docker, image: a, command: [kubectl, -n, ssh, get, pods, \"{{ input.x }}\"]",
        "type: docker, image: a, command: [docker, run, --name, node, -e, \"A={{ input.x }}\", img]",
        "script: 'true', env: { ENV: \"{{ input.x }}\" }",
        "type: docker, image: \"{{ input.x | unsafe }}\"",
        "type: docker, image: \"{{ 'a' if input.x == 'b' else 'c' }}\"",
        "type: docker, for_each: [a, b], image: \"app:{{ each.item }}\"",
        "type: docker, for_each: [sh, bash], image: a, command: [\"{{ each.item }}\", build.sh]",
        "type: docker, image: \"app:{{ each.index }}\", for_each: \"{{ [input.x] }}\"",
        "type: docker, input: { y: 'app:1' }, image: \"{{ input.y }}\"",
        "script: 'true', env: { NODE_ENV: \"{{ input.x }}\", LD_PRELOAD: /lib/a.so }",
        "script: 'true', env: { PATH: \"{{ env.TOOLS }}:/bin\", TOOLS: /opt }",
        "script: 'true', workdir: \"/srv/{{ job.id }}\"",
    ] {
        let checked = check(&task(FREE, step));
        let shown = render::human(&checked.diagnostics, false);
        assert!(checked.diagnostics.is_empty(), "{step}\n{shown}");
    }
}

#[test]
fn untrusted_values_are_followed_to_where_they_decide() {
    for step in [
        "type: docker, image: \"{{ each.item }}\", for_each: \"{{ [input.x] }}\"",
        "type: docker, image: \"{{ each.item }}\", for_each: [a, \"{{ input.x }}\"]",
        "type: docker, image: \"{{ env.Y }}\", env: { Y: \"{{ input.x }}\" }",
        "type: docker, image: \"{% set y = input.x %}{{ y | upper }}\"",
        "type: docker, image: \"{{ input | map(attribute='x') | first }}\"",
        "type: docker, image: \"{{ input.y }}\", input: { y: \"{{ input.x }}\" }",
        "type: docker, image: a, command: [\"{{ input.x }}\"]",
        "type: docker, image: a, command: \"{{ input.x }}\"",
        "type: docker, image: a, command: [env, \"LD_PRELOAD={{ input.x }}\", tool]",
        "type: docker, image: a, command: [sh, \"{{ input.x }}\", data]",
        "type: docker, image: a, entrypoint: \"{{ input.x }}\"",
        "runner: docker, image: \"{{ input.x }}\", script: 'true'",
        "script: 'true', language: \"{{ input.x }}\"",
        "script: 'true', workdir: \"{{ input.x }}\"",
        "script: 'true', env: { BASH_ENV: \"{{ input.x }}\" }",
        "script: 'true', env: { HOME: \"{{ input.x }}\" }",
        "script: 'true', env: { DOCKER_HOST: \"{{ input.x }}\" }",
        "script: 'true', env: { NPM_CONFIG_SCRIPT_SHELL: \"{{ input.x }}\" }",
        "type: docker, image: a, command: [bash, --rcfile, \"{{ input.x }}\", build.sh]",
        "type: docker, image: a, command: [sudo, --user, root, \"{{ input.x }}\"]",
        "type: docker, image: a, command: [make, \"VERSION={{ input.x }}\"]",
        "type: docker, image: a, entrypoint: '', command: [\"{{ input.x }}\", id]",
        "type: docker, image: a, entrypoint: [/init], command: [env, \"{{ input.x }}\"]",
        "script: 'true', env: { TF_CLI_ARGS_init: \"{{ input.x }}\" }",
        "script: 'true', env: { AWS_PAGER: \"{{ input.x }}\" }",
        "script: 'true', env: { JAVA_HOME: \"{{ input.x }}\" }",
        "type: docker, image: a, command: [deno, run, \"{{ input.x }}\"]",
        "type: docker, image: a, command: [npx, \"{{ input.x }}\"]",
        "type: docker, image: a, command: [java, -cp, \"{{ input.x }}\", Main]",
    ] {
        let checked = check(&task(FREE, step));
        assert_eq!(codes(&checked), ["E070"], "{step}");
    }
}

#[test]
fn an_option_with_its_value_in_the_next_word_hides_no_code() {
    let free = "x: { type: string, required: true }, o: { type: string, options: [sh, tool], default: sh }";
    for command in [
        "bash, --rcfile, /etc/x, -c, \"{{ input.x }}\"",
        "node, --require, a.js, -e, \"{{ input.x }}\"",
        "awk, --field-separator, ':', \"{{ input.x }}\"",
        "sed, --line-length, '5', \"{{ input.x }}\"",
        "sudo, --user, root, \"{{ input.o }}\", -c, \"{{ input.x }}\"",
        "nice, --adjustment, '5', \"{{ input.o }}\", -c, \"{{ input.x }}\"",
        "xargs, --replace, R, \"{{ input.o }}\", -c, \"{{ input.x }}\"",
        "kubectl, exec, pod, --, \"{{ input.o }}\", -c, \"{{ input.x }}\"",
    ] {
        let step = format!("type: docker, image: a, command: [{command}]");
        assert_eq!(codes(&check(&task(free, &step))), ["E045"], "{command}");
    }
    for command in [
        "python3, script.py, --name, \"{{ input.x }}\"",
        "bash, --rcfile, /etc/x, build.sh, \"{{ input.x }}\"",
        "sudo, --user, root, tool, \"{{ input.x }}\"",
    ] {
        let step = format!("type: docker, image: a, command: [{command}]");
        let checked = check(&task(free, &step));
        assert_eq!(codes(&checked), Vec::<&str>::new(), "{command}");
    }
}

#[test]
fn a_program_that_another_one_starts_hides_no_code() {
    for step in [
        "command: [docker, run, --entrypoint, sh, img, -c, \"echo {{ input.x }}\"]",
        "command: [docker, compose, run, --entrypoint=/bin/bash, web, -lc, \"{{ input.x }}\"]",
        "command: [npx, -c, \"{{ input.x }}\"]",
        "command: [npm, exec, -c, \"{{ input.x }}\"]",
        "command: [nix-shell, --run, \"{{ input.x }}\"]",
        "command: [nodemon, --exec, \"{{ input.x }}\"]",
        "command: [tar, -cf, a.tar, --to-command, \"{{ input.x }}\"]",
        "command: [git, submodule, foreach, \"{{ input.x }}\"]",
        "command: [crystal, eval, \"{{ input.x }}\"]",
        "command: [runuser, -u, app, --, awk, \"{{ input.x }}\"]",
        "entrypoint: '', command: [awk, \"{{ input.x }}\"]",
        "entrypoint: [docker-entrypoint.sh], command: [ssh, h, \"{{ input.x }}\"]",
        "entrypoint: [/init], command: [awk, \"{{ input.x }}\"]",
    ] {
        let step = format!("type: docker, image: a, {step}");
        assert_eq!(codes(&check(&task(FREE, &step))), ["E045"], "{step}");
    }
}

#[test]
fn a_variable_that_kubernetes_puts_into_code_is_code() {
    let pod = |env: &str, code: &str| {
        let container = format!("name: a, image: b, env: [{env}], command: [sh, -c, '{code}']");
        let spec = format!("spec: {{ containers: [{{ {container} }}] }}");
        let tree = format!("apiVersion: v1, kind: Pod, {spec}");
        let step = "type: pod, env: { OF_STEP: \"{{ input.x }}\" }";
        let as_tree = task(FREE, &format!("{step}, manifest: {{ {tree} }}"));
        let text = serde_json::Value::from(format!("{{ {tree} }}")).to_string();
        let as_text = task(FREE, &format!("{step}, manifest: {text}"));
        let found = codes(&check(&as_tree));
        assert_eq!(found, codes(&check(&as_text)), "{env} {code}");
        found
    };
    let own = "{ name: OWN, value: \"{{ input.x }}\" }";
    for code in [
        "echo $(OWN)",
        "echo $(OF_STEP)",
        "echo $(INPUT_X)",
        "echo $(date) $(OWN)",
    ] {
        assert_eq!(pod(own, code), ["E045"], "{code}");
    }
    for code in ["echo \"$OWN\" $(date)", "echo $$(OWN)"] {
        assert_eq!(pod(own, code), Vec::<&str>::new(), "{code}");
    }
    // A fixed value may be part of the program.
    let fixed = "{ name: OWN, value: fixed }";
    assert_eq!(pod(fixed, "echo $(OWN)"), Vec::<&str>::new());
}

/// The specification of a pod with one container that has these keys.
fn container(keys: &str) -> String {
    let spec = format!("spec: {{ containers: [{{ name: a, image: b, {keys} }}] }}");
    format!("type: pod, manifest: {{ apiVersion: v1, kind: Pod, {spec} }}")
}

#[test]
fn a_reference_is_followed_to_the_variables_of_the_step_and_its_task() {
    let input = "x: { type: string, required: true }, my-tool: { type: string, required: true }, \
                 fixed: { type: string, options: [a, b], default: a }";
    let check_step = |step: &str| {
        let env = "    env: { TASKVAR: \"{{ input.x }}\", SHELLVAR: sh, PLAIN: a }\n    flow:";
        codes(&check(&task(input, step).replace("    flow:", env)))
    };
    for keys in [
        "env: [{ name: LD_PRELOAD, value: $(INPUT_X) }]",
        "env: [{ name: A, value: \"{{ input.x }}\" }, { name: LD_PRELOAD, value: $(A) }]",
        "env: [{ name: PATH, value: '$(TASKVAR):/bin' }]",
        "command: [$(TASKVAR)]",
        "command: [$(INPUT_MY_TOOL)]",
        "volumeMounts: [{ name: v, mountPath: /v, subPathExpr: $(INPUT_X) }]",
    ] {
        assert_eq!(check_step(&container(keys)), ["E070"], "{keys}");
    }
    for keys in [
        "command: [sh, -c, 'echo $(TASKVAR)']",
        "command: [sh, -c, 'echo $(INPUT_MY_TOOL)']",
        "command: [$(SHELLVAR), -c, \"echo {{ input.x }}\"]",
    ] {
        assert_eq!(check_step(&container(keys)), ["E045"], "{keys}");
    }
    for keys in [
        "command: [$(PLAIN), $(TASKVAR), $(INPUT_X)]",
        "command: [$(INPUT_FIXED)]",
        "command: [$(EACH_ITEM)]",
        "env: [{ name: WORDS, value: '$(TASKVAR)' }, { name: PATH, value: '$(PLAIN):$(OTHER)' }]",
        "command: [sh, -c, 'echo $(PLAIN) $(INPUT_OTHER) $(TASKVARS)']",
    ] {
        assert_eq!(check_step(&container(keys)), Vec::<&str>::new(), "{keys}");
    }
    let item = container("command: [$(EACH_ITEM)]");
    for (items, expected) in [("[a, b]", vec![]), ("\"{{ [input.x] }}\"", vec!["E070"])] {
        let step = format!("for_each: {items}, {item}");
        assert_eq!(check_step(&step), expected, "{items}");
    }
}

#[test]
fn a_reference_in_an_action_is_followed_to_the_steps_that_use_it() {
    let with = |step: &str, keys: &str| {
        let action = format!("actions:\n  run: {{ {} }}\n", container(keys));
        codes(&check(&format!("{}{action}", task(FREE, step))))
    };
    let choice = "command: [$(STEPVAR)]";
    let code = "command: [sh, -c, 'echo $(STEPVAR)']";
    let item = "command: [$(EACH_ITEM)]";
    let varying = "action: run, env: { STEPVAR: \"{{ input.x }}\" }";
    assert_eq!(with(varying, choice), ["E070"]);
    assert_eq!(with(varying, code), ["E045"]);
    let looped = "action: run, for_each: \"{{ [input.x] }}\"";
    assert_eq!(with(looped, item), ["E070"]);
    for step in ["action: run, env: { STEPVAR: fixed }", "action: run"] {
        for keys in [choice, code, item] {
            assert_eq!(with(step, keys), Vec::<&str>::new(), "{step} {keys}");
        }
    }
}

/// A value may decide which variable Kubernetes reads only if its input says what it may be.
#[test]
fn a_value_in_the_name_of_a_reference_is_a_choice() {
    let free =
        "y: { type: string, required: true }, o: { type: string, options: [A, B], default: A }";
    let pod = |container: &str| {
        let spec = format!("spec: {{ containers: [{{ name: a, image: b, {container} }}] }}");
        task(free, &format!("type: pod, manifest: {{ {spec} }}"))
    };
    for container in [
        "command: [echo, \"$(S{{ input.y }})\"]",
        "command: [echo, \"$({{ input.y }})\"]",
        // The value may have the end of the reference.
        "command: [echo, \"$(S{{ input.y }}\"]",
        "command: [echo, \"$({{ input.o }}{{ input.y | upper }})\"]",
        "command: [echo, \"$({% if input.o %}{{ input.y }}{% endif %})\"]",
        "command: [echo, \"{% set z = input.y %}$$$({{ z }})\"]",
        "env: [{ name: OUT, value: \"$({{ input.y }})\" }]",
    ] {
        let checked = check(&pod(container));
        let shown = render::human(&checked.diagnostics, false);
        assert_eq!(codes(&checked), ["E070"], "{container}\n{shown}");
    }
    for container in [
        "command: [echo, \"$(S{{ input.o }})\"]",
        "command: [echo, \"$(S{{ input.y | unsafe }})\"]",
        "command: [echo, \"$$(S{{ input.y }})\"]",
        "command: [echo, \"$(S) {{ input.y }} $(T)\"]",
        "command: [echo, \"${{ input.y }})\"]",
        "env: [{ name: OUT, value: \"{{ input.y }} $(A)\" }]",
    ] {
        let checked = check(&pod(container));
        let shown = render::human(&checked.diagnostics, false);
        assert_eq!(codes(&checked), Vec::<&str>::new(), "{container}\n{shown}");
    }
}

#[test]
fn an_answer_in_a_child_job_is_followed_to_the_parent() {
    let with = |image: &str, looped: &str, answer: &str| {
        let text = format!(
            "tasks:
  inner: {{ flow: {{ ask: {{ type: approval, input: {{ img: {{ type: string{answer} }} }} }} }} }}
  outer:
    flow:
      before: {{ type: approval, input: {{ img: {{ type: string }} }} }}
      call: {{ depends_on: [before], type: task, task: inner }}
      made: {{ script: 'true' }}
  main:
    flow:
      c: {{ type: task, task: inner{looped} }}
      o: {{ type: task, task: outer{looped} }}
      run: {{ depends_on: [c, o], type: docker, image: \"{{{{ {image} }}}}\" }}
"
        );
        codes(&check(&text))
    };
    for image in [
        "steps.c.output.ask.img",
        "steps.c.output | tojson",
        "steps.o.output.call.ask.img",
        "steps.o.output['call'].ask['img']",
        "steps.o.output",
    ] {
        assert_eq!(with(image, "", ""), ["E070"], "{image}");
        let restricted = with(image, "", ", options: [a, b]");
        assert_eq!(restricted, Vec::<&str>::new(), "{image}");
    }
    for image in [
        "steps.c.output[0].ask.img",
        "steps.o.output[1].call.ask.img",
        "steps.c.output | map(attribute='ask.img') | first",
    ] {
        let found = with(image, ", for_each: [1, 2]", "");
        assert_eq!(found, ["E070"], "{image}");
    }
    for image in [
        "steps.o.output.made.image",
        "steps.o.output.before.img",
        "steps.c.status",
    ] {
        assert_eq!(with(image, "", ""), Vec::<&str>::new(), "{image}");
    }
}

/// Who rejects a step writes its error, and who approves one that asks for nothing may give anything.
#[test]
fn texts_of_people_at_an_approval_are_untrusted() {
    let with = |step: &str| {
        let text = format!(
            "tasks:
  t:
    flow:
      ask: {{ type: approval, message: m, input: {{ a: {{ type: string }}, o: {{ type: string, options: [a, b] }} }} }}
      plain: {{ type: approval, message: m }}
      build: {{ script: 'true' }}
      child: {{ type: task, task: child }}
      s: {{ depends_on: [ask, plain, build, child], {step} }}
  child: {{ flow: {{ plain: {{ type: approval, message: m }} }} }}
"
        );
        let checked = check(&text);
        codes(&checked)
    };
    for value in [
        "steps.ask.error",
        "steps.ask['error'] | upper",
        "steps.build.error",
        "steps.child.error",
        "steps.ask",
        "steps.plain",
        "steps.plain.output",
        "steps.plain.output.image",
        "steps.child.output.plain.image",
        "steps.child.output",
        "steps.build",
        "steps.child",
        "[steps.build] | map(attribute='error') | join",
    ] {
        let image = format!("type: docker, image: \"{{{{ {value} }}}}\"");
        assert_eq!(with(&image), ["E070"], "{value}");
        let variable = format!("script: 'true', env: {{ LD_PRELOAD: \"{{{{ {value} }}}}\" }}");
        assert_eq!(with(&variable), ["E070"], "{value}");
    }
    for value in [
        "steps.ask.output.o",
        "steps.ask.status",
        "steps.build.output.image",
        "steps.ask.error | length",
        "steps.plain.output.image | unsafe",
    ] {
        let image = format!("type: docker, image: \"{{{{ {value} }}}}\"");
        assert_eq!(with(&image), Vec::<&str>::new(), "{value}");
    }
    let aliased = "type: docker, image: \"{% set s = steps.build %}{{ s.error }}\"";
    assert_eq!(with(aliased), ["E070"]);
    let data = "type: docker, image: a, command: [echo, \"{{ steps.ask.error }}\"]";
    assert_eq!(with(data), Vec::<&str>::new());
    let code = "type: docker, image: a, command: [sh, -c, \"echo {{ steps.ask.error }}\"]";
    assert_eq!(with(code), ["E045"]);
}

#[test]
fn tasks_that_call_each_other_have_no_answers_without_end() {
    let text = "tasks:
  a: { flow: { b: { type: task, task: b }, s: { depends_on: [b], type: docker, image: \"{{ steps.b.output }}\" } } }
  b: { flow: { a: { type: task, task: a } } }
";
    assert_eq!(codes(&check(text)), ["E034"]);
}

#[test]
fn a_number_decides_nothing_freely() {
    for (filters, expected) in [
        ("int", vec![]),
        ("float | round", vec![]),
        ("length", vec![]),
        ("int | string", vec![]),
        ("upper", vec!["E070"]),
        ("default(1)", vec!["E070"]),
    ] {
        let step = format!("type: docker, image: \"app:{{{{ input.x | {filters} }}}}\"");
        assert_eq!(codes(&check(&task(FREE, &step))), expected, "{filters}");
    }
    let part = "type: docker, image: \"{{ input.x }}:{{ input.x | int }}\"";
    assert_eq!(codes(&check(&task(FREE, part))), ["E070"]);
}

/// Only the value in front of such a filter becomes a number. An argument of the filter may come out as it is.
#[test]
fn an_argument_of_a_filter_for_numbers_stays_a_text() {
    let free = "x: { type: string, required: true }, y: { type: string, required: true }, n: { type: integer, default: 1 }";
    for (value, expected) in [
        ("{{ input.x | int(default=input.y) }}", vec!["E070"]),
        ("{{ input.x | int(input.y) }}", vec!["E070"]),
        ("{{ input.n | int(input.y | upper) }}", vec!["E070"]),
        ("{{ input.x | float(default=input.y) }}", vec!["E070"]),
        ("{{ input.x | int(input.y) | string }}", vec!["E070"]),
        ("{{ (input.x | int) | default(input.y) }}", vec!["E070"]),
        ("{{ (input.x | int) or input.y }}", vec!["E070"]),
        ("{{ input.x | int if input.n else input.y }}", vec!["E070"]),
        (
            "{% set y %}{% filter int(input.y) %}a{% endfilter %}{% endset %}{{ y }}",
            vec!["E070"],
        ),
        (
            "{% set y | int(default=input.y) %}a{% endset %}{{ y }}",
            vec!["E070"],
        ),
        ("{{ ['a'] | map('int', input.y) | first }}", vec!["E070"]),
        ("{{ input.x | int(default=3) }}", vec![]),
        ("{{ input.x | int(default=input.n) }}", vec![]),
        ("{{ input.x | int(default=(input.y | int)) }}", vec![]),
        ("{{ input.x | int(input.y) | int }}", vec![]),
        ("{{ (input.x ~ input.y) | length }}", vec![]),
        ("{{ input.x | float | round(input.n) }}", vec![]),
        (
            "{{ input.x | int(default=input.y | unsafe) }}",
            vec!["E070"],
        ),
        ("{{ input.x | int(default=input.y) | unsafe }}", vec![]),
        ("{% for i in [1, 2] %}{{ loop.index }}{% endfor %}", vec![]),
    ] {
        let step = format!("type: docker, image: \"app:{value}\"");
        assert_eq!(codes(&check(&task(free, &step))), expected, "{value}");
    }
}

/// The quotes of JSON do not hold inside of others.
#[test]
fn json_is_a_literal_only_outside_of_quotes() {
    let script = |language: &str, text: &str| format!("script: {text:?}, language: {language}");
    let command = |words: &str| format!("type: docker, image: a, command: [{words}]");
    let pod = |words: &str| {
        let container = format!("{{ name: a, image: b, command: [{words}] }}");
        format!("type: pod, manifest: {{ spec: {{ containers: [{container}] }} }}")
    };
    for step in [
        script(
            "python",
            "import json\nd = json.loads('{{ input.x | json }}')",
        ),
        script("python3", "d = \"{{ input.x | json }}\""),
        script("python", "d = '''\n{{ input.x | json }}'''"),
        script("node", "f(`got {{ input.x | json }}`)"),
        script("deno", "f(/{{ input.x | json }}/)"),
        script("lua", "f([[{{ input.x | json }}]])"),
        script("Rscript", "f('a\n{{ input.x | json }}')"),
        script("coffee", "f({{ input.x | json }})"),
        script("unknown", "f('{{ input.x | json }}')"),
        command("node, -e, \"const d = JSON.parse('{{ input.x | json }}')\""),
        command("python3, -c, \"x='{{ input.x | json }}'\""),
        command("deno, eval, \"`{{ input.x | json }}`\""),
        pod("python3, -c, \"x='{{ input.x | json }}'\""),
        "script: \"#!/usr/bin/env python3\\nd = '{{ input.x | json }}'\"".to_string(),
    ] {
        let checked = check(&task(FREE, &step));
        let shown = render::human(&checked.diagnostics, false);
        assert_eq!(codes(&checked), ["E048"], "{step}\n{shown}");
    }
    for step in [
        script(
            "python",
            "# it's\nd = {{ input.x | json }} # it's {{ input.x | json }}",
        ),
        script(
            "python",
            "d = 'a', {{ input.x | json }}, '{{ input.x | json | unsafe }}'",
        ),
        script(
            "node",
            "f(`a ${ {{ input.x | json }} }`, s.replace(/'/g, ''), {{ input.x | json }})",
        ),
        script("unknown", "# it's\nf('a', {{ input.x | json }})"),
        script("lua", "-- it's\nf([[it's]], {{ input.x | json }})"),
        command("python3, -c, \"x={{ input.x | json }}\""),
        command("awk, \"BEGIN { x = {{ input.x | json }} } /'/\""),
        pod("node, -e, \"f({{ input.x | json }})\""),
    ] {
        let checked = check(&task(FREE, &step));
        let shown = render::human(&checked.diagnostics, false);
        assert_eq!(codes(&checked), Vec::<&str>::new(), "{step}\n{shown}");
    }
}

#[test]
fn json_in_quotes_of_a_former_script_is_tolerated_and_rendered_as_0_1_did() {
    let former = r#"
actions:
  say: { language: python, input: { x: { type: string } }, script: "print('{{ input.x | json }}')" }
tasks:
  former:
    input: { x: { type: string } }
    flow:
      own: { language: python, script: "print('{{ input.x | json }}')" }
      said: { action: say, input: { x: a } }
      sound: { language: python, script: "print({{ input.x | json }})" }
"#;
    let upgraded = Upgraded::with(&[("former.yaml", former)]);
    let former_task = vec!["former".to_string()];
    assert_eq!(upgraded.load(), (former_task, vec![], vec!["E048", "E048"]));
    let mut library = Library::remembering(upgraded.folder.path(), &upgraded.memory());
    let reloaded = library.reload();
    let tasks = reloaded.workflows.tasks();
    let steps = tasks.flat_map(|(_, task)| task.root().draft.steps.clone());
    let rules: Vec<Rules> = steps.map(|step| step.rules).collect();
    assert_eq!(rules, [Rules::V1, Rules::V1, Rules::V2]);
    let new = "tasks: { new: { input: { x: { type: string } }, flow: { a: { action: say, input: { x: \"{{ input.x }}\" } } } } }\n";
    std::fs::write(upgraded.folder.path().join("new.yaml"), new).unwrap();
    assert_eq!(upgraded.load().1, ["E048"]);
}

#[test]
fn a_value_decides_nothing_in_a_manifest_but_what_is_known_to_be_data() {
    let pod = |metadata: &str, spec: &str| {
        let container = "containers: [{ name: a, image: b, args: [tool, \"{{ input.x }}\"] }]";
        let manifest = format!(
            "apiVersion: v1, kind: Pod, metadata: {{ {metadata} }}, spec: {{ {container}, {spec} }}"
        );
        let step = format!("type: pod, manifest: {{ {manifest} }}");
        codes(&check(&task(FREE, &step)))
    };
    let value = "\"{{ input.x }}\"";
    let labels = format!("labels: {{ app: {value} }}");
    let deadline = format!("activeDeadlineSeconds: {value}");
    assert_eq!(pod(&labels, &deadline), Vec::<&str>::new());
    let annotations = format!("annotations: {{ app: {value} }}");
    assert_eq!(pod(&annotations, &deadline), ["E070"]);
    for spec in [
        format!(
            "volumes: [{{ name: v, projected: {{ sources: [{{ secret: {{ name: {value} }} }}] }} }}]"
        ),
        format!("volumes: [{{ name: v, nfs: {{ server: {value}, path: / }} }}]"),
        format!("hostAliases: [{{ ip: {value}, hostnames: [db] }}]"),
        format!("dnsConfig: {{ nameservers: [{value}] }}"),
    ] {
        assert_eq!(pod("", &spec), ["E070"], "{spec}");
    }
}

#[test]
fn an_action_is_as_trusted_as_what_it_is_given() {
    let action = "actions:\n  run: { input: { image: { type: string, required: true } }, type: docker, image: \"{{ input.image }}\" }\n";
    let with = |input: &str| {
        let step = format!("action: run, input: {{ image: \"{input}\" }}");
        codes(&check(&format!("{}{action}", task(FREE, &step))))
    };
    assert_eq!(with("alpine:3.20"), Vec::<&str>::new());
    assert_eq!(with("{{ input.x }}"), ["E070"]);
    // Nobody can say with what an action will be used that nothing uses.
    let unused = format!("{}{action}", task(FREE, "script: 'true'"));
    assert_eq!(codes(&check(&unused)), ["E070"]);
}

/// Breaks the new rules, and none of version 0.1.
const FORMER: &str = r#"tasks:
  former:
    input:
      image: { type: string, default: "busybox:latest" }
      words: { type: string, default: hello }
    flow:
      shell:
        type: docker
        image: "{{ input.image }}"
        command: [sh, -c, "echo {{ input.words }}"]
      pod:
        type: pod
        manifest: |
          apiVersion: v1
          kind: Pod
          spec:
            containers: [{ name: main, image: busybox, command: [echo, {{ input.words }}] }]
"#;

/// A workflows folder with the memory that version 0.1 had written of it.
struct Upgraded {
    folder: TempDir,
    data: TempDir,
}

impl Upgraded {
    fn with(files: &[(&str, &str)]) -> Upgraded {
        let (folder, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let upgraded = Upgraded { folder, data };
        let path = |name: &str| upgraded.folder.path().join(name);
        let texts = files.iter();
        let texts = texts.map(|(name, text)| (path(name).display().to_string(), text.to_string()));
        let texts: serde_json::Map<_, _> = texts.map(|(path, text)| (path, text.into())).collect();
        let kept =
            serde_json::json!({ "folder": upgraded.folder.path(), "files": texts, "scripts": {} });
        std::fs::write(upgraded.memory(), kept.to_string()).unwrap();
        for (name, text) in files {
            std::fs::write(path(name), text).unwrap();
        }
        upgraded
    }

    fn memory(&self) -> std::path::PathBuf {
        self.data.path().join("workflows.good.json")
    }

    /// Task names, codes of errors, codes of tolerated problems.
    fn load(&self) -> (Vec<String>, Vec<&'static str>, Vec<&'static str>) {
        let mut library = Library::remembering(self.folder.path(), &self.memory());
        let reloaded = library.reload();
        let tasks = reloaded.workflows.tasks();
        let tasks = tasks.map(|(name, _)| name.to_string());
        let found = reloaded.diagnostics.iter();
        let errors = found.clone().filter(|found| found.is_error());
        let tolerated = found.filter(|found| found.is_tolerated());
        (
            tasks.collect(),
            errors.map(|found| found.code).collect(),
            tolerated.map(|found| found.code).collect(),
        )
    }
}

#[test]
fn a_file_that_0_1_had_accepted_still_loads_and_is_told_of() {
    let upgraded = Upgraded::with(&[("former.yaml", FORMER)]);
    let tolerated = vec!["E070", "E045", "E071"];
    let loaded = (vec!["former".to_string()], vec![], tolerated);
    assert_eq!(upgraded.load(), loaded);
    // After another restart, too: this version has written the memory anew.
    assert_eq!(upgraded.load(), loaded);

    // Under another name the same text is new.
    std::fs::write(
        upgraded.folder.path().join("other.yaml"),
        FORMER.replace("former:", "other:"),
    )
    .unwrap();
    let (tasks, errors, _) = upgraded.load();
    assert_eq!(tasks, ["former"]);
    assert_eq!(errors, ["E070", "E045", "E071"]);
    std::fs::remove_file(upgraded.folder.path().join("other.yaml")).unwrap();

    // An edited file is new as well: its last good text is served.
    std::fs::write(
        upgraded.folder.path().join("former.yaml"),
        format!("{FORMER}# edited\n"),
    )
    .unwrap();
    let (tasks, errors, _) = upgraded.load();
    assert_eq!(tasks, ["former"]);
    assert_eq!(errors, ["E070", "E045", "E071"]);
}

/// One task of this version uses an action of a file that 0.1 had accepted, and the other way round.
#[test]
fn only_an_action_that_breaks_newer_rules_is_rendered_as_0_1_did() {
    let former = r#"
actions:
  clean: { type: pod, input: { x: { type: string } }, manifest: "metadata: { labels: { l: \"{{ input.x }}\" } }" }
  broken: { type: docker, image: busybox, input: { x: { type: string } }, command: [sh, -c, "echo {{ input.x }}"] }
tasks:
  former:
    input: { x: { type: string } }
    flow:
      harmless: { type: pod, manifest: "metadata: { labels: { l: \"{{ input.x }}\" } }" }
      broken: { type: pod, manifest: "spec: { a: [{{ input.x }}] }" }
      new-clean: { action: clean-pod, input: { x: "{{ input.x }}" } }
"#;
    let new = r#"
actions:
  clean-pod: { type: pod, input: { x: { type: string } }, manifest: "metadata: { labels: { l: \"{{ input.x }}\" } }" }
tasks:
  new:
    flow:
      uses-clean: { action: clean, input: { x: a } }
      uses-broken: { action: broken, input: { x: a } }
      own: { type: pod, manifest: "metadata: { labels: { l: \"{{ job.id }}\" } }" }
"#;
    let upgraded = Upgraded::with(&[("former.yaml", former)]);
    std::fs::write(upgraded.folder.path().join("new.yaml"), new).unwrap();
    let mut library = Library::remembering(upgraded.folder.path(), &upgraded.memory());
    let reloaded = library.reload();
    let errors = reloaded.diagnostics.iter().filter(|found| found.is_error());
    assert_eq!(errors.count(), 0, "{:?}", reloaded.diagnostics);
    let tasks = reloaded.workflows.tasks();
    let steps = tasks.flat_map(|(_, task)| task.root().draft.steps.clone());
    let rules: Vec<(String, Rules)> = steps.map(|step| (step.name, step.rules)).collect();
    let expected = [
        ("harmless", Rules::V2),
        ("broken", Rules::V1),
        ("new-clean", Rules::V2),
        ("uses-clean", Rules::V2),
        ("uses-broken", Rules::V1),
        ("own", Rules::V2),
    ];
    let expected = expected.map(|(step, rules)| (step.to_string(), rules));
    assert_eq!(rules, expected);
}

/// A secret is read as 0.1 did only if 0.1 had accepted both the text that declares it and a text that uses it.
#[test]
fn only_secrets_of_0_1_that_0_1_used_are_read_as_it_did() {
    let former = r#"
secrets: { old: { env: OLD } }
actions:
  act: { script: x, env: { K: "{{ secret.old }}" } }
tasks:
  former: { flow: { a: { script: x, env: { K: "{{ secret.old }}", L: "{{ secret.fresh }}" } } } }
"#;
    let new = r#"
secrets: { fresh: { env: FRESH } }
tasks:
  by-action: { flow: { a: { action: act }, b: { script: x, env: { K: "{{ secret.fresh }}" } } } }
  by-itself: { flow: { a: { script: x, env: { K: "{{ secret.old }}" } } } }
"#;
    let upgraded = Upgraded::with(&[("former.yaml", former)]);
    std::fs::write(upgraded.folder.path().join("new.yaml"), new).unwrap();
    let mut library = Library::remembering(upgraded.folder.path(), &upgraded.memory());
    let reloaded = library.reload();
    let mut found = Vec::new();
    for (task, definition) in reloaded.workflows.tasks() {
        for (secret, used) in &definition.root().draft.secrets {
            found.push(format!("{task} {secret} {:?}", used.rules));
        }
    }
    found.sort();
    let expected = [
        "by-action fresh V2",
        "by-action old V1",
        "by-itself old V2",
        "former fresh V2",
        "former old V1",
    ];
    assert_eq!(found, expected);
}

/// A link to a file elsewhere worked in 0.1. What 0.1 had accepted is a workflow and no secret.
#[test]
fn a_link_out_of_the_folder_loads_while_its_text_is_that_of_0_1() {
    let plain = "tasks: { former: { flow: { a: { script: x } } } }\n";
    let upgraded = Upgraded::with(&[("former.yaml", plain)]);
    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().join("shared.yaml");
    std::fs::write(&target, plain).unwrap();
    let link = upgraded.folder.path().join("former.yaml");
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let former = "former".to_string();
    for _ in 0..2 {
        assert_eq!(
            upgraded.load(),
            (vec![former.clone()], vec![], vec!["E007"])
        );
    }
    // Any other text is new. The last good text is served.
    std::fs::write(&target, plain.replace("x", "y")).unwrap();
    assert_eq!(upgraded.load(), (vec![former], vec!["E007"], vec![]));
}

#[test]
fn a_new_file_gives_no_untrusted_value_to_an_action_that_breaks_newer_rules() {
    let former = r#"
actions:
  run: { type: docker, input: { image: { type: string } }, image: "{{ input.image }}" }
  say: { type: docker, image: busybox, input: { text: { type: string } }, command: [sh, -c, "echo {{ input.text }}"] }
  show: { type: docker, image: "{{ input.image }}", input: { image: { type: string }, text: { type: string } }, command: [echo, "{{ input.text }}"] }
  env: { type: docker, image: busybox, command: [sh, -c, "echo {{ env.X }}"] }
tasks:
  former:
    input: { x: { type: string } }
    flow:
      run: { action: run, input: { image: "{{ input.x }}" } }
      show: { action: show, input: { image: "{{ input.x }}" } }
"#;
    let upgraded = Upgraded::with(&[("former.yaml", former)]);
    let load_with = |flow: &str| {
        let new = format!(
            "tasks: {{ new: {{ input: {{ x: {{ type: string }} }}, flow: {{ a: {{ {flow} }} }} }} }}\n"
        );
        std::fs::write(upgraded.folder.path().join("new.yaml"), new).unwrap();
        let (tasks, errors, tolerated) = upgraded.load();
        assert_eq!(tolerated, ["E070", "E045", "E070", "E045"]);
        (tasks.len(), errors)
    };
    let fixed = "action: run, input: { image: busybox }";
    assert_eq!(load_with(fixed), (2, vec![]));
    let untrusted = "action: run, input: { image: \"{{ input.x }}\" }";
    assert_eq!(load_with(untrusted).1, ["E070"]);
    let code = "action: say, input: { text: \"{{ input.x }}\" }";
    assert_eq!(load_with(code).1, ["E045"]);
    let by_variable = "action: env, env: { X: \"{{ input.x }}\" }";
    assert_eq!(load_with(by_variable).1, ["E045"]);
    let fallback =
        "action: run, input: { image: \"{{ input.x | length | default(1) | int(input.x) }}\" }";
    assert_eq!(load_with(fallback).1, ["E070"]);
    let fallback = "action: say, input: { text: \"{{ input.x | int(default=input.x) }}\" }";
    assert_eq!(load_with(fallback).1, ["E045"]);
    // Only what the violation is about counts.
    let data = "action: show, input: { image: busybox, text: \"{{ input.x }}\" }";
    assert_eq!(load_with(data), (2, vec![]));
}

#[test]
fn another_folder_has_no_former_files() {
    let upgraded = Upgraded::with(&[]);
    std::fs::write(upgraded.folder.path().join("former.yaml"), FORMER).unwrap();
    let (tasks, errors, tolerated) = upgraded.load();
    assert_eq!((tasks.len(), errors.len(), tolerated.len()), (0, 3, 0));
}

#[test]
fn the_examples_of_0_1_load_in_an_upgraded_folder() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v0.1/examples");
    let entries = std::fs::read_dir(&examples).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let files: Vec<(String, String)> = paths
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_string();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect();
    let borrowed: Vec<(&str, &str)> = files
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    let upgraded = Upgraded::with(&borrowed);
    let scripts = upgraded.folder.path().join("scripts");
    std::fs::create_dir(&scripts).unwrap();
    for entry in std::fs::read_dir(examples.join("scripts")).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, scripts.join(path.file_name().unwrap())).unwrap();
    }
    let (tasks, errors, tolerated) = upgraded.load();
    assert!(tasks.len() > 10, "{tasks:?}");
    assert_eq!(errors, Vec::<&str>::new());
    // The image of a step came from an input that could be anything.
    assert_eq!(tolerated, ["E070", "E070"]);
}

#[test]
fn the_variables_that_load_code_are_documented() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/security.md");
    let page = std::fs::read_to_string(page).unwrap();
    for name in stepward::language::arguments::LOADER_VARIABLES {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
    for prefix in stepward::language::arguments::LOADER_PREFIXES {
        assert!(page.contains(&format!("`{prefix}*`")), "{prefix}");
    }
}
