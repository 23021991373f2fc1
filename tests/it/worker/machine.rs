//! A worker's mind, without a process and without a server: what it says and does, given what it hears and when.

use stepward::domain::peer::Features;
use stepward::domain::protocol::{
    Assignment, BeatAnswer, Finished, News, OpenedSession, PollAnswer, Registration, Reports,
    ReportsAnswer, Spooled, Verdict,
};
use stepward::domain::reason::Reason;
use stepward::domain::settings::Settings;
use stepward::domain::task::StepDraft;
use stepward::domain::{AttemptRef, JobId, Json, SessionId, StepId, WorkerId};
use stepward::worker::{Event, Machine, Order, Trouble};

use crate::house::registration;

/// A machine with its clock, and a record of what it ordered.
struct Mind {
    machine: Machine,
    now: i64,
}

fn attempt(step_id: i64, attempt: u32) -> AttemptRef {
    AttemptRef {
        step_id: StepId(step_id),
        attempt,
    }
}

fn assignment(attempt: AttemptRef) -> Assignment {
    Assignment {
        attempt,
        job_id: JobId(1),
        task: "main".to_string(),
        step: "a".to_string(),
        action: StepDraft::script("a", "true").action,
        env: Default::default(),
        workdir: None,
        masks: Vec::new(),
        input: Json::empty_object(),
        item: None,
        item_value: None,
        unrendered: None,
        scheduled_at: None,
        start: None,
        ack_timeout_ms: 60_000,
        prepare_timeout_ms: 900_000,
        timeout_ms: 100_000,
        fenced: false,
    }
}

/// The key of its first session.
fn life() -> String {
    "life".to_string()
}

fn given(assignments: Vec<Assignment>) -> Event {
    Event::Polled(
        life(),
        Ok(PollAnswer {
            assignments,
            abort: Vec::new(),
            draining: false,
            unreadable: Vec::new(),
        }),
    )
}

fn judged(verdicts: Vec<Verdict>) -> Event {
    Event::Reported(
        life(),
        Ok(ReportsAnswer {
            verdicts,
            ..ReportsAnswer::default()
        }),
    )
}

fn opened(spooled: Vec<Verdict>) -> Event {
    Event::Opened(Ok(OpenedSession {
        worker_id: WorkerId(1),
        session_id: SessionId(1),
        settings: Settings::default(),
        spooled,
        withheld: Vec::new(),
        server_features: Features::NONE,
    }))
}

fn beaten() -> Event {
    Event::Beaten(
        life(),
        Ok(BeatAnswer {
            abort: Vec::new(),
            draining: false,
        }),
    )
}

impl Mind {
    /// With a session that is open, one heartbeat answered and a poll under way.
    fn open() -> Mind {
        let mut mind = Mind::new(Vec::new());
        mind.tell(Event::Tick);
        mind.tell(opened(Vec::new()));
        mind.tell(beaten());
        mind
    }

    fn new(spool: Vec<Spooled>) -> Mind {
        let offer: Registration = registration("ann", "life", &[], 2);
        Mind {
            machine: Machine::new(offer, spool, 5_000),
            now: 5_000,
        }
    }

    fn tell(&mut self, event: Event) -> Vec<Order> {
        self.machine.handle(event, self.now)
    }

    /// Lets time pass to where it wants to be woken, at most so far.
    fn wait(&mut self, ms: i64) -> Vec<Order> {
        let until = self.now + ms;
        let mut orders = Vec::new();
        while self.machine.wakes_at() <= until {
            self.now = self.machine.wakes_at().max(self.now);
            orders.extend(self.tell(Event::Tick));
            if orders.len() > 100 {
                panic!("it never sleeps: {orders:?}");
            }
        }
        self.now = until;
        orders
    }

    /// Runs this attempt: given, prepared, allowed.
    fn run(&mut self, assignment: Assignment) {
        let attempt = assignment.attempt;
        self.tell(given(vec![assignment]));
        let orders = self.tell(Event::Prepared(attempt));
        assert_eq!(news(&orders), [(attempt, News::Started)]);
        let orders = self.tell(judged(vec![Verdict::Accepted]));
        assert!(matches!(&orders[0], Order::Run(run) if run.attempt == attempt));
    }
}

fn reports(orders: &[Order]) -> Vec<Reports> {
    let reports = orders.iter().filter_map(|order| match order {
        Order::Report(reports) => Some(reports.clone()),
        _ => None,
    });
    reports.collect()
}

