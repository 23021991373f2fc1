//! The real binary with a wall clock that is set to any time while it runs: nothing panics, jobs run, and no schedule takes a
//! step of the clock for an absence.
//!
//! The clock is moved by a library in front of the C library's `clock_gettime`, which adds the seconds that a file holds. Another file
//! names a thread: the next time that this thread reads the wall clock, the reading fails, which is a panic.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use stepward::wire::api::{FireJson, List, ScheduleJson};

use crate::house::{House, PATIENT, await_that};

const MOVED_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static int fails_now(void) {
    const char *name = getenv("FAILING_CLOCK_FILE");
    char thread[32] = {0}, self[32] = {0};
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return 0;
    ssize_t length = read(file, thread, sizeof thread - 1);
    close(file);
    prctl(PR_GET_NAME, self, 0, 0, 0);
    return length > 0 && !strncmp(self, thread, strlen(thread)) && unlink(name) == 0;
}

int clock_gettime(clockid_t id, struct timespec *time) {
    static int (*usual)(clockid_t, struct timespec *);
    if (!usual) usual = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    if (id == CLOCK_REALTIME && fails_now()) return -1;
    int result = usual(id, time);
    const char *name = getenv("MOVED_CLOCK_FILE");
    if (id != CLOCK_REALTIME || result != 0 || !name) return result;
    char text[32] = {0};
    int file = open(name, O_RDONLY | O_CLOEXEC);
    if (file < 0) return result;
    if (read(file, text, sizeof text - 1) > 0) time->tv_sec += atoll(text);
    close(file);
    return result;
}
"#;

const YEAR_SECS: i64 = 365 * 86_400;

fn build_moved_clock(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    fs::write(&source, MOVED_CLOCK).unwrap();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .status();
    assert!(
        built.unwrap().success(),
        "a C compiler is needed to build us"
    );
    library
}

fn header(house: &House, name: &str) -> String {
    let address = house.url();
    let mut stream = TcpStream::connect(address.strip_prefix("http://").unwrap()).unwrap();
    let request = "GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let prefix = format!("{name}: ");
    let line = answer.lines().find_map(|line| line.strip_prefix(&prefix));
    line.unwrap_or_else(|| panic!("{answer}")).to_string()
}

fn next_at(house: &House) -> Option<i64> {
    let schedule: ScheduleJson = house.get("/api/schedules/tick.often");
    schedule.next_at.map(|at| at.0.0)
}

fn jobs_made(house: &House) -> usize {
    let path = "/api/schedules/tick.often/fires?limit=500";
    let fires: List<FireJson> = house.get(path);
    let made = fires.items.iter().filter(|fire| fire.job_id.is_some());
    made.count()
}

#[test]
fn a_clock_that_is_set_to_any_time_ends_no_thread_and_makes_no_flood_of_jobs() {
    let workflows = "
tasks:
  greet:
    flow:
      hello: { script: 'echo hello' }
  tick:
    flow:
      tock: { script: 'true' }
    schedules:
      often: { cron: '*/2 * * * * *', overlap: allow, catch_up: all }
";
    let settings = format!("embedded_worker: {{ slots: 2 }}\n{PATIENT}");
    let mut house = House::with_settings(workflows, &settings);
    assert!(house.stop_server());
    let library = build_moved_clock(house.folder.path());
    let file = house.path("clock");
    let set_clock = |secs: i64| {
        let new = file.with_extension("new");
        fs::write(&new, secs.to_string()).unwrap();
        fs::rename(new, &file).unwrap();
    };
    set_clock(10_000 * YEAR_SECS);
    house.server_variables = vec![
        ("LD_PRELOAD", library.to_str().unwrap().to_string()),
        ("MOVED_CLOCK_FILE", file.to_str().unwrap().to_string()),
        ("STEPWARD_LOG", "debug".to_string()),
    ];
    let (begun, made_before) = (Instant::now(), 30);
    house.start_server();

    // Beyond the year 12,000: every thread that logs, answers, sweeps, polls and reports does its work.
    assert_eq!(header(&house, "date"), "Thu, 30 Dec 9999 22:00:00 GMT");
    let job_id = house.submit("greet");
    let job = house.await_job(job_id, "completed");
    let shown = serde_json::to_value(job.created_at).unwrap();
    assert_eq!(shown, "9999-12-30T22:00:00.000Z");
    await_that("no cron counts so far", || {
        next_at(&house).is_none().then_some(())
    });

    for secs in [0, 10 * YEAR_SECS, -50 * YEAR_SECS, 0] {
        let before = jobs_made(&house);
        set_clock(secs);
        await_that("the schedule follows the clock and fires", || {
            (jobs_made(&house) > before).then_some(())
        });
        assert!(next_at(&house).is_some());
    }
    let job_id = house.submit("greet");
    house.await_job(job_id, "completed");
    let date = jiff::fmt::rfc2822::parse(&header(&house, "date")).unwrap();
    let off_by = date.duration_since(&jiff::Zoned::now()).abs();
    assert!(off_by.as_secs() < 60, "the date of an answer is {date}");
    // One in two seconds, a few for each step, and those of the first start with a clock that was right.
    let real_max = begun.elapsed().as_secs() as usize / 2 + 6 * 5 + made_before;
    let made = jobs_made(&house);
    assert!(made <= real_max, "{made} jobs, {real_max} at most");
    let said = house.server().said();
    assert!(!said.contains("panicked"), "{said}");
}

/// Asks for a page and does not mind if no answer comes.
fn knock(house: &House) {
    let address = house.url();
    let Ok(mut stream) = TcpStream::connect(address.strip_prefix("http://").unwrap()) else {
        return;
    };
    let request = "GET /api/workers HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let mut answer = String::new();
    let _ = stream.write_all(request.as_bytes());
    let _ = stream.read_to_string(&mut answer);
}

#[test]
fn a_clock_that_cannot_be_read_once_costs_one_item_and_never_the_server() {
    let workflows = "
tasks:
  greet:
    flow:
      hello: { script: 'echo hello' }
    schedules:
      daily: { cron: '@daily' }
";
    let settings = format!("embedded_worker: {{ slots: 2 }}\n{PATIENT}");
    let mut house = House::with_settings(workflows, &settings);
    assert!(house.stop_server());
    let library = build_moved_clock(house.folder.path());
    let file = house.path("failing");
    house.server_variables = vec![
        ("LD_PRELOAD", library.to_str().unwrap().to_string()),
        ("FAILING_CLOCK_FILE", file.to_str().unwrap().to_string()),
    ];
    house.start_server();
    for thread in ["people", "http", "sweeper", "scheduler"] {
        let new = file.with_extension("new");
        fs::write(&new, thread).unwrap();
        fs::rename(new, &file).unwrap();
        await_that("the thread reads the clock, which fails", || {
            knock(&house);
            (!file.exists()).then_some(())
        });
        header(&house, "date");
        let job_id = house.submit("greet");
        house.await_job(job_id, "completed");
    }
    let said = house.server().said();
    let skipped = said.matches("met a bug in the server").count();
    assert_eq!(skipped, 4, "each is logged once: {said}");
    assert!(house.stop_server(), "and it ends well");
}
