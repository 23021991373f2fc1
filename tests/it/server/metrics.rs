//! `/metrics`: every series is there from the first moment, and what is asked for is counted by its route.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use stepward::server::Limits;

use super::{ServerHouse, until};
use crate::exposition::Exposition;

const JOB_REASONS: &str = "exit_code signal spawn_error template_error payload_error output_invalid worker_lost worker_restarted \
    worker_deleted worker_forgot worker_shutdown assignment_exhausted step_timeout approval_timeout approval_rejected job_timeout \
    queue_timeout unmatched dependency_not_accepted when_false empty_loop child_failed instance_failed failed_by_user cancelled_by_user \
    cancelled_by_parent child_cancelled superseded overlap_skipped";

/// What is promised: a family, its type, its label and all its values. Those that need not be 0 come last.
const PROMISED: &[(&str, &str, &str, &str)] = &[
    (
        "limited_requests_total",
        "counter",
        "limit",
        "event_streams downloads queued_requests body_bytes answer_bytes submissions logins session_opens wrong_tokens",
    ),
    ("jobs", "gauge", "status", "pending running"),
    (
        "jobs_created_total",
        "counter",
        "source",
        "submit task retry hook schedule webhook",
    ),
    (
        "steps",
        "gauge",
        "status",
        "pending ready assigned running suspended",
    ),
    (
        "waiting_steps",
        "gauge",
        "reason",
        "dependencies not_before retry_backoff concurrency paused approval held child_job instances no_matching_worker \
         matching_workers_silent workers_busy claimable preparing",
    ),
    (
        "queue_oldest_seconds",
        "gauge",
        "reason",
        "paused no_matching_worker matching_workers_silent workers_busy claimable",
    ),
    (
        "store_errors_total",
        "counter",
        "kind",
        "busy full outcome_unknown lost stopped panicked unreadable sqlite pool",
    ),
    ("workers", "gauge", "status", "active inactive"),
    ("worker_slots", "gauge", "state", "used free"),
    (
        "assignments_total",
        "counter",
        "result",
        "assigned started declined worker_lost worker_restarted worker_deleted ack_timeout prepare_timeout requeued_by_user exhausted",
    ),
    ("fenced_reports_total", "counter", "", ""),
    ("backup_failures_total", "counter", "", ""),
    (
        "panics_total",
        "counter",
        "place",
        "transaction request sweeper scheduler reaper outbox polls event_streams workflows backup audit",
    ),
    ("backup_last_success_timestamp_seconds", "gauge", "", ""),
    ("certificate_expires_timestamp_seconds", "gauge", "", ""),
    (
        "schedule_fires_total",
        "counter",
        "result",
        "fired caught_up skipped missed paused queued refused",
    ),
    ("schedule_lag_seconds", "gauge", "", ""),
    ("outbox_pending", "gauge", "", ""),
    ("long_polls", "gauge", "", ""),
    ("event_streams", "gauge", "", ""),
    ("log_bytes", "gauge", "", ""),
];

const NOT_ZERO: &[(&str, &str)] = &[
    ("recovery_sweeps_total", "counter"),
    ("store_commits_total", "counter"),
    ("recovery_last_sweep_timestamp_seconds", "gauge"),
    ("db_bytes", "gauge"),
    ("wal_bytes", "gauge"),
    ("disk_free_bytes", "gauge"),
];

const HISTOGRAMS: &[&str] = &[
    "step_wait_seconds",
    "step_duration_seconds",
    "recovery_sweep_seconds",
    "store_write_seconds",
    "store_batch_size",
    "heartbeat_age_seconds",
];

const ACTIONS: &[(&str, &str)] = &[
    (
        "1",
        "worker_lost worker_restarted worker_deleted worker_forgot assignment_exhausted worker_inactive workers_silent step_requeued",
    ),
    ("2", "step_timeout approval_timeout"),
    ("3", "job_timeout queue_timeout"),
    ("4", "unmatched"),
];

/// Past the second for which an answer is shared.
fn scrape(house: &ServerHouse) -> Exposition {
    let mut before = house.get("/metrics").text();
    until("the answer is a new one", || {
        let now = house.get("/metrics").text();
        let is_new = now != before;
        before = now;
        is_new
    });
    Exposition::read(&before)
}

