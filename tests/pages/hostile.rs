//! Every page, with data that tries to be more than text.

use serde_json::{Value, json};
use stepward::wire::api::JobJson;

use crate::axe::assert_accessible;
use crate::browser::Browser;
use crate::house::{House, Worker, await_that};
use crate::http;
use crate::tab::{Tab, Theme};

/// As a name of a task or step may be: in one line, without `[]/@`, up to 128 bytes.
const NAME: &str = "'\"><x-evil><img src=x onerror=hacked=1><script>hacked=1; &lt;javascript:hacked=1 \u{202e}back\u{2066}";

/// Those of workers are told by machines that may not be ours: what turns the direction of reading is not taken.
const WORKER: &str =
    "'\"><x-evil><img src=x onerror=hacked=1><script>hacked=1; &lt;javascript:hacked=1";

/// As anything else may be. What it would make is looked for on every page.
const TEXT: &str = "'\"></textarea></script></style></title><x-evil></x-evil><img src=x onerror=\"window.hacked=1\">\
    <script>window.hacked=1</script><svg onload=window.hacked=1><a href=\"javascript:window.hacked=1\">x</a>&lt;b&gt; \
    \u{202e}drow\u{2066} \u{1b}[31mred\u{1b}]8;;javascript:window.hacked=1\u{7}link\u{1b}]8;;\u{7} ${hacked=1} {# #} %0d%0a \\u003cscript\\u003e";

fn long() -> String {
    format!("{TEXT} {}", "Donaudampfschifffahrt".repeat(40))
}

const SETTINGS: &str = "
recovery:
  heartbeat_interval_secs: 1
  heartbeat_timeout_secs: 3
  sweep_interval_secs: 1
  unmatched_step_timeout_secs: 1
  ack_timeout_secs: 1
  cancel_grace_secs: 2
";

fn workflows() -> String {
    let tag = "nobody-has-this";
    let task = |flow: Value| json!({"description": long(), "flow": flow});
    let named = |name: &str| format!("{name} {NAME}");
    let show = "printf '%s\\n' \"$INPUT_WHO\"; printf '%s\\n' \"$INPUT_WHO\" >&2; printf '::group::%s\\n' \"$INPUT_WHO\"; echo inside; echo ::endgroup::";
    let main = json!({
        "description": long(),
        "input": {
            "who": {"type": "string", "default": long(), "description": long()},
            "kind": {"type": "string", "options": [TEXT, "plain"], "default": TEXT},
            "notes": {"type": "text", "default": TEXT},
            "key": {"type": "string", "secret": true, "description": TEXT},
        },
        "schedules": {"<x-evil>\"'&": {"cron": "0 2 * * *", "timezone": "Europe/Oslo"}},
        "flow": {
            NAME: {"script": format!("{show}; echo \"who=$INPUT_WHO\" >> \"$STEPWARD_OUTPUT\"")},
            "after": {"depends_on": [NAME], "script": "true"},
        },
    });
    let tasks = json!({
        NAME: main,
        "fails": {
            "description": long(),
            "input": {"who": {"type": "string", "default": long()}},
            "flow": {named("bad").chars().take(100).collect::<String>(): {"script": format!("{show}; echo \"error: $INPUT_WHO\" >&2; exit 3")}},
        },
        "asks": task(json!({"ask": {"type": "approval", "message": long(),
            "input": {"who": {"type": "string", "default": TEXT, "description": TEXT}}}})),
        "runs": task(json!({"work": {"script": "SLEEP"}})),
        "slow": task(json!({"work": {"script": "SLEEP", "timeout": "1s"}})),
        "unheard": task(json!({NAME: {"type": "approval", "message": TEXT, "timeout": "1s"}})),
        "late": {"timeout": "1s", "flow": {"work": {"script": "SLEEP"}}},
        "nobody": task(json!({"work": {"script": "true", "tags": [tag]}})),
        "patient": task(json!({"work": {"script": "true", "tags": [tag], "unmatched": "wait"}})),
        "parent": task(json!({"child": {"type": "task", "task": "fails"}})),
    });
    json!({"tasks": tasks}).to_string()
}

