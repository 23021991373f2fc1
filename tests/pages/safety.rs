//! What other sites make a browser send changes nothing, and who has no token stays outside.

use tempfile::NamedTempFile;

use crate::browser::Browser;
use crate::house::{House, PATIENT};
use crate::http::{Answer, ask, proof, send_form};

const WORKFLOWS: &str = "
tasks:
  quick:
    schedules:
      two: { cron: '0 2 * * *' }
    flow:
      ask: { type: approval, message: Go on? }
";

/// Everything that is changed by a form, on a house with a job, a worker and a schedule.
const FORMS: &[(&str, &str)] = &[
    ("/tasks/quick/run", ""),
    ("/jobs/bulk", "do=cancel&job=1"),
    ("/jobs/bulk", "do=retry&job=1"),
    ("/jobs/1/cancel", ""),
    ("/jobs/1/retry", "scope=all"),
    ("/jobs/1/steps/ask/approve", ""),
    ("/jobs/1/steps/ask/reject", ""),
    ("/workers/1/pause", ""),
    ("/workers/1/resume", ""),
    ("/workers/1/drain", ""),
    ("/workers/1/delete", ""),
    ("/schedules/1/pause", ""),
    ("/schedules/1/resume", ""),
    ("/schedules/1/fire", ""),
    ("/settings/notify/phone/test", ""),
    ("/settings/deliveries/1/redeliver", ""),
];

fn house_with_something_of_everything() -> House {
    let mut house = House::with_settings(WORKFLOWS, PATIENT);
    let mut worker = house.worker(1);
    let job_id = house.submit("quick");
    house.await_step(job_id, "ask", "suspended");
    // Only what the forms do shall happen from here on.
    worker.kill();
    house
}

#[test]
fn no_form_is_taken_that_a_page_of_ours_did_not_send() {
    let house = house_with_something_of_everything();
    let site = house.url();
    let page = proof(&site, "/tasks/quick", &[]);
    let before = house.story();
    let foreign: &[&[(&str, &str)]] = &[
        &[("origin", "http://evil.example")],
        &[("origin", "null")],
        &[("sec-fetch-site", "cross-site"), ("origin", &site)],
        &[("sec-fetch-site", "same-site")],
        // Another program on this machine serves pages too.
        &[("origin", "http://127.0.0.1:1")],
    ];
    for (path, body) in FORMS {
        for proof in ["", "page=", "page=abc", &format!("page={}x", page)] {
            let refused = send_form(&site, path, &[], &format!("{proof}&{body}"));
            assert_eq!(refused.status, 403, "{path} with {proof:?}");
        }
        let whole = format!("page={page}&once=1&{body}");
        for headers in foreign {
            let refused = send_form(&site, path, headers, &whole);
            assert_eq!(refused.status, 403, "{path} with {headers:?}");
        }
        for host in ["evil.example", "evil.example:80", "127.0.0.1.evil.example"] {
            let refused = send_form(&site, path, &[("host", host)], &whole);
            assert_eq!(refused.status, 421, "{path} at {host}");
        }
        // A form of another kind is what a page of another site may send without asking.
        for kind in [
            "text/plain",
            "multipart/form-data; boundary=x",
            "application/json",
        ] {
            let refused = ask(&site, "POST", path, &[("content-type", kind)], &whole);
            assert_eq!(refused.status, 415, "{path} as {kind}");
        }
        // Whoever follows a link changes nothing.
        ask(&site, "GET", path, &[], "");
    }
    assert_eq!(house.story(), before);
    assert_eq!(house.job(1).status, "running");
    // The same form, sent as a page of ours does, is taken.
    let taken = send_form(
        &site,
        "/jobs/1/cancel",
        &[("sec-fetch-site", "same-origin"), ("origin", &site)],
        &format!("page={page}"),
    );
    assert_eq!(taken.status, 303);
    assert_ne!(house.story(), before);
    house.check();
}

#[test]
fn pages_are_told_to_nobody_who_was_led_here_under_another_name() {
    let house = House::with_settings(WORKFLOWS, PATIENT);
    for path in ["/", "/jobs", "/api/jobs", "/login", "/nowhere"] {
        let refused = ask(&house.url(), "GET", path, &[("host", "evil.example")], "");
        assert_eq!(refused.status, 421, "{path}");
    }
    house.check();
}

