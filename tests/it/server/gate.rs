//! Browsers at the gate: what other sites make them send changes nothing, and what our own pages send is taken once.

use super::*;

const FORM: &str = "content-type: application/x-www-form-urlencoded\r\n";

/// What stands in the hidden field of a page.
pub fn field(page: &Answer, name: &str) -> String {
    let text = page.text();
    let begin = format!("name=\"{name}\" value=\"");
    let value = text.split(&begin).nth(1).expect("the page has this field");
    value.split('"').next().unwrap().to_string()
}

/// Names of our own letters alone need no escape; signatures may hold none that a form changes.
fn run_form(house: &ServerHouse, headers: &str) -> (String, String) {
    let page = house.ask("GET", "/tasks/hello", headers, b"");
    assert_eq!(page.status, 200, "{}", page.text());
    (field(&page, "page"), field(&page, "once"))
}

fn send(house: &ServerHouse, path: &str, headers: &str, form: &str) -> Answer {
    house.ask("POST", path, &format!("{FORM}{headers}"), form.as_bytes())
}

#[test]
fn what_another_site_makes_a_browser_send_changes_nothing() {
    let house = ServerHouse::new();
    let job_id = house.submit("pair");
    let (proof, once) = run_form(&house, "");
    let form = format!("page={proof}&once={once}");
    for led in [
        "origin: https://evil.example\r\n",
        "origin: null\r\n",
        "origin: http://localhost.evil.example\r\n",
        "sec-fetch-site: cross-site\r\n",
        "sec-fetch-site: same-site\r\n",
        "origin: http://localhost\r\nsec-fetch-site: cross-site\r\n",
    ] {
        for path in [
            "/tasks/hello/run",
            &format!("/jobs/{job_id}/cancel"),
            "/jobs/bulk",
        ] {
            let refused = send(&house, path, led, &form);
            assert_eq!(refused.status, 403, "{led} {path}: {}", refused.text());
        }
        // Neither by a request that a plain form can make to the API.
        let path = format!("/api/jobs/{job_id}/cancel");
        let refused = house.ask("POST", &path, led, b"");
        assert_eq!(refused.refused(403), "cross_site");
    }
    assert_eq!(
        (house.jobs(), house.status(job_id)),
        (1, "pending".to_string())
    );
}

#[test]
fn a_name_that_is_not_ours_leads_nowhere() {
    let house = ServerHouse::new();
    let says = |host: &str, path: &str| {
        let mut line = house.line();
        line.send(format!(
            "GET {path} HTTP/1.1\r\nhost: {host}\r\naccept: text/html\r\n\r\n"
        ));
        line.answer().status
    };
    for ours in [
        "localhost",
        "localhost:7717",
        "127.0.0.1:1",
        "[::1]:7717",
        "LOCALHOST",
        "a.localhost",
    ] {
        assert_eq!(says(ours, "/"), 200, "{ours}");
    }
    for other in [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:7717",
        "10.0.0.1",
        "",
        "[::2]",
    ] {
        for path in ["/", "/api/jobs", "/jobs", "/assets/x/app.js"] {
            assert_eq!(says(other, path), 421, "{other} {path}");
        }
    }
    // Whoever looks whether it lives may call it as it likes.
    assert_eq!(says("anything", "/healthz"), 200);
}

#[test]
fn the_address_that_people_know_is_ours() {
    let house = ServerHouse::with(Limits::default(), |config| {
        config.public_url = Some("https://jobs.example.org/".to_string());
    });
    let mut line = house.line();
    line.send("GET / HTTP/1.1\r\nhost: jobs.example.org\r\n\r\n");
    assert_eq!(line.answer().status, 200);
}

#[test]
fn a_form_shows_that_it_is_ours_and_makes_one_job() {
    let house = ServerHouse::new();
    let (proof, once) = run_form(&house, "");
    for (form, status) in [
        (String::new(), 403),
        (format!("once={once}"), 403),
        (format!("page=x&once={once}"), 403),
        (format!("page={proof}x&once={once}"), 403),
    ] {
        let refused = send(&house, "/tasks/hello/run", "", &form);
        assert_eq!(refused.status, status, "{form}");
        assert!(refused.text().starts_with("<!DOCTYPE html>"));
    }
    let as_json = house.post("/tasks/hello/run", &json!({"page": proof}));
    assert_eq!((as_json.status, house.jobs()), (415, 0));
    for _ in 0..2 {
        let form = format!("page={proof}&once={once}&input.name=%22Ada%22");
        let made = send(&house, "/tasks/hello/run", "", &form);
        assert_eq!(made.status, 303, "{}", made.text());
        assert_eq!(made.header("location"), Some("/jobs/1?said=submitted"));
    }
    assert_eq!(house.jobs(), 1);
    assert_eq!(house.job(1)["input"]["name"], "Ada");
}