#[test]
fn a_fresh_server_has_every_series_that_is_promised_at_zero() {
    let house = ServerHouse::new();
    let answer = house.get("/metrics");
    assert_eq!(
        answer.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    let page = Exposition::read(&answer.text());
    let mut zeros = BTreeSet::new();
    let mut families = BTreeSet::new();
    for (family, kind, label, values) in PROMISED {
        let family = format!("stepward_{family}");
        assert_eq!(
            page.families.get(&family).map(String::as_str),
            Some(*kind),
            "{family}"
        );
        match *label {
            "" => drop(zeros.insert(family.clone())),
            label => zeros.extend(
                (values.split_whitespace()).map(|value| format!("{family}{{{label}=\"{value}\"}}")),
            ),
        }
        families.insert(family);
    }
    for family in [
        "stepward_jobs_finished_total",
        "stepward_steps_finished_total",
    ] {
        families.insert(family.to_string());
        zeros.insert(format!("{family}{{status=\"completed\",reason=\"none\"}}"));
        for status in ["failed", "cancelled", "skipped"] {
            for reason in JOB_REASONS.split_whitespace() {
                zeros.insert(format!(
                    "{family}{{status=\"{status}\",reason=\"{reason}\"}}"
                ));
            }
        }
    }
    families.insert("stepward_recovery_actions_total".to_string());
    for (phase, reasons) in ACTIONS {
        for reason in reasons.split_whitespace() {
            let labels = format!("{{phase=\"{phase}\",reason=\"{reason}\"}}");
            zeros.insert(format!("stepward_recovery_actions_total{labels}"));
        }
    }
    for series in &zeros {
        assert_eq!(page.value(series), 0.0, "{series}");
    }
    // And of these families there is no other series.
    for series in page.samples.keys() {
        let family = series.split('{').next().unwrap();
        assert!(
            !families.contains(family) || zeros.contains(series),
            "{series} is new"
        );
    }
    for (family, kind) in NOT_ZERO {
        let family = format!("stepward_{family}");
        assert_eq!(page.families[&family], *kind, "{family}");
        page.value(&family);
        families.insert(family);
    }
    for family in HISTOGRAMS {
        let family = format!("stepward_{family}");
        assert_eq!(page.families[&family], "histogram", "{family}");
        page.value(&format!("{family}_bucket{{le=\"+Inf\"}}"));
        families.insert(family);
    }
    for route in ["/healthz", "/api/jobs/{job}", "/api/worker/poll", "none"] {
        for code in ["2xx", "3xx", "4xx", "5xx"] {
            let labels = format!("{{route=\"{route}\",code=\"{code}\"}}");
            assert_eq!(
                page.value(&format!("stepward_http_requests_total{labels}")),
                0.0
            );
        }
        let labels = format!("{{route=\"{route}\",le=\"+Inf\"}}");
        assert_eq!(
            page.value(&format!("stepward_http_request_seconds_bucket{labels}")),
            0.0
        );
    }
    let version = env!("CARGO_PKG_VERSION");
    let info = format!("stepward_build_info{{version=\"{version}\",");
    assert_eq!(
        page.samples
            .keys()
            .filter(|series| series.starts_with(&info))
            .count(),
        1
    );
    families.extend(
        ["http_requests_total", "http_request_seconds", "build_info"]
            .map(|family| format!("stepward_{family}")),
    );
    families.extend(
        ["start_time_seconds", "resident_memory_bytes", "open_fds"]
            .map(|family| format!("process_{family}")),
    );
    let shown: BTreeSet<String> = page.families.keys().cloned().collect();
    assert_eq!(shown, families, "nothing but what is promised");
}

#[test]
fn requests_are_counted_by_the_pattern_of_their_route_whatever_is_asked_for() {
    let house = ServerHouse::new();
    let job_id = house.submit("hello");
    for path in ["/nowhere", "/api/jobs/1/2/3", "/..%2f", "/nothing/here"] {
        assert_eq!(house.get(path).status, 404, "{path}");
    }
    assert_eq!(house.get("/api/jobs/77").status, 404);
    assert_eq!(house.get(&format!("/api/jobs/{job_id}")).status, 200);
    assert_eq!(house.post("/api/jobs/1", &json!({})).status, 405);
    let page = scrape(&house);
    let count = |route: &str, code: &str| {
        let labels = format!("{{route=\"{route}\",code=\"{code}\"}}");
        page.value(&format!("stepward_http_requests_total{labels}"))
    };
    assert_eq!(count("none", "4xx"), 5.0, "and a method that is not there");
    assert_eq!(count("/api/jobs/{job}", "4xx"), 1.0);
    assert_eq!(count("/api/jobs/{job}", "2xx"), 1.0);
    assert_eq!(count("/api/tasks/{task}/jobs", "2xx"), 1.0);
    let labels = "{route=\"/api/jobs/{job}\"}";
    assert_eq!(
        page.value(&format!("stepward_http_request_seconds_count{labels}")),
        2.0
    );
    assert_eq!(page.value("stepward_jobs{status=\"pending\"}"), 1.0);
    assert_eq!(
        page.value("stepward_jobs_created_total{source=\"submit\"}"),
        1.0
    );
    assert_eq!(
        page.value("stepward_waiting_steps{reason=\"no_matching_worker\"}"),
        1.0
    );
}

#[test]
fn whoever_asks_within_a_second_is_told_the_same_and_a_squeezed_answer_is_the_same_text() {
    let house = ServerHouse::new();
    let page = scrape(&house);
    let begun = Instant::now();
    let shared = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| house.get("/metrics").text()))
            .collect();
        let texts: BTreeSet<String> = asking
            .into_iter()
            .map(|text| text.join().unwrap())
            .collect();
        texts.len()
    });
    let seconds = begun.elapsed().as_secs() as usize;
    assert!(
        shared <= seconds + 2,
        "{shared} answers, one for each second and the ends of it"
    );
    assert!(page.samples.len() > 500);
    let squeezed = house.ask("GET", "/metrics", "accept-encoding: gzip\r\n", b"");
    assert_eq!(squeezed.header("content-encoding"), Some("gzip"));
}

