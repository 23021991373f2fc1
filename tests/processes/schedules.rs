//! Schedules of a server that dies: every time that was due is in the ledger once, with the one job that it made.

use std::collections::BTreeSet;

use stepward::wire::api::{FireJson, List, ScheduleJson};

use crate::house::{House, PATIENT, await_that};

const OFTEN: &str = "/api/schedules/tick.often";

/// Its whole ledger, the oldest first.
fn fires(house: &House) -> Vec<FireJson> {
    let mut fires = Vec::new();
    let mut before = String::new();
    loop {
        let page: List<FireJson> = house.get(&format!("{OFTEN}/fires?limit=500{before}"));
        fires.extend(page.items);
        match page.next {
            Some(next) => before = format!("&before={next}"),
            None => break,
        }
    }
    fires.reverse();
    fires
}

#[test]
fn a_server_killed_around_every_second_loses_none_and_doubles_none() {
    let workflows = "
tasks:
  tick:
    flow:
      tock: { script: 'echo \"$STEPWARD_JOB_ID $STEPWARD_SCHEDULED_AT\" >> LEDGER' }
    schedules:
      often: { cron: '* * * * * *', overlap: allow, catch_up: all }
";
    let mut house = House::with_settings(workflows, PATIENT);
    let _worker = house.worker(4);
    for _ in 0..6 {
        let before = fires(&house).len();
        await_that("it fires", || (fires(&house).len() > before).then_some(()));
        house.kill_server();
        house.start_server();
    }
    let before = fires(&house).len();
    await_that("it goes on", || {
        (fires(&house).len() > before + 1).then_some(())
    });
    let _: ScheduleJson = house.post(&format!("{OFTEN}/pause")).unwrap();

    let fires = fires(&house);
    let fired: Vec<&FireJson> = fires
        .iter()
        // A start that takes more than ten seconds makes them late, and no more than that.
        .filter(|fire| ["fired", "caught_up"].contains(&fire.outcome.as_str()))
        .collect();
    let passed = fires.iter().skip(fired.len());
    assert!(
        passed.clone().all(|fire| fire.outcome == "paused"),
        "{fires:?}"
    );
    assert!(fired.len() > 7, "{fired:?}");
    let first_ms = fired[0].due_at.0.0;
    for (index, fire) in fired.iter().enumerate() {
        let meant_ms = first_ms + index as i64 * 1_000;
        assert_eq!(
            fire.due_at.0.0, meant_ms,
            "no second is left out: {fires:?}"
        );
    }
    let mut meant = BTreeSet::new();
    for fire in &fired {
        let job_id = fire.job_id.expect("it has its job");
        let job = house.await_job(job_id, "completed");
        assert_eq!(job.source, "schedule");
        assert_eq!(job.scheduled_for, Some(fire.due_at));
        let at = serde_json::to_value(fire.due_at).unwrap();
        meant.insert(format!("{job_id} {}", at.as_str().unwrap()));
    }
    // What the steps say themselves: each ran once and knew its time.
    let ledger = house.read("ledger");
    assert_eq!(ledger.lines().count(), fired.len());
    let ran: BTreeSet<String> = ledger.lines().map(str::to_string).collect();
    assert_eq!(ran, meant);
    house.check();
}

#[test]
fn a_schedule_that_comes_while_the_server_waits_for_another_fires() {
    let rare = "
tasks:
  rare:
    flow:
      a: { script: 'true' }
    schedules:
      leap_day: { cron: '0 0 29 2 *' }
";
    let house = House::with_settings(rare, PATIENT);
    let named = |name: &str| {
        let all: List<ScheduleJson> = house.get("/api/schedules");
        all.items.into_iter().find(|schedule| schedule.name == name)
    };
    assert!(named("leap_day").is_some_and(|leap_day| leap_day.last.is_none()));
    let often = "
tasks:
  tick:
    flow:
      tock: { script: 'true' }
    schedules:
      often: { cron: '* * * * * *', overlap: allow }
";
    house.write_workflow("often.yaml", often);
    await_that("it has fired", || {
        let last = named("often")?.last?;
        (last.outcome == "fired").then_some(())
    });
    assert!(named("leap_day").is_some_and(|leap_day| leap_day.last.is_none()));
    house.check();
}