fn news(orders: &[Order]) -> Vec<(AttemptRef, News)> {
    let reports = reports(orders).into_iter();
    reports.flat_map(|reports| reports.items).collect()
}

fn kills(orders: &[Order]) -> Vec<AttemptRef> {
    let kills = orders.iter().filter_map(|order| match order {
        Order::Kill { attempt, .. } => Some(*attempt),
        _ => None,
    });
    kills.collect()
}

fn ended(attempt: AttemptRef) -> Event {
    Event::Ended {
        attempt,
        finished: Finished::completed(),
    }
}

#[test]
fn nothing_runs_before_the_servers_yes() {
    let mut mind = Mind::open();
    let one = attempt(1, 1);
    let orders = mind.tell(given(vec![assignment(one)]));
    assert!(matches!(&orders[0], Order::Prepare { assignment, .. } if assignment.attempt == one));
    let orders = mind.tell(Event::Prepared(one));
    assert_eq!(news(&orders), [(one, News::Started)]);
    // No answer: it asks again, later and later, and runs nothing.
    for _ in 0..5 {
        let orders = mind.tell(Event::Reported(life(), Err(Trouble::Unreachable)));
        assert!(news(&orders).is_empty());
        let orders = mind.wait(30_000);
        assert_eq!(news(&orders), [(one, News::Started)]);
        assert!(!orders.iter().any(|order| matches!(order, Order::Run(_))));
    }
    let why = "the step is at attempt 2".to_string();
    let orders = mind.tell(judged(vec![Verdict::Abort { why }]));
    assert_eq!(kills(&orders), [one]);
}

#[test]
fn a_result_is_kept_before_it_is_told_and_until_it_is_answered() {
    let mut mind = Mind::open();
    let one = attempt(1, 1);
    mind.run(assignment(one));
    let orders = mind.tell(ended(one));
    assert!(matches!(&orders[0], Order::Keep(kept) if kept.attempt == one));
    let told = (one, News::Finished(Finished::completed()));
    assert_eq!(news(&orders), vec![told.clone()]);
    let orders = mind.tell(Event::Reported(life(), Err(Trouble::Unreachable)));
    assert!(!orders.iter().any(|order| matches!(order, Order::Forget(_))));
    assert_eq!(news(&mind.wait(30_000)), [told]);
    let orders = mind.tell(judged(vec![Verdict::Accepted]));
    assert!(matches!(orders[0], Order::Forget(found) if found == one));
}

#[test]
fn what_a_former_life_could_not_tell_is_handed_over_with_the_next_session() {
    let kept = Spooled {
        attempt: attempt(7, 3),
        session_key: "a former life".to_string(),
        finished: Finished::exited(2),
    };
    let mut mind = Mind::new(vec![kept]);
    let orders = mind.tell(Event::Tick);
    assert!(matches!(&orders[0], Order::Open { spooled, .. } if spooled.len() == 1));
    let orders = mind.tell(opened(vec![Verdict::Accepted]));
    assert!(matches!(orders[0], Order::Forget(found) if found == attempt(7, 3)));
}

#[test]
fn heartbeats_speak_of_everything_that_is_held_or_not_yet_told() {
    let mut mind = Mind::open();
    let (one, two) = (attempt(1, 1), attempt(2, 1));
    mind.run(assignment(one));
    mind.tell(given(vec![assignment(two)]));
    mind.tell(ended(one));
    let orders = mind.wait(30_000);
    let beat = orders.iter().find_map(|order| match order {
        Order::Beat(beat) => Some(beat),
        _ => None,
    });
    let held: Vec<AttemptRef> = beat.unwrap().held.iter().map(|held| held.attempt).collect();
    assert_eq!(held, [two, one]);
}

#[test]
fn preparation_is_kept_alive() {
    let mut mind = Mind::open();
    let one = attempt(1, 1);
    mind.tell(given(vec![assignment(one)]));
    assert_eq!(news(&mind.wait(19_999)), []);
    assert_eq!(news(&mind.wait(1)), [(one, News::KeepAlive)]);
    mind.tell(judged(vec![Verdict::Accepted]));
    assert_eq!(news(&mind.wait(20_000)), [(one, News::KeepAlive)]);
}

