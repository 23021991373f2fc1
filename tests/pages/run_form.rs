//! From the form of a task to a job that has finished.

use serde_json::json;
use stepward::wire::api::{JobJson, List};

use crate::browser::Browser;
use crate::house::{House, PATIENT};
use crate::http;

const WORKFLOWS: &str = r#"
tasks:
  release:
    description: Build, test, publish
    input:
      version: { type: string, required: true, pattern: '^\d+\.\d+\.\d+$', description: What it will be called }
      channel: { type: string, options: [stable, beta], default: beta }
      copies:  { type: integer, min: 1, max: 9, default: 3 }
      loud:    { type: boolean, default: true }
      notes:   { type: text }
      regions: { type: string, multiple: true, default: [north] }
      token:   { type: string, secret: true }
    flow:
      build:
        script: |
          echo "$INPUT_VERSION for $INPUT_CHANNEL, $INPUT_COPIES times, loud $INPUT_LOUD, in $INPUT_REGIONS"
          echo "$INPUT_NOTES"
          [ "${#INPUT_TOKEN}" = 11 ] && echo the token fits
          while [ ! -e LEDGER.gate ]; do sleep 0.05; done
"#;

const FORM: &str = "form[data-run]";

fn field(name: &str) -> String {
    format!("[id='input.{name}']")
}

fn jobs(house: &House) -> Vec<JobJson> {
    house.get::<List<JobJson>>("/api/jobs").items
}

#[test]
fn a_form_has_its_defaults_says_what_is_wrong_next_to_the_field_and_makes_one_job_that_is_seen_to_finish()
 {
    let mut house = House::with_settings(WORKFLOWS, PATIENT);
    let _worker = house.worker(1);
    let browser = Browser::visiting(&house.url());
    // What a browser says of a form that was refused.
    browser.excuse("422 (Unprocessable");
    let tab = browser.tab();
    tab.open("/tasks");
    tab.click_on("Run…");
    tab.await_text("h1", "release");

    assert_eq!(tab.value(&field("version")), "");
    assert_eq!(tab.value(&field("channel")), "beta");
    assert_eq!(tab.value(&field("copies")), "3");
    assert_eq!(tab.value(&field("regions")), "north");
    let is_ticked = format!(
        "return document.querySelector(\"{}\").checked",
        field("loud")
    );
    assert_eq!(tab.script(&is_ticked), true);
    assert_eq!(tab.attribute(&field("token"), "type").unwrap(), "password");
    assert_eq!(
        tab.texts(&format!("{} option", field("channel"))),
        ["–", "stable", "beta"]
    );
    assert_eq!(
        tab.text(&format!("{FORM} .command code")),
        "stepward run release"
    );

    tab.type_into(&field("version"), "one");
    tab.choose(&field("channel"), "stable");
    tab.type_into(&field("copies"), "12");
    tab.click(&field("loud"));
    tab.type_into(&field("notes"), "Ada's <b>notes</b>\nin two lines");
    tab.type_into(&field("regions"), "north\nsouth");
    tab.type_into(&field("token"), "hush 'hush'");
    let command = "stepward run release -i version=one -i channel=stable -i copies=12 -i loud=false \
                   -i 'notes=Ada'\\''s <b>notes</b>\nin two lines' -i regions=north -i regions=south -i token=SECRET";
    assert_eq!(tab.text(&format!("{FORM} .command code")), command);
    tab.click_on("Run");

    tab.await_text(".refused", "The job was not submitted.");
    assert_eq!(tab.path(), "/tasks/release/run");
    assert!(tab.shows("[id='input.version-fault']", r"^\d+\.\d+\.\d+$"));
    assert!(tab.shows("[id='input.copies-fault']", "9"));
    assert_eq!(tab.text("[id='input.channel-fault']"), "");
    assert_eq!(
        tab.attribute(&field("version"), "aria-invalid").unwrap(),
        "true"
    );
    assert_eq!(tab.value(&field("version")), "one");
    assert_eq!(tab.value(&field("channel")), "stable");
    assert_eq!(tab.value(&field("copies")), "12");
    assert_eq!(tab.script(&is_ticked), false);
    assert_eq!(
        tab.value(&field("notes")),
        "Ada's <b>notes</b>\nin two lines"
    );
    assert_eq!(tab.value(&field("regions")), "north\nsouth");
    assert_eq!(tab.value(&field("token")), "", "a secret is not told back");
    let page = tab.script("return document.documentElement.outerHTML");
    assert!(!page.as_str().unwrap().contains("hush"));
    assert_eq!(jobs(&house).len(), 0);

    tab.type_into(&field("version"), "1.2.3");
    tab.type_into(&field("copies"), "4");
    tab.type_into(&field("token"), "hush 'hush'");
    // As an impatient hand does.
    let twice = "
        const button = document.querySelector('form[data-run] button.primary');
        button.click();
        button.click()";
    tab.script(twice);
    tab.await_text(".said", "The job was submitted.");
    // Whoever loads or shares it did not do it.
    assert_eq!(
        tab.script("return location.pathname + location.search"),
        "/jobs/1"
    );
    tab.await_text(".title .state", "running");
    tab.await_text("#log .pane", "1.2.3 for stable, 4 times, loud false, in");
    tab.await_text("#log .pane", "Ada's <b>notes</b>");
    tab.await_text("#log .pane", "the token fits");
    tab.script("window.story = 'the same page'");
    house.open_gate();
    tab.await_text(".title .state", "completed");
    assert_eq!(tab.script("return window.story"), "the same page");
    let page = tab.script("return document.documentElement.outerHTML");
    assert!(!page.as_str().unwrap().contains("hush"));

    let jobs = jobs(&house);
    assert_eq!(jobs.len(), 1);
    let input = house.job(1).input;
    let input: serde_json::Value = serde_json::to_value(&input).unwrap();
    assert_eq!(input["version"], "1.2.3");
    assert_eq!(input["regions"], json!(["north", "south"]));
    assert!(!input.to_string().contains("hush"));

    // Once more, with what that job was given; its secret is not known to the page.
    tab.click_on("Run again with other input…");
    tab.await_text("h1", "release");
    assert_eq!(tab.value(&field("version")), "1.2.3");
    assert_eq!(tab.value(&field("copies")), "4");
    assert_eq!(tab.value(&field("token")), "");
    browser.ends();
    house.check();
}