/// A server on which everything that somebody can name has a hostile name.
struct Evil {
    house: House,
    _worker: Worker,
    /// Jobs by what became of them.
    jobs: Vec<(&'static str, i64)>,
}

impl Evil {
    fn house() -> Evil {
        let mut house = House::with_settings(&workflows(), SETTINGS);
        house.write_workflow(
            "broken \"><x-evil>.yaml",
            &format!(
                "tasks:\n  '<x-evil>': {{ flow: 3, '<x-evil>{{}}': 1 }}\n# {}\n",
                TEXT.replace('\u{1b}', "")
            ),
        );
        lost_worker(&house);
        let worker = house.worker_called(WORKER, 4, "tags: [script, 'gpu:0.1_x']");
        let submit = |task: &str| {
            let path = format!("/api/tasks/{}/jobs", escaped(task));
            let labels = json!({"<x-evil>": "'\"><x-evil><img src=x onerror=hacked=1>"});
            let request = json!({"labels": labels});
            let made: JobJson = house
                .client
                .post(&path, &request, std::time::Duration::from_secs(10))
                .unwrap();
            made.id
        };
        let jobs = [
            "asks", "unheard", "runs", "slow", "late", "nobody", "patient", "parent", "fails",
        ];
        let mut jobs: Vec<(&str, i64)> = jobs.map(|task| (task, submit(task))).to_vec();
        jobs.push(("completed", submit(NAME)));
        jobs.push(("cancelled", submit("runs")));
        let id = |name: &str| jobs.iter().find(|(known, _)| *known == name).unwrap().1;
        house.await_asleep(2);
        let page = http::proof(
            &house.url(),
            &format!("/jobs/{}/cancel", id("cancelled")),
            &[],
        );
        let why = format!("page={page}&why={}", escaped(TEXT));
        let sent = http::send_form(
            &house.url(),
            &format!("/jobs/{}/cancel", id("cancelled")),
            &[],
            &why,
        );
        assert_eq!(sent.status, 303, "{}", sent.body);
        for (name, state) in [
            ("completed", "completed"),
            ("fails", "failed"),
            ("slow", "failed"),
            ("late", "cancelled"),
            ("unheard", "failed"),
            ("nobody", "failed"),
            ("parent", "failed"),
            ("cancelled", "cancelled"),
        ] {
            house.await_job(id(name), state);
        }
        await_that("the stranger is lost", || {
            let lost = house
                .workers()
                .into_iter()
                .any(|worker| worker.status == "inactive");
            lost.then_some(())
        });
        Evil {
            house,
            _worker: worker,
            jobs,
        }
    }