#[test]
fn a_replaced_session_takes_everything_with_it_and_the_next_one_has_another_key() {
    let mut mind = Mind::open();
    let one = attempt(1, 1);
    mind.run(assignment(one));
    let orders = mind.tell(Event::Polled(life(), Err(Trouble::SessionReplaced)));
    assert_eq!(kills(&orders), [one]);
    let key = orders.iter().find_map(|order| match order {
        Order::Open { registration, .. } => Some(registration.session_key.as_str()),
        _ => None,
    });
    assert_eq!(key, Some("life-2"));
    // Its end is nobody's news any more.
    assert!(mind.tell(ended(one)).is_empty());
}

#[test]
fn a_step_is_ended_when_its_time_is_up() {
    let mut mind = Mind::open();
    let one = attempt(1, 1);
    mind.run(assignment(one));
    assert_eq!(kills(&mind.wait(99_999)), []);
    assert_eq!(kills(&mind.wait(1)), [one]);
    let orders = mind.tell(ended(one));
    let told = news(&orders);
    assert!(
        matches!(&told[0].1, News::Finished(Finished::Failed { reason, .. }) if *reason == Reason::StepTimeout),
        "{told:?}"
    );
}

#[test]
fn what_may_be_tried_elsewhere_is_ended_before_the_server_gives_the_worker_up() {
    let mut mind = Mind::open();
    let (fenced, free) = (attempt(1, 1), attempt(2, 1));
    mind.run(Assignment {
        fenced: true,
        timeout_ms: 10_000_000,
        ..assignment(fenced)
    });
    mind.run(Assignment {
        timeout_ms: 10_000_000,
        ..assignment(free)
    });
    mind.tell(Event::Polled(life(), Err(Trouble::Unreachable)));
    mind.tell(Event::Beaten(life(), Err(Trouble::Unreachable)));
    let mut killed = Vec::new();
    let begun = mind.now;
    while killed.is_empty() {
        let orders = mind.wait(1_000);
        for order in &orders {
            match order {
                Order::Beat(_) => drop(mind.tell(Event::Beaten(life(), Err(Trouble::Unreachable)))),
                Order::Poll(_) => drop(mind.tell(Event::Polled(life(), Err(Trouble::Unreachable)))),
                _ => {}
            }
        }
        killed = kills(&orders);
    }
    assert_eq!(killed, [fenced], "the other one runs on and reports later");
    assert_eq!((mind.now - begun) / 1_000, 90);
}

#[test]
fn a_drain_gives_back_what_has_not_started_and_leaves_when_the_rest_is_told() {
    let mut mind = Mind::open();
    let (runs, prepares) = (attempt(1, 1), attempt(2, 1));
    mind.run(assignment(runs));
    mind.tell(given(vec![assignment(prepares)]));
    let orders = mind.tell(Event::Drain);
    assert_eq!(kills(&orders), [prepares]);
    assert!(matches!(&news(&orders)[0], (found, News::Declined { .. }) if *found == prepares));
    mind.tell(judged(vec![Verdict::Accepted]));
    let orders = mind.tell(given(vec![assignment(attempt(3, 1))]));
    assert!(matches!(news(&orders)[0].1, News::Declined { .. }));
    mind.tell(judged(vec![Verdict::Accepted]));
    let orders = mind.tell(ended(runs));
    assert!(!leaves(&orders));
    let orders = mind.tell(judged(vec![Verdict::Accepted]));
    assert!(!leaves(&orders), "the server does not know yet");
    assert!(leaves(&mind.tell(Event::Drained(life(), Ok(())))));
}

fn leaves(orders: &[Order]) -> bool {
    orders.iter().any(|order| matches!(order, Order::Leave))
}

#[test]
fn an_idle_worker_leaves_even_if_the_server_cannot_be_told() {
    let mut mind = Mind::open();
    let orders = mind.tell(Event::Drain);
    assert!(
        orders
            .iter()
            .any(|order| matches!(order, Order::Drain { .. }))
    );
    assert!(!leaves(&orders));
    assert!(leaves(
        &mind.tell(Event::Drained(life(), Err(Trouble::Unreachable)))
    ));
}

#[test]
fn a_worker_that_the_server_drains_leaves_when_it_is_done() {
    let mut mind = Mind::open();
    let orders = mind.tell(Event::Polled(
        life(),
        Ok(PollAnswer {
            assignments: Vec::new(),
            abort: Vec::new(),
            draining: true,
            unreadable: Vec::new(),
        }),
    ));
    assert!(leaves(&orders));
}