#[test]
fn counts_are_not_for_everybody_where_there_is_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "a-token-of-many-letters").unwrap();
    let house = ServerHouse::with(Limits::default(), |config| {
        config.auth.token_file = Some(file.clone());
    });
    assert_eq!(house.get("/metrics").status, 401);
    let allowed = "authorization: Bearer a-token-of-many-letters\r\n";
    assert_eq!(house.ask("GET", "/metrics", allowed, b"").status, 200);
    assert_eq!(house.ask("GET", "/metrics?x=1", allowed, b"").status, 422);
}

/// Every name that an expression uses, as far as it is ours.
fn names_in(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("stepward_") || word.starts_with("process_"))
}

fn check_expression(page: &Exposition, expression: &str) {
    for name in names_in(expression) {
        let is_there = page.families.contains_key(name)
            || ["_bucket", "_sum", "_count"].iter().any(|suffix| {
                let family = name.strip_suffix(suffix);
                let kind = family.and_then(|family| page.families.get(family));
                kind.is_some_and(|kind| kind == "histogram")
            });
        assert!(is_there, "there is no {name}: {expression}");
    }
}

#[test]
fn the_dashboard_and_the_alerts_speak_of_what_there_is() {
    let house = ServerHouse::new();
    let page = Exposition::read(&house.get("/metrics").text());
    let dashboard = std::fs::read("packaging/grafana/stepward.json").unwrap();
    let dashboard: Value = serde_json::from_slice(&dashboard).unwrap();
    let (mut ids, mut panels) = (BTreeSet::new(), 0);
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_i64().unwrap()), "{panel}");
        assert!(!panel["title"].as_str().unwrap().is_empty(), "{panel}");
        if panel["type"] == "row" {
            continue;
        }
        panels += 1;
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{panel}");
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{panel}");
        for target in targets {
            let expression = target["expr"].as_str().unwrap();
            assert!(names_in(expression).next().is_some(), "{expression}");
            check_expression(&page, expression);
        }
    }
    assert!(panels > 12, "{panels}");
    let rules = std::fs::read_to_string("packaging/prometheus/alerts.yml").unwrap();
    let rules: Value = serde_yaml::from_str(&rules).unwrap();
    let rules = rules["groups"][0]["rules"].as_array().unwrap();
    assert!(rules.len() > 8);
    for rule in rules {
        check_expression(&page, rule["expr"].as_str().unwrap());
        assert!(
            rule["alert"].as_str().unwrap().starts_with("Stepward"),
            "{rule}"
        );
        for text in ["summary", "description"] {
            assert!(rule["annotations"][text].is_string(), "{rule}");
        }
        assert!(["warning", "critical"].contains(&rule["labels"]["severity"].as_str().unwrap()));
    }
}

/// `false`: this machine has none, and says so. `tests/all` installs it.
fn promtool(args: &[&str], input: &[u8]) -> bool {
    let started = Command::new("promtool")
        .args(args)
        .current_dir("packaging/prometheus")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = started else {
        eprintln!("not checked: there is no promtool here");
        return false;
    };
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promtool {args:?}: {said}");
    true
}

#[test]
fn promtool_takes_the_answer_the_alerts_and_their_stories() {
    let house = ServerHouse::new();
    house.submit("hello");
    if promtool(
        &["check", "metrics"],
        house.get("/metrics").text().as_bytes(),
    ) {
        promtool(&["check", "rules", "alerts.yml"], b"");
        promtool(&["test", "rules", "alerts.test.yml"], b"");
    }
}