    fn job(&self, name: &str) -> i64 {
        self.jobs
            .iter()
            .find(|(known, _)| *known == name)
            .unwrap()
            .1
    }
}

/// It says hello and nothing more.
fn lost_worker(house: &House) {
    let session = json!({
        "name": WORKER, "instance": "i1", "session": "s1", "tags": ["script"], "slots": 3,
        "version": "<x-evil>9", "platform": "<x-evil>", "spooled": [],
    });
    let kind = [("content-type", "application/json")];
    let answer = http::ask(
        &house.url(),
        "POST",
        "/api/worker/sessions",
        &kind,
        &session.to_string(),
    );
    assert_eq!(answer.status, 200, "{}", answer.body);
}

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Nothing that somebody wrote became an element, an attribute that runs, an address that runs; and nothing ran.
fn assert_harmless(tab: &Tab) {
    let found = "
        const all = [...document.querySelectorAll('*')];
        const bad = all.filter(e => /^(x-evil|img|iframe|object|embed|base)$/i.test(e.nodeName)
            || [...e.attributes].some(({name, value}) => /^on|^style$|^srcdoc$/i.test(name)
                || (/^(href|src|action|formaction|xlink:href)$/i.test(name) && /^\\s*(javascript|data|vbscript):/i.test(value))));
        const own = bad.filter(e => !(e.closest('#log .pane') && e.hasAttribute('style')));
        const scripts = all.filter(e => e.nodeName === 'SCRIPT' && !e.src.startsWith(location.origin + '/assets/'));
        return [...own, ...scripts].map(e => e.outerHTML.slice(0, 200)).concat('hacked' in window ? ['it ran'] : [])";
    let found = tab.script(found);
    assert_eq!(found, json!([]), "at {}", tab.path());
}

/// The page as a whole is never wider than the window; what is wide scrolls within itself.
fn assert_fits(tab: &Tab) {
    for width in [360, 1600] {
        tab.size(width, 900);
        let wide = "
            const edge = document.documentElement.clientWidth;
            if (document.documentElement.scrollWidth <= edge) return [];
            const all = [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > edge + 1);
            const free = all.filter(e => { for (let at = e.parentElement; at; at = at.parentElement) if (getComputedStyle(at).overflowX !== 'visible') return false; return true; });
            const inner = free.filter(e => !free.some(other => other !== e && e.contains(other)));
            return [document.documentElement.scrollWidth, ...inner.slice(0, 5).map(e => e.outerHTML.slice(0, 200))]";
        assert_eq!(
            tab.script(wide),
            json!([]),
            "{width} pixels wide at {}",
            tab.path()
        );
    }
}

/// `shows`: whether somebody's text is on it at all.
fn look_at(browser: &Browser, tab: &Tab, path: &str, shows: bool) {
    let begun = std::time::Instant::now();
    tab.size(1280, 900);
    tab.open(path);
    if tab.count("#log .pane") == 1 {
        tab.await_that("the log is there", |tab| {
            (tab.count("#log .pane .lines") == 1).then_some(())
        });
    }
    assert_harmless(tab);
    let text = tab.script("return document.documentElement.textContent");
    let turned = ["\u{202e}", "\u{2066}"].map(|turn| text.as_str().unwrap().contains(turn));
    assert_eq!(turned, [false; 2], "{path}: the direction of reading");
    let is_shown = text.as_str().unwrap().contains("<x-evil>");
    assert_eq!(
        is_shown, shows,
        "{path}: whether it shows what somebody wrote"
    );
    assert_accessible(tab);
    assert_fits(tab);
    for theme in [Theme::Light, Theme::Dark] {
        tab.theme(theme);
        tab.size(1280, 900);
        let words = path.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let words: String = words.chars().take(40).collect();
        tab.screenshot(&format!("page{words}{theme:?}"));
    }
    browser.assert_calm();
    let short: String = path.chars().take(40).collect();
    println!("{short}: {:?}", begun.elapsed());
}

#[test]
fn pages_of_lists_show_whatever_they_are_given_and_run_nothing_of_it() {
    let evil = Evil::house();
    let browser = Browser::visiting(&evil.house.url());
    let tab = browser.tab();
    let file = evil.house.path("workflows").join("broken \"><x-evil>.yaml");
    let file = format!("/files?name={}", escaped(file.to_str().unwrap()));
    let pages = [
        "/",
        "/tasks",
        "/tasks?q=%3Cx-evil%3E",
        &format!("/tasks/{}", escaped(NAME)),
        &format!("/tasks/{}?input.who={}", escaped(NAME), escaped(TEXT)),
        &file,
        "/jobs",
        "/jobs?q=status:failed",
        "/jobs?q=status:cancelled",
        "/queue",
        "/workers",
        "/schedules",
        "/events",
        "/events?phase=any",
        "/events?phase=1",
        "/events?phase=2",
        "/events?phase=3",
        "/events?phase=4",
        "/recovery",
    ];
    for path in pages {
        // A job that takes too long says only how long.
        let shows = path != "/events?phase=3";
        look_at(&browser, &tab, path, shows);
    }
    look_at(&browser, &tab, "/settings", false);
    browser.ends();
    evil.house.check();
}

#[test]
fn pages_of_jobs_show_whatever_they_are_given_and_run_nothing_of_it() {
    let evil = Evil::house();
    let browser = Browser::visiting(&evil.house.url());
    let tab = browser.tab();
    for (name, job_id) in &evil.jobs {
        println!("{name}:");
        look_at(&browser, &tab, &format!("/jobs/{job_id}"), true);
    }
    let (completed, running, asks) = (evil.job("completed"), evil.job("runs"), evil.job("asks"));
    let worker = evil.house.workers();
    let worker = worker
        .iter()
        .find(|worker| worker.status == "active")
        .unwrap()
        .id;
    let questions = [
        format!("/jobs/{completed}?step={}", escaped(NAME)),
        format!("/jobs/{running}/cancel"),
        format!("/jobs/{completed}/retry?from={}", escaped(NAME)),
        format!("/jobs/bulk?do=cancel&job={running}"),
        format!("/jobs/{asks}/steps/ask/approve?input.who={}", escaped(TEXT)),
        format!("/jobs/{asks}/steps/ask/reject"),
        format!("/workers/{worker}/drain"),
        format!("/workers/{worker}/delete"),
        "/schedules/1/fire".to_string(),
    ];
    for path in &questions {
        let plain = path.contains("/bulk") || path.ends_with("/cancel");
        look_at(&browser, &tab, path, !plain);
    }
    browser.ends();
    evil.house.check();
}

#[test]
fn pages_that_refuse_are_pages_too() {
    let evil = Evil::house();
    let browser = Browser::visiting(&evil.house.url());
    // What a browser says of them.
    browser.excuse("the server responded with a status of 4");
    let tab = browser.tab();
    let text = escaped(TEXT);
    let asked = evil.job("completed");
    let pages = [
        ("/nowhere".to_string(), false),
        (format!("/tasks/{text}"), true),
        (format!("/jobs/{text}"), true),
        ("/jobs/999".to_string(), false),
        (format!("/jobs/{asked}?step={text}"), true),
        (format!("/jobs?q={text}"), true),
        (format!("/jobs?{text}=1"), true),
        (format!("/files?name={text}"), false),
        ("/events?phase=9".to_string(), false),
        (format!("/jobs/bulk?do=cancel&job={text}"), true),
        (format!("/jobs/{asked}/steps/after/approve"), false),
    ];
    for (path, shows) in &pages {
        look_at(&browser, &tab, path, *shows);
        assert_eq!(tab.count("h1"), 1, "{path}");
    }
    browser.ends();
    evil.house.check();
}