#[test]
fn a_worker_that_is_shut_out_calls_nobody_and_leaves_when_what_runs_has_ended() {
    let mut mind = Mind::open();
    let (one, two) = (attempt(1, 1), attempt(2, 1));
    mind.run(assignment(one));
    mind.tell(given(vec![assignment(two)]));
    mind.tell(Event::Prepared(two));
    let orders = mind.tell(Event::Beaten(life(), Err(Trouble::ShutOut)));
    assert_eq!(kills(&orders), [two], "it never has the server's yes");
    assert!(!leaves(&orders));
    assert!(mind.wait(60_000).is_empty());
    let orders = mind.tell(ended(one));
    assert!(
        matches!(&orders[..], [Order::Keep(_), Order::Leave]),
        "{orders:?}"
    );
    assert_eq!(mind.machine.is_shut_out(), Some(1));
}

#[test]
fn two_attempts_of_one_step_are_two_things() {
    let mut mind = Mind::open();
    let (first, second) = (attempt(1, 1), attempt(1, 2));
    mind.run(assignment(first));
    mind.tell(given(vec![assignment(second)]));
    let orders = mind.tell(Event::Beaten(
        life(),
        Ok(BeatAnswer {
            abort: vec![first],
            draining: false,
        }),
    ));
    assert_eq!(kills(&orders), [first]);
    assert_eq!(
        news(&mind.tell(Event::Prepared(second))),
        [(second, News::Started)]
    );
    assert_eq!(
        news(&mind.tell(given(vec![assignment(second)]))),
        [],
        "once"
    );
}

fn cancelled(attempt: AttemptRef) -> Event {
    Event::Polled(
        life(),
        Ok(PollAnswer {
            assignments: Vec::new(),
            abort: vec![attempt],
            draining: false,
            unreadable: Vec::new(),
        }),
    )
}

fn polls(orders: &[Order]) -> Vec<(u32, Vec<AttemptRef>)> {
    let polls = orders.iter().filter_map(|order| match order {
        Order::Poll(poll) => Some((poll.free_slots, poll.held.clone())),
        _ => None,
    });
    polls.collect()
}

#[test]
fn a_cancelled_step_has_its_slot_until_its_processes_are_gone() {
    let mut mind = Mind::open();
    let (one, two) = (attempt(1, 1), attempt(2, 1));
    mind.run(assignment(one));
    mind.run(assignment(two));
    let orders = mind.tell(cancelled(one));
    assert_eq!(kills(&orders), [one]);
    // The server does not hear of it again, so its cancel is over; but the slot is not free.
    assert_eq!(polls(&orders), [(0, vec![two])]);
    // The poll that waits says that nothing is free: the server is told as soon as it is not so any more.
    let orders = mind.tell(ended(one));
    let told = reports(&orders);
    assert_eq!(told.len(), 1, "{orders:?}");
    assert!(told[0].items.is_empty());
    assert_eq!(told[0].poll, Some((1, vec![two])));
    // Lost on its way: it is told again, and then not any more.
    mind.tell(Event::Reported(life(), Err(Trouble::Unreachable)));
    let told = reports(&mind.wait(1_000));
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].poll, Some((1, vec![two])));
    mind.tell(judged(Vec::new()));
    assert!(reports(&mind.wait(20_000)).is_empty());
}

#[test]
fn what_a_lost_session_ran_has_its_slots_in_the_next_until_it_is_gone() {
    let mut mind = Mind::open();
    let one = attempt(1, 1);
    mind.run(assignment(one));
    mind.tell(Event::Beaten(life(), Err(Trouble::SessionReplaced)));
    let orders = mind.tell(opened(Vec::new()));
    assert_eq!(polls(&orders), [(1, Vec::new())]);
    assert_eq!(
        reports(&mind.tell(ended(one)))[0].poll,
        Some((2, Vec::new()))
    );
}

#[test]
fn a_worker_does_not_leave_while_what_it_told_to_end_is_in_its_grace() {
    let mut mind = Mind::open();
    let one = attempt(1, 1);
    mind.run(assignment(one));
    mind.tell(cancelled(one));
    mind.tell(Event::Drain);
    assert!(!leaves(&mind.tell(Event::Drained(life(), Ok(())))));
    assert!(leaves(&mind.tell(ended(one))));

    let mut mind = Mind::open();
    mind.run(assignment(one));
    mind.tell(Event::Drain);
    assert!(!leaves(
        &mind.tell(Event::Beaten(life(), Err(Trouble::SessionUnknown)))
    ));
    assert!(!leaves(&mind.wait(60_000)), "and it does not spin");
    assert!(leaves(&mind.tell(ended(one))));
}