#[test]
fn with_a_token_a_browser_shows_it_once() {
    let house = guarded();
    for path in ["/", "/jobs/1?step=a", "/nothing/here"] {
        let led = house.ask("GET", path, "accept: text/html\r\n", b"");
        assert_eq!(led.status, 303, "{path}");
        assert!(
            led.header("location").unwrap().starts_with("/login"),
            "{path}"
        );
    }
    // Programs are told in their own way, and the files of the login page are for everybody.
    assert_eq!(house.get("/api/jobs").refused(401), "unauthorized");
    assert_eq!(house.get("/assets/x/style.css").status, 200);
    let wrong = send(&house, "/login", "", "token=guess&next=/jobs");
    assert_eq!(wrong.status, 401);
    assert!(wrong.header("set-cookie").is_none());
    let right = send(&house, "/login", "", &format!("token={TOKEN}&next=/jobs"));
    assert_eq!(
        (right.status, right.header("location")),
        (303, Some("/jobs"))
    );
    let cookie = right.header("set-cookie").unwrap();
    for word in ["HttpOnly", "SameSite=Lax", "Path=/"] {
        assert!(cookie.contains(word), "{cookie}");
    }
    assert!(!cookie.contains(TOKEN));
    let cookie = format!("cookie: {}\r\n", cookie.split(';').next().unwrap());
    assert_eq!(house.ask("GET", "/", &cookie, b"").status, 200);
    assert_eq!(house.ask("GET", "/api/jobs", &cookie, b"").status, 200);
    // It lets look everywhere, and act only where a page proves itself.
    let by_cookie = house.ask("POST", "/api/tasks/hello/jobs", &cookie, b"");
    assert_eq!(by_cookie.refused(401), "unauthorized");
    let (proof, once) = run_form(&house, &cookie);
    let form = format!("page={proof}&once={once}");
    let elsewhere = send(&house, "/tasks/hello/run", "", &form);
    assert_eq!(
        elsewhere.status, 303,
        "without the cookie one is asked for the token"
    );
    assert_eq!(elsewhere.header("location"), Some("/login"));
    assert_eq!(send(&house, "/tasks/hello/run", &cookie, &form).status, 303);
    let jobs = house.ask("GET", "/api/jobs", &cookie, b"").expect(200);
    assert_eq!(jobs["items"].as_array().unwrap().len(), 1);
    let out = send(&house, "/logout", &cookie, "");
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"));
}

#[test]
fn a_cookie_that_somebody_made_up_is_none() {
    let house = guarded();
    for made_up in [
        "stepward_session=",
        "stepward_session=x",
        "stepward_session=a.1.2.3",
        "stepward_session=-9223372036854775808.x",
        "stepward_session=a.-9223372036854775808.-9223372036854775808.AAAA",
        "a=b; stepward_session=....; c=d",
    ] {
        let headers = format!("cookie: {made_up}\r\naccept: text/html\r\n");
        assert_eq!(
            house.ask("GET", "/", &headers, b"").status,
            303,
            "{made_up}"
        );
    }
}

#[test]
fn nobody_is_led_elsewhere_by_logging_in() {
    let house = guarded();
    for next in [
        "//evil.example",
        "https://evil.example/",
        "/\\evil.example",
        "%0d%0aset-cookie:a=b",
        "",
    ] {
        let form = format!("token={TOKEN}&next={next}");
        let led = send(&house, "/login", "", &form);
        assert_eq!(
            (led.status, led.header("location")),
            (303, Some("/")),
            "{next}"
        );
    }
}

#[test]
fn whoever_guesses_tokens_is_slowed_down_and_whoever_knows_it_is_not() {
    let house = guarded();
    let guess = || send(&house, "/login", "", "token=guess").status;
    until("guesses are too many", || guess() == 429);
    let right = send(&house, "/login", "", &format!("token={TOKEN}"));
    assert_eq!(right.status, 303);
}

