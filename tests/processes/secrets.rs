//! Secrets: in a step's environment, and nowhere else. A run full of them leaves none on the server's disk, in what it answers or
//! in what it says.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use stepward::wire::api::JobJson;

use crate::house::House;

const FROM_ENV: &str = "env-s3cret-4711-value";
const FROM_FILE: &str = "file-s3cret-0815-value";
const FROM_INPUT: &str = "input-s3cret-2342-value";
/// One that a step makes, and names.
const MADE: &str = "made-s3cret-1337-value";

/// Uses every secret in every place that takes one, prints them all, fails with them, and hands them on.
const LEAKY: &str = r#"
secrets:
  by_env: { env: STEPWARD_SECRET_STORY }
  by_file: { file: LEDGER.secret }
tasks:
  leaky:
    input:
      key: { type: string, secret: true }
    env: { WHOLE: "{{ secret.by_env }}" }
    flow:
      print:
        env: { FILED: "{{ secret.by_file }}" }
        script: |
          echo "$WHOLE and $FILED and $INPUT_KEY"
          printf '%s\n' "$WHOLE" >&2
          printf '%s %s %s' "$WHOLE" "$FILED" "$INPUT_KEY" > LEDGER.seen
          echo '{{ secret.by_file }}' {{ input.key | sh }}
      give:
        env: { FILED: "{{ secret.by_file }}" }
        depends_on: [print]
        script: |
          made="made-s3cret-$((1000 + 337))-value"
          echo "::add-mask::$made"
          echo "OUTPUT: {\"nested\": [{\"$FILED\": \"$INPUT_KEY\"}]}"
          echo "out=<$WHOLE> and $made" >> "$STEPWARD_OUTPUT"
      misgive:
        depends_on: [give]
        continue_on_failure: true
        script: echo "not a key $WHOLE=1" >> "$STEPWARD_OUTPUT"
      hand_on:
        type: task
        task: child
        depends_on: [{ step: misgive, accept: terminal }]
        input: { key: "{{ input.key }}" }
      fail:
        depends_on: [hand_on]
        continue_on_failure: true
        script: |
          echo "$INPUT_KEY"
          exit 3
      gone:
        env: { GONE: "{{ secret.by_env }}{{ input.nowhere | default('') }}" }
        depends_on: [{ step: fail, accept: terminal }]
        script: test "$GONE" = "$WHOLE"
  child:
    input:
      key: { type: string, secret: true }
    flow:
      inner: { script: 'echo "child has $INPUT_KEY"; test -n "$INPUT_KEY"' }
"#;

#[test]
fn a_run_full_of_secrets_leaves_none_behind() {
    let mut house = House::with(LEAKY);
    house.allow_secrets(&[house.path("ledger.secret")]);
    fs::write(house.path("ledger.secret"), format!("{FROM_FILE}\n")).unwrap();
    house.server_variables = vec![("STEPWARD_SECRET_STORY", FROM_ENV.to_string())];
    assert!(house.stop_server());
    house.start_server();
    let mut worker = house.worker(2);
    let job = house
        .submit_with("leaky", json!({"key": FROM_INPUT}))
        .unwrap()
        .id;
    house.await_job(job, "completed");
    assert_eq!(
        house.read("ledger.seen"),
        format!("{FROM_ENV} {FROM_FILE} {FROM_INPUT}"),
        "the step had them"
    );
    let path = format!("/api/jobs/{job}/retry");
    let again: JobJson = (house.client)
        .post(&path, &json!({"all": true}), Duration::from_secs(10))
        .unwrap();
    house.await_job(again.id, "completed");

    let secrets = [FROM_ENV, FROM_FILE, FROM_INPUT, MADE];
    let holds = |text: &str| {
        secrets
            .iter()
            .find(|secret| text.contains(**secret))
            .copied()
    };
    for path in [
        format!("/api/jobs/{job}"),
        format!("/api/jobs/{}", again.id),
        format!("/api/jobs/{job}/events"),
        format!("/api/jobs/{job}/why"),
        format!("/api/jobs/{job}/logs"),
        "/api/jobs".to_string(),
        "/api/events".to_string(),
        "/api/tasks/leaky".to_string(),
    ] {
        let answer: serde_json::Value = house.get(&path);
        assert_eq!(holds(&answer.to_string()), None, "{path}");
    }
    let lines = house.log_lines(job, "print").join("\n");
    assert!(lines.contains("***"), "{lines}");
    let input = serde_json::to_value(house.job(job).input).unwrap();
    assert_eq!(input, json!({"key": "***"}));

    let given = serde_json::to_value(house.step(job, "give").output).unwrap();
    let hidden = json!({"nested": [{"***": "***"}], "out": "<***> and ***"});
    assert_eq!(given, hidden);
    let misgiven = serde_json::to_string(&house.step(job, "misgive")).unwrap();
    assert!(misgiven.contains("not a key ***"), "{misgiven}");

    let said = house.server().said();
    assert_eq!(holds(&said), None, "{said}");
    worker.signal(Signal::TERM);
    assert!(worker.wait());
    assert!(house.stop_server());
    for (path, bytes) in house.data_files() {
        for secret in secrets {
            let found = bytes
                .windows(secret.len())
                .any(|window| window == secret.as_bytes());
            assert!(!found, "{secret} is in {}", path.display());
        }
    }
    house.check();
}