#[test]
fn a_late_answer_to_a_former_session_says_nothing_to_the_next() {
    let mut mind = Mind::open();
    let (old, new) = (attempt(1, 1), attempt(2, 1));
    mind.run(assignment(old));
    mind.tell(ended(old));
    mind.tell(Event::Beaten(life(), Err(Trouble::SessionReplaced)));
    mind.tell(opened(vec![Verdict::Accepted]));
    let key = || "life-2".to_string();
    let answer = PollAnswer {
        assignments: vec![assignment(new)],
        abort: Vec::new(),
        draining: false,
        unreadable: Vec::new(),
    };
    mind.tell(Event::Polled(key(), Ok(answer)));
    mind.tell(Event::Prepared(new));
    // What the former session had asked is answered only now: a yes that is not for this one, and a reproach.
    let late = ReportsAnswer {
        verdicts: vec![Verdict::Accepted],
        ..ReportsAnswer::default()
    };
    assert!(mind.tell(Event::Reported(life(), Ok(late))).is_empty());
    let orders = mind.tell(Event::Polled(life(), Err(Trouble::SessionReplaced)));
    assert!(orders.is_empty(), "{orders:?}");
    let yes = ReportsAnswer {
        verdicts: vec![Verdict::Accepted],
        ..ReportsAnswer::default()
    };
    let orders = mind.tell(Event::Reported(key(), Ok(yes)));
    assert!(matches!(&orders[0], Order::Run(run) if run.attempt == new));
}

#[test]
fn a_drain_without_a_session_just_leaves() {
    let mut mind = Mind::new(Vec::new());
    mind.tell(Event::Tick);
    assert!(leaves(&mind.tell(Event::Drain)));
    assert!(!leaves(&mind.tell(Event::Tick)), "once");
}

#[test]
fn a_worker_that_is_told_to_wait_opens_its_session_then_and_not_before() {
    let mut mind = Mind::new(Vec::new());
    mind.tell(Event::Tick);
    let opens = |orders: &[Order]| -> usize {
        let opens = orders.iter();
        opens
            .filter(|order| matches!(order, Order::Open { .. }))
            .count()
    };
    // However often: the pause does not grow.
    for _ in 0..20 {
        mind.tell(Event::Opened(Err(Trouble::Limited { wait_ms: 3_000 })));
        assert_eq!(opens(&mind.wait(2_999)), 0);
        assert_eq!(opens(&mind.wait(3_001)), 1);
    }
    mind.tell(opened(Vec::new()));
}

#[test]
fn heartbeats_are_tried_again_long_before_the_timeout() {
    let mut mind = Mind::open();
    for _ in 0..20 {
        let orders = mind.wait(15_000);
        let beats = orders
            .iter()
            .filter(|order| matches!(order, Order::Beat(_)));
        if beats.count() > 0 {
            mind.tell(Event::Beaten(life(), Err(Trouble::Unreachable)));
        }
        assert!(mind.machine.wakes_at() <= mind.now + 15_000);
    }
}