/// With the file that its token is in.
fn house_with_token() -> (House, NamedTempFile) {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), TOKEN).unwrap();
    let settings = format!(
        "auth: {{ token_file: {} }}\n{PATIENT}",
        file.path().display()
    );
    (House::with_settings(WORKFLOWS, &settings), file)
}

const TOKEN: &str = "let-me-in-please-0123456789abcdef";

fn cookie(answer: &Answer) -> &str {
    let set = answer.header("set-cookie").expect("a cookie");
    set.split(';').next().unwrap()
}

#[test]
fn a_cookie_is_for_our_pages_alone() {
    let (house, _token) = house_with_token();
    let site = house.url();
    let form = format!("token={TOKEN}");
    let entered = send_form(&site, "/login", &[], &form);
    assert_eq!(entered.status, 303);
    let set = entered.header("set-cookie").unwrap();
    let attributes: Vec<&str> = set.split("; ").skip(1).collect();
    assert_eq!(
        attributes,
        ["Path=/", "Max-Age=43200", "HttpOnly", "SameSite=Lax"]
    );
    assert!(!set.contains(TOKEN));
    let session = cookie(&entered);
    let look = |path: &str, headers: &[(&str, &str)]| ask(&site, "GET", path, headers, "").status;
    assert_eq!(look("/jobs", &[("cookie", session)]), 200);
    assert_eq!(look("/jobs", &[("cookie", "stepward_session=1.abc")]), 303);
    assert_eq!(look("/api/jobs", &[]), 401);

    // A cookie alone does nothing: whoever sends it must have read a page.
    let send =
        |headers: &[(&str, &str)], body: &str| send_form(&site, "/tasks/quick/run", headers, body);
    let run = |headers: &[(&str, &str)], body: &str| send(headers, body).status;
    assert_eq!(run(&[("cookie", session)], "once=1"), 403);
    let page = proof(&site, "/tasks/quick", &[("cookie", session)]);
    let whole = format!("once=1&page={page}");
    // Nor does the page of one person with the cookie of another, or none.
    assert_eq!(send(&[], &whole).header("location"), Some("/login"));
    let other = send_form(&site, "/login", &[], &form);
    assert_ne!(cookie(&other), session);
    assert_eq!(run(&[("cookie", cookie(&other))], &whole), 403);
    let made = send(&[("cookie", session)], &whole);
    assert_eq!(made.header("location"), Some("/jobs/1?said=submitted"));

    // The API takes no cookie for what changes something.
    let json = [("cookie", session), ("content-type", "application/json")];
    let asked = ask(&site, "POST", "/api/tasks/quick/jobs", &json, "{}");
    assert_eq!(asked.status, 401);
    for odd in [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "/%0d%0aset-cookie:x",
        "javascript:alert(1)",
    ] {
        let form = format!("{form}&next={odd}");
        let entered = send_form(&site, "/login", &[], &form);
        assert_eq!(entered.header("location"), Some("/"), "{odd}");
    }
    house.check();
}

#[test]
fn a_person_logs_in_goes_where_they_wanted_and_logs_out() {
    let (house, _token) = house_with_token();
    let browser = Browser::visiting(&house.url());
    browser.excuse("401 (Unauthorized");
    let tab = browser.tab();
    tab.open("/jobs?q=status:failed");
    tab.await_text("h1", "Log in");
    assert_eq!(tab.attribute("#token", "type").unwrap(), "password");
    tab.type_into("#token", "wrong <b>token</b>");
    tab.press("Enter");
    tab.await_text("#token-fault", "this is no token of this server");
    assert_eq!(tab.value("#token"), "");
    assert_eq!(tab.count("#token-fault b"), 0);
    tab.type_into("#token", TOKEN);
    tab.press("Enter");
    tab.await_that("where they wanted to go", |tab| {
        (tab.path() == "/jobs?q=status:failed").then_some(())
    });
    tab.await_text("#live", "live");
    // Scripts cannot tell it to anybody.
    assert_eq!(tab.script("return document.cookie"), "");
    tab.open("/tasks/quick");
    tab.click_on("Run");
    tab.await_text(".said", "submitted");
    tab.click_on("log out");
    tab.await_text("h1", "Log in");
    tab.open("/jobs");
    tab.await_text("h1", "Log in");
    browser.ends();
    house.check();
}
