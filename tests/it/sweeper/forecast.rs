//! The forecast: what the next sweeps will do, told by those who will do it.

use stepward::domain::Uptime;
use stepward::domain::recovery::Foreseen;
use stepward::domain::retry::OnWorkerLoss;
use stepward::domain::task::{StepDraft, TaskDraft};
use stepward::sweeper::{recovery_forecast, sweep_once};

use crate::house::{TestHouse, script};

fn forecast(house: &TestHouse) -> Vec<Foreseen> {
    let forecast = recovery_forecast(&house.engine, house.now()).unwrap();
    assert!(forecast.failures.is_empty() && !forecast.more);
    forecast.foreseen
}

fn told(house: &TestHouse) -> Vec<String> {
    let told = forecast(house).into_iter().map(|foreseen| {
        let recovery = &foreseen.recovery;
        let reason = recovery.reason.map_or("", |reason| reason.as_str());
        let (phase, deed) = (recovery.phase.number(), recovery.deed);
        format!("{phase} {deed} {reason} in {} ms", foreseen.in_ms)
    });
    told.collect()
}

#[test]
fn it_says_what_will_happen_to_whom_and_when() {
    let house = TestHouse::new();
    house.submit(vec![
        StepDraft {
            timeout_ms: Some(200_000),
            ..script("runs")
        },
        StepDraft {
            on_worker_loss: OnWorkerLoss::Hold,
            ..script("held")
        },
        script("assigned"),
    ]);
    house.submit_tasks(vec![TaskDraft {
        queue_timeout_ms: Some(150_000),
        ..TaskDraft::new(
            "odd",
            vec![StepDraft {
                tags: vec!["gpu".to_string()],
                ..script("a")
            }],
        )
    }]);
    let ann = house.worker("ann", &[], 3);
    for given in &ann.poll(3, &[]).assignments[..2] {
        ann.start(given.attempt);
    }
    house.clock.advance_ms(20_000);
    // The worker is not late yet, so nothing is said of it.
    assert_eq!(
        told(&house),
        [
            "4 fail unmatched in 10000 ms",
            "1 requeue  in 40000 ms",
            "3 cancel queue_timeout in 130000 ms",
            "2 fail step_timeout in 180000 ms"
        ]
    );
    house.clock.advance_ms(30_000);
    assert_eq!(
        told(&house),
        [
            "4 fail unmatched in 0 ms",
            "1 requeue  in 10000 ms",
            "1 mark_inactive  in 70000 ms",
            "1 fail worker_lost in 70000 ms",
            "1 hold worker_lost in 70000 ms",
            "1 requeue  in 70000 ms",
            "3 cancel queue_timeout in 100000 ms",
            "2 fail step_timeout in 150000 ms"
        ]
    );
}

#[test]
fn every_action_of_a_sweep_was_in_the_forecast_before() {
    let house = TestHouse::new();
    for n in 0..20 {
        let loss = OnWorkerLoss::ALL[n % OnWorkerLoss::ALL.len()];
        house.submit(vec![
            StepDraft {
                on_worker_loss: loss,
                timeout_ms: Some(40_000 + 9_000 * n as i64),
                ..script("a")
            },
            script("b").after(&["a"]),
            StepDraft {
                timeout_ms: Some(60_000),
                ..StepDraft::approval("ok", "go?")
            },
        ]);
    }
    let names = ["ann", "bob", "cid", "dan"];
    let workers = names.map(|name| {
        house.clock.advance_ms(7_000);
        house.worker(name, &[], 3)
    });
    for worker in &workers {
        for given in worker.poll(3, &[]).assignments.iter().take(2) {
            worker.start(given.attempt);
        }
    }
    let mut deeds = 0;
    while house.now().up < Uptime(900_000) {
        let forecast = forecast(&house);
        house.clock.advance_ms(5_000);
        if house.now().up.0 % 50_000 < 5_000 {
            continue; // two forecasts later
        }
        let now = house.now();
        let report = sweep_once(&house.engine, now);
        assert!(report.failures.is_empty());
        for done in &report.recoveries {
            let foreseen = forecast
                .iter()
                .find(|foreseen| foreseen.recovery == *done)
                .unwrap_or_else(|| panic!("{done:?} was not foreseen: {forecast:#?}"));
            assert!(foreseen.at_up <= now.up, "{foreseen:?}");
        }
        deeds += report.recoveries.len();
    }
    assert!(deeds > 40, "{deeds}");
}

#[test]
fn a_forecast_changes_nothing() {
    let house = TestHouse::new();
    house.submit(vec![script("a")]);
    house.clock.advance_ms(31_000);
    let events = house.events().len();
    let first = forecast(&house);
    assert_eq!(forecast(&house), first);
    assert_eq!(first.len(), 1);
    assert_eq!(house.events().len(), events);
}

#[test]
fn a_row_that_cannot_be_read_does_not_hide_the_others() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a"), script("b")]);
    house.clock.advance_ms(10_000);
    let sql = rusqlite::Connection::open(house.database()).unwrap();
    let poison = house.step(job, "a").step_id.0;
    let set = |reason: Option<&str>| {
        let update = "UPDATE step SET reason = ?1 WHERE step_id = ?2";
        sql.execute(update, (reason, poison)).unwrap();
    };
    set(Some("rubbish"));
    let forecast = recovery_forecast(&house.engine, house.now()).unwrap();
    assert_eq!(forecast.foreseen.len(), 1);
    assert_eq!(forecast.failures.len(), 1);
    set(None);
}

#[test]
fn one_dead_worker_among_living_ones_is_told_as_that() {
    let house = TestHouse::new();
    house.submit(vec![script("a")]);
    let dead = house.worker("dead", &[], 1);
    dead.begin();
    let others = ["bob", "cid"].map(|name| house.worker(name, &[], 1));
    for secs in 1..=110 {
        house.clock.advance_ms(1_000);
        for (n, worker) in others.iter().enumerate() {
            if (secs + 10 * n as i64) % 30 == 0 {
                worker.heartbeat(secs, &[]);
            }
        }
        let told: Vec<_> = forecast(&house)
            .into_iter()
            .filter(|foreseen| foreseen.recovery.phase.number() == 1)
            .map(|foreseen| foreseen.recovery.deed.as_str())
            .collect();
        match secs {
            ..45 => assert!(told.is_empty(), "{secs} s: {told:?}"),
            _ => assert_eq!(told, ["mark_inactive", "fail"], "{secs} s"),
        }
    }
}