#[test]
fn results_that_do_not_fit_into_one_call_go_in_several() {
    let result = |step_id| Spooled {
        attempt: attempt(step_id, 1),
        session_key: "former".to_string(),
        finished: Finished::Completed {
            output: Some(Json(format!("\"{}\"", "x".repeat(3 << 20)))),
            exit_code: Some(0),
        },
    };
    let mut mind = Mind::new((1..=5).map(result).collect());
    let handed_over = |orders: &[Order]| match orders {
        [Order::Open { spooled, .. }] => spooled.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(handed_over(&mind.tell(Event::Tick)), 2);
    let orders = mind.tell(opened(vec![Verdict::Accepted, Verdict::Accepted]));
    assert_eq!(news(&orders).len(), 2, "of the three that are left");
    let orders = mind.tell(judged(vec![Verdict::Accepted, Verdict::Accepted]));
    assert_eq!(news(&orders).len(), 1);
}

#[test]
fn told_to_stop_at_once_it_ends_what_runs_and_what_was_about_to() {
    let (one, two) = (attempt(1, 1), attempt(2, 1));
    let mut mind = Mind::open();
    mind.run(assignment(one));
    mind.tell(given(vec![assignment(two)]));
    let orders = mind.tell(Event::Prepared(two));
    assert_eq!(news(&orders), [(two, News::Started)]);
    assert_eq!(kills(&mind.tell(Event::Shutdown)), [one]);
    // The yes comes too late: it never runs, and that is told.
    let orders = mind.tell(judged(vec![Verdict::Accepted]));
    assert!(!orders.iter().any(|order| matches!(order, Order::Run(_))));
    let told = news(&orders);
    assert!(matches!(
        told[..],
        [(found, News::Finished(Finished::Failed { reason: Reason::WorkerShutdown, .. }))] if found == two
    ));
    mind.tell(judged(vec![Verdict::Accepted]));
    let orders = mind.tell(ended(one));
    assert!(matches!(
        news(&orders)[..],
        [(found, News::Finished(Finished::Failed { reason: Reason::WorkerShutdown, .. }))] if found == one
    ));
}

#[test]
fn a_server_that_is_back_is_polled_at_once() {
    let mut mind = Mind::open();
    // A long time of trouble: the next try of a poll is far away.
    for _ in 0..10 {
        mind.tell(Event::Polled(life(), Err(Trouble::Unreachable)));
        let orders = mind.wait(31_000);
        assert!(orders.iter().any(|order| matches!(order, Order::Poll(_))));
    }
    mind.tell(Event::Polled(life(), Err(Trouble::Unreachable)));
    let orders = mind.tell(beaten());
    assert!(orders.iter().any(|order| matches!(order, Order::Poll(_))));
}

/// The second session of the machine.
fn second_life() -> String {
    "life-2".to_string()
}

fn assigned_in(session_key: String, assignments: Vec<Assignment>) -> Event {
    let answer = PollAnswer {
        assignments,
        abort: Vec::new(),
        draining: false,
        unreadable: Vec::new(),
    };
    Event::Polled(session_key, Ok(answer))
}

fn prepares(orders: &[Order]) -> bool {
    orders
        .iter()
        .any(|order| matches!(order, Order::Prepare { .. }))
}

/// After the server has restored an older database, step and attempt numbers repeat.
#[test]
fn an_attempt_is_declined_while_another_sessions_attempt_with_its_number_ends() {
    let mut mind = Mind::open();
    let one = attempt(1, 1);
    mind.run(assignment(one));
    mind.tell(Event::Beaten(life(), Err(Trouble::SessionUnknown)));
    mind.tell(opened(Vec::new()));
    let orders = mind.tell(assigned_in(second_life(), vec![assignment(one)]));
    assert!(!prepares(&orders), "{orders:?}");
    let told = news(&orders);
    assert!(
        matches!(&told[..], [(declined, News::Declined { why })] if *declined == one && why.contains("same number")),
        "{told:?}"
    );
    // What the server answers to the log of the former session is not about the new attempt.
    mind.tell(Event::Aborted(life(), one));
    mind.tell(Event::Polled(second_life(), Err(Trouble::Unreachable)));
    assert_eq!(
        polls(&mind.wait(60_000))[0].1,
        [one],
        "it is still declined"
    );

    // The next attempt of the step runs beside it.
    let two = attempt(1, 2);
    let answer = ReportsAnswer {
        verdicts: vec![Verdict::Accepted],
        ..ReportsAnswer::default()
    };
    mind.tell(Event::Reported(second_life(), Ok(answer)));
    assert!(prepares(
        &mind.tell(assigned_in(second_life(), vec![assignment(two)]))
    ));
    let orders = mind.tell(ended(one));
    assert!(!orders.iter().any(|order| matches!(order, Order::Keep(_))));
}

#[test]
fn a_result_of_a_former_session_does_not_keep_an_attempt_with_its_number_from_running() {
    let one = attempt(1, 1);
    let result = Spooled {
        attempt: one,
        session_key: "before".to_string(),
        finished: Finished::completed(),
    };
    let mut mind = Mind::new(vec![result]);
    mind.tell(Event::Tick);
    // The server has answered for none of the results.
    mind.tell(opened(Vec::new()));
    let orders = mind.tell(given(vec![assignment(one)]));
    let forgets = |order: &Order| matches!(order, Order::Forget(attempt) if *attempt == one);
    let forgotten = orders.iter().position(forgets).expect("the result goes");
    assert!(prepares(&orders[forgotten..]), "{orders:?}");
    // The same assignment again, because its answer was lost, changes nothing.
    let orders = mind.tell(given(vec![assignment(one)]));
    assert!(!prepares(&orders) && news(&orders).is_empty(), "{orders:?}");
}