#[test]
fn every_answer_tells_a_browser_what_it_may_do() {
    let house = ServerHouse::new();
    for path in [
        "/",
        "/jobs",
        "/nothing",
        "/api/jobs",
        "/assets/x/app.js",
        "/healthz",
    ] {
        let answer = house.get(path);
        let policy = answer.header("content-security-policy").unwrap_or_default();
        for word in [
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
        ] {
            assert!(policy.contains(word), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
}

#[test]
fn files_are_kept_by_browsers_and_pages_are_not() {
    let house = ServerHouse::new();
    let page = house.get("/");
    assert_eq!(page.header("cache-control"), Some("no-store"));
    let text = page.text();
    let style = text.split('"').find(|word| word.ends_with("/style.css"));
    let kept = house.get(style.unwrap());
    assert!(kept.header("cache-control").unwrap().contains("immutable"));
    assert_eq!(
        house.get("/assets/other/style.css").header("cache-control"),
        Some("no-store")
    );
    for none in ["/assets/x/nothing.js", "/assets/x/..%2f..%2fCargo.toml"] {
        assert_eq!(house.get(none).status, 404, "{none}");
    }
}

#[test]
fn pages_are_squeezed_unless_they_hold_a_proof() {
    let house = ServerHouse::new();
    let takes = "accept-encoding: gzip, br\r\n";
    let encoding = |path: &str| {
        let answer = house.ask("GET", path, takes, b"");
        answer.header("content-encoding").map(str::to_string)
    };
    assert_eq!(encoding("/").as_deref(), Some("gzip"));
    assert_eq!(encoding("/assets/x/style.css").as_deref(), Some("gzip"));
    assert_eq!(encoding("/tasks/hello"), None, "its form holds a proof");
    assert!(house.ask("GET", "/", takes, b"").body.len() < house.get("/").body.len() / 2);
}

#[test]
fn only_workflow_files_are_shown() {
    let house = ServerHouse::new();
    let own = house.path().join("workflows/all.yaml");
    let own = own.display().to_string().replace('/', "%2F");
    assert_eq!(house.get(&format!("/files?name={own}")).status, 200);
    let token = house.path().join("data/secret.key");
    for other in [
        "/etc/passwd",
        "../../etc/passwd",
        "",
        token.to_str().unwrap(),
    ] {
        let other = other.replace('/', "%2F");
        assert_eq!(
            house.get(&format!("/files?name={other}")).status,
            404,
            "{other}"
        );
    }
}

#[test]
fn rubbish_in_addresses_of_pages_is_told_and_breaks_nothing() {
    let house = ServerHouse::new();
    let job_id = house.submit("wide");
    let markup = "%3Cscript%3Ealert(1)%3C%2Fscript%3E";
    for path in [
        format!("/jobs?q={markup}"),
        format!("/jobs?q=task:{markup}"),
        format!("/jobs/{markup}"),
        format!("/tasks/{markup}"),
        format!("/tasks/hello?input.{markup}={markup}"),
        format!("/tasks?q={markup}"),
        format!("/files?name={markup}"),
        format!("/login?next={markup}"),
        format!("/jobs/{job_id}?step={markup}"),
        format!("/jobs?said={markup}"),
        format!("/{markup}"),
        "/jobs?after=x".to_string(),
        "/jobs?after=-1".to_string(),
        "/jobs?q=99999999999999999999".to_string(),
        "/events?phase=9".to_string(),
        "/events?before=x".to_string(),
        "/events?job=99".to_string(),
        "/queue?after=x".to_string(),
        "/workers/1/explode".to_string(),
        "/workers/99/drain".to_string(),
        "/schedules/99/pause".to_string(),
        "/jobs/bulk".to_string(),
        "/jobs/bulk?do=cancel&job=x".to_string(),
        "/jobs/bulk?do=explode&job=1".to_string(),
        format!("/jobs/{job_id}?after=18446744073709551615"),
        format!("/jobs/{job_id}?line=18446744073709551615"),
        format!("/jobs/{job_id}?attempt=4294967295"),
        format!("/jobs/{job_id}/retry?from=nothing"),
        format!("/jobs/{job_id}/steps/each/approve"),
        format!("/jobs/{job_id}/steps/each/log?from=18446744073709551615&n=18446744073709551615"),
        format!("/jobs/{job_id}/steps/each/log?skip=1-2,x"),
        format!("/jobs/{job_id}/steps/each/log/marks?every=0"),
        format!("/jobs/{job_id}/steps/each/log/find?find=&line=0"),
        format!("/jobs/{job_id}/steps/each/log/place?line=18446744073709551615&stream=stderr"),
        "/?nonsense=1".to_string(),
    ] {
        let answer = house.ask("GET", &path, "accept: text/html\r\n", b"");
        assert!(answer.status < 500, "{path}: {}", answer.status);
        assert!(!answer.text().contains("<script>alert"), "{path}");
    }
    assert_eq!(house.status(job_id), "pending");
}

const TOKEN: &str = "a-token-that-nobody-guesses-0123456789";

fn guarded() -> ServerHouse {
    ServerHouse::with(Limits::default(), |config| {
        let file = config.data_dir.parent().unwrap().join("token");
        std::fs::write(&file, TOKEN).unwrap();
        let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&file, owner_only).unwrap();
        config.auth.token_file = Some(file);
    })
}

/// A browser that another site leads to an address, by a link or by itself.
const LED: [&str; 3] = [
    "sec-fetch-site: cross-site\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\n",
    "sec-fetch-site: same-site\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\n",
    // Without TLS, and not on this machine.
    "referer: http://evil.example/page\r\n",
];
/// A browser whose person typed the address in, or followed a link of ours.
const OWN: [&str; 3] = [
    "sec-fetch-site: none\r\nsec-fetch-mode: navigate\r\n",
    "sec-fetch-site: same-origin\r\nsec-fetch-mode: navigate\r\n",
    "referer: http://localhost/jobs\r\n",
];

#[test]
fn another_site_can_lead_a_browser_to_pages_and_to_nothing_else() {
    let house = ServerHouse::new();
    let job_id = house.submit("hello").to_string();
    let mut files = Vec::new();
    let mut pages = 0;
    for (method, pattern, access) in stepward::server::every_route() {
        let is_health = matches!(pattern, "/healthz" | "/readyz");
        if method != "GET" || access.is_for_workers() || is_health {
            continue;
        }
        let path = pattern
            .replace("{job}", &job_id)
            .replace("{step}", "greet")
            .replace("{task}", "hello");
        let path = match path.ends_with("/logs") {
            true => format!("{path}?raw=1"),
            false => path,
        };
        let own = OWN.map(|headers| house.ask("GET", &path, headers, b""));
        for own in &own {
            assert_ne!(own.status, 403, "{path}: {:?}", own.header("content-type"));
        }
        let is_page = |answer: &Answer| {
            let kind = answer.header("content-type").unwrap_or_default();
            kind.starts_with("text/html") && answer.header("content-disposition").is_none()
        };
        for headers in LED {
            let led = house.ask("GET", &path, headers, b"");
            match is_page(&led) {
                true if led.status == 403 => files.push(path.clone()),
                true => pages += 1,
                false if led.status == 303 => {}
                false => {
                    let code = led.refused(403);
                    assert_eq!(code, "cross_site", "{path}");
                    files.push(path.clone());
                }
            }
        }
        if own.iter().any(|own| own.status == 200 && !is_page(own)) {
            assert!(files.contains(&path), "{path} is given to another site");
        }
    }
    assert!(pages > 30, "pages may be linked from elsewhere: {pages}");
    for file in [
        format!("/api/jobs/{job_id}/steps/greet/logs?raw=1"),
        format!("/jobs/{job_id}/graph.svg"),
        "/api/jobs".to_string(),
        "/api/backup".to_string(),
        "/metrics".to_string(),
    ] {
        assert!(files.contains(&file), "{file}");
    }
}

#[test]
fn no_browser_can_be_made_to_take_a_backup() {
    let house = ServerHouse::new();
    // Nobody is asked for a token here, so whatever reaches the handler takes a backup.
    for headers in [
        "",
        OWN[0],
        OWN[1],
        "authorization: Bearer \r\n",
        "authorization: Basic YTpi\r\n",
    ] {
        for method in ["GET", "HEAD"] {
            let mut line = house.line();
            line.ask(method, "/api/backup", headers, b"");
            let answer = match method {
                "HEAD" => line.bare_head(),
                _ => line.answer(),
            };
            assert_eq!(answer.status, 405, "{method} {headers:?}");
            assert_eq!(answer.header("allow"), Some("POST"));
        }
        let message = house.ask("GET", "/api/backup", headers, b"").message();
        assert!(
            message.contains("POST") && message.contains("upgrade it"),
            "{message}"
        );
    }
    let led = [
        "sec-fetch-site: cross-site\r\n",
        "sec-fetch-site: same-site\r\n",
        "origin: null\r\n",
        "origin: https://evil.example\r\n",
        "origin: null\r\ncontent-type: application/x-www-form-urlencoded\r\n",
    ];
    for headers in led.into_iter().chain(LED) {
        for method in ["GET", "POST"] {
            let answer = house.ask(method, "/api/backup", headers, b"");
            let code = answer.refused(403);
            assert_eq!(code, "cross_site", "{method} {headers}");
        }
    }
    let events = house.get("/api/events").text();
    assert!(!events.contains("backup_made"), "{events}");

    let json = "content-type: application/json\r\n";
    for (method, headers, body) in [
        ("POST", "", &b""[..]),
        ("POST", json, b"{}"),
        ("GET", "authorization: Bearer any\r\n", b""),
    ] {
        let backup = house.take_backup(method, headers, body);
        assert_eq!(backup.status, 200);
        assert_eq!(backup.header("content-type"), Some("application/x-tar"));
        let disposition = backup.header("content-disposition").unwrap();
        assert!(disposition.starts_with("attachment"), "{disposition}");
        stepward::backup::look(&*backup.body).unwrap();
    }
}