#[test]
fn an_address_fills_the_form_in() {
    let house = House::with_settings(WORKFLOWS, PATIENT);
    let browser = Browser::visiting(&house.url());
    let tab = browser.tab();
    tab.open("/tasks/release?input.version=2.0.0&input.channel=stable&input.loud=false&input.notes=%22%3E%3Cb%3E");
    assert_eq!(tab.value(&field("version")), "2.0.0");
    assert_eq!(tab.value(&field("channel")), "stable");
    assert_eq!(tab.value(&field("notes")), "\"><b>");
    assert_eq!(
        tab.value(&field("copies")),
        "3",
        "what it does not name is as by default"
    );
    let command = tab.text(&format!("{FORM} .command code"));
    assert_eq!(
        command,
        "stepward run release -i version=2.0.0 -i channel=stable -i loud=false -i 'notes=\"><b>'"
    );
    browser.ends();
    house.check();
}

#[test]
fn a_form_that_is_sent_twice_makes_one_job() {
    let house = House::with_settings(WORKFLOWS, PATIENT);
    let proof = http::proof(&house.url(), "/tasks/release", &[]);
    let form = format!("page={proof}&once=abc&input.version=1.0.0");
    let sent = || http::send_form(&house.url(), "/tasks/release/run", &[], &form);
    let (first, second) = (sent(), sent());
    assert_eq!((first.status, second.status), (303, 303));
    assert_eq!(first.header("location"), Some("/jobs/1?said=submitted"));
    assert_eq!(second.header("location"), first.header("location"));
    assert_eq!(jobs(&house).len(), 1);
    house.check();
}
