//! Who is posted what, in the transaction of the event; and what becomes of a message over days.

use stepward::domain::event::EventKind;
use stepward::domain::job::Source;
use stepward::domain::outbox::{MessageState, Sent, TRIES_MAX, Target};
use stepward::domain::task::{Hook, HookDoes, HookOn, TaskDraft};
use stepward::domain::{JobId, OutboxId};
use stepward::engine::{Due, EngineError, Outgoing, Submission};
use stepward::store::MessageFilter;

use crate::house::{TestHouse, frozen, script};

const HOUR_MS: i64 = 3_600_000;

fn subscriber(name: &str, on: &[EventKind]) -> Target {
    Target {
        on: on.to_vec(),
        ..Target::of_hooks(name)
    }
}

fn told(house: &TestHouse) -> Vec<(String, EventKind)> {
    let messages = house.outbox().into_iter();
    let told = messages.map(|message| {
        let detail = house.engine.message(message.outbox_id).unwrap();
        (message.target, detail.event.unwrap().event.fact.kind)
    });
    told.collect()
}

fn named(told: &[(String, EventKind)]) -> Vec<(&str, EventKind)> {
    told.iter()
        .map(|(name, kind)| (name.as_str(), *kind))
        .collect()
}

fn hook(on: HookOn, target: &str) -> Hook {
    Hook {
        on,
        does: HookDoes::Notify {
            target: target.to_string(),
        },
    }
}

fn fail_one(house: &TestHouse, task: TaskDraft) -> JobId {
    let job = house.submit_tasks(vec![task]);
    house.run_all(&["a"]);
    job
}

/// The message that is due for this target.
fn due(house: &TestHouse, target: &str) -> Option<Box<Outgoing>> {
    match house.engine.next_message(target, house.now()).unwrap() {
        Due::Now(outgoing) => Some(outgoing),
        Due::In { .. } | Due::Nothing => None,
    }
}

fn tell(house: &TestHouse, outgoing: &Outgoing, sent: Sent) -> Option<MessageState> {
    let message = outgoing.message.clone();
    house
        .engine
        .tell_delivery(message, sent, 12, house.now())
        .unwrap()
}

#[test]
fn who_subscribed_to_a_kind_is_posted_each_event_of_it_once() {
    use EventKind::{JobCompleted, JobFailed, WorkerRegistered};
    let house = TestHouse::new();
    house.engine.set_targets(vec![
        subscriber("ops", &[JobFailed, WorkerRegistered]),
        Target {
            tasks: Some(vec!["backup".to_string()]),
            ..subscriber("chat", &[JobFailed, JobCompleted, WorkerRegistered])
        },
    ]);
    fail_one(&house, TaskDraft::new("backup", vec![script("a")]));
    fail_one(&house, TaskDraft::new("other", vec![script("a")]));
    house.submit_tasks(vec![TaskDraft::new("other", vec![script("b")])]);
    house.run_all(&[]);
    assert_eq!(
        named(&told(&house)),
        [
            ("ops", WorkerRegistered),
            ("ops", JobFailed),
            ("chat", JobFailed),
            ("ops", JobFailed),
        ]
    );
}

#[test]
fn a_hook_tells_a_target_that_did_not_subscribe_and_one_that_did_is_told_once() {
    let house = TestHouse::new();
    house.engine.set_targets(vec![
        subscriber("ops", &[EventKind::JobFailed]),
        Target::of_hooks("phone"),
    ]);
    let task = TaskDraft {
        hooks: vec![
            hook(HookOn::Error, "ops"),
            hook(HookOn::Error, "phone"),
            hook(HookOn::Success, "phone"),
        ],
        ..TaskDraft::new("main", vec![script("a")])
    };
    let job = fail_one(&house, task);
    let expected = [
        ("ops", EventKind::JobFailed),
        ("phone", EventKind::JobFailed),
    ];
    assert_eq!(named(&told(&house)), expected);
    assert!(
        house
            .outbox()
            .iter()
            .all(|message| message.job_id == Some(job))
    );
}

#[test]
fn a_hook_to_a_target_that_the_settings_do_not_have_is_told_in_an_event() {
    let house = TestHouse::new();
    let watcher = subscriber("watcher", &[EventKind::HookFailed]);
    house.engine.set_targets(vec![watcher]);
    let task = TaskDraft {
        hooks: vec![hook(HookOn::Error, "nobody"), hook(HookOn::Error, "noone")],
        ..TaskDraft::new("main", vec![script("a")])
    };
    let job = fail_one(&house, task);
    assert_eq!(house.count_events(job, EventKind::HookFailed), 2);
    let events = house.engine.events_of_job(job).unwrap();
    let failed = events.last().unwrap();
    assert_eq!(
        failed.fact.message,
        "a hook of job 1 would tell \"noone\", which the settings do not have: add it under notify"
    );
    assert_eq!(told(&house).len(), 2, "who wants to know is told that");
}

#[test]
fn the_failure_of_a_hooks_job_fires_no_hook_but_is_told_to_subscribers() {
    let house = TestHouse::new();
    let ops = subscriber("ops", &[EventKind::JobFailed]);
    house
        .engine
        .set_targets(vec![ops, Target::of_hooks("phone")]);
    let task = TaskDraft {
        hooks: vec![hook(HookOn::Error, "phone")],
        ..TaskDraft::new("hook.tell", vec![script("a")])
    };
    let submission = Submission {
        source: Source::Hook,
        ..Submission::of(&frozen(vec![task]))
    };
    house.submission(submission).unwrap();
    house.run_all(&["a"]);
    assert_eq!(named(&told(&house)), [("ops", EventKind::JobFailed)]);
}

#[test]
fn messages_of_a_target_come_in_order_and_a_failed_one_lets_the_next_go_first() {
    let house = TestHouse::new();
    let ops = subscriber("ops", &[EventKind::JobSubmitted]);
    house.engine.set_targets(vec![ops]);
    house.submit(vec![script("a")]);
    house.clock.advance_ms(10);
    house.submit(vec![script("a")]);
    let first = due(&house, "ops").unwrap();
    assert_eq!(first.message.outbox_id, OutboxId(1));
    let after = tell(&house, &first, Sent::failed("no connection"));
    assert_eq!(after, Some(MessageState::Pending));
    assert_eq!(
        tell(&house, &first, Sent::failed("late")),
        None,
        "it was told already"
    );
    let second = due(&house, "ops").unwrap();
    assert_eq!(second.message.outbox_id, OutboxId(2));
    tell(&house, &second, Sent::delivered(200, "delivered"));
    assert!(due(&house, "ops").is_none(), "the first one waits");
    house.clock.advance_ms(4_980);
    assert!(due(&house, "ops").is_none());
    house.clock.advance_ms(20);
    let again = due(&house, "ops").unwrap();
    assert_eq!(
        (again.message.outbox_id, again.message.tries),
        (OutboxId(1), 1)
    );
    tell(&house, &again, Sent::delivered(204, "delivered"));
    let detail = house.engine.message(OutboxId(1)).unwrap();
    assert_eq!(detail.message.state, MessageState::Delivered);
    assert_eq!(detail.message.delivered_at, Some(house.now().wall));
    let log: Vec<_> = detail
        .deliveries
        .iter()
        .map(|row| (row.attempt, row.is_ok, row.status))
        .collect();
    assert_eq!(log, [(1, false, None), (2, true, Some(204))]);
    assert_eq!(detail.deliveries[0].message, "no connection");
}

#[test]
fn what_cannot_be_delivered_is_given_up_after_about_three_days_and_somebody_else_is_told() {
    let house = TestHouse::new();
    let given_up = EventKind::DeliveryGivenUp;
    house.engine.set_targets(vec![
        subscriber("dead", &[EventKind::JobSubmitted, given_up]),
        subscriber("ops", &[given_up]),
    ]);
    let job = house.submit(vec![script("a")]);
    let begun = house.now().wall.0;
    let mut tries = 0;
    loop {
        match house.engine.next_message("dead", house.now()).unwrap() {
            Due::Now(outgoing) => {
                tries += 1;
                tell(&house, &outgoing, Sent::failed("no connection"));
            }
            Due::In { ms } => house.clock.advance_ms(ms),
            Due::Nothing => break,
        }
    }
    let hours = (house.now().wall.0 - begun) / HOUR_MS;
    assert_eq!(tries, TRIES_MAX);
    assert!((60..=84).contains(&hours), "{hours} hours");
    let message = house.engine.message(OutboxId(1)).unwrap().message;
    assert_eq!(message.state, MessageState::GivenUp);
    assert_eq!(house.count_events(job, given_up), 1);
    let expected = [("dead", EventKind::JobSubmitted), ("ops", given_up)];
    assert_eq!(
        named(&told(&house)),
        expected,
        "the dead one is not told of itself"
    );

    // That the news of it cannot be delivered either is told to nobody.
    let mut outgoing = due(&house, "ops").unwrap();
    outgoing.message.tries = TRIES_MAX;
    tell(&house, &outgoing, Sent::failed("no connection"));
    assert_eq!(house.count_events(job, given_up), 2);
    assert_eq!(house.outbox().len(), 2);
}

#[test]
fn a_target_that_is_gone_for_good_is_not_asked_again_and_one_that_is_busy_when_it_says() {
    let house = TestHouse::new();
    let ops = subscriber("ops", &[EventKind::JobSubmitted]);
    house.engine.set_targets(vec![ops]);
    house.submit(vec![script("a")]);
    house.submit(vec![script("a")]);
    let gone = Sent {
        status: Some(410),
        is_final: true,
        ..Sent::failed("it answered 410 Gone")
    };
    let first = due(&house, "ops").unwrap();
    assert_eq!(tell(&house, &first, gone), Some(MessageState::GivenUp));
    let busy = Sent {
        status: Some(503),
        retry_after_ms: Some(HOUR_MS),
        ..Sent::failed("it answered 503")
    };
    let second = due(&house, "ops").unwrap();
    tell(&house, &second, busy);
    house.clock.advance_ms(HOUR_MS - 1);
    assert!(due(&house, "ops").is_none());
    house.clock.advance_ms(1);
    assert!(due(&house, "ops").is_some());
}

#[test]
fn a_message_is_delivered_once_more_when_somebody_asks() {
    let house = TestHouse::new();
    let ops = subscriber("ops", &[EventKind::JobSubmitted]);
    house.engine.set_targets(vec![ops]);
    house.submit(vec![script("a")]);
    let mut first = due(&house, "ops").unwrap();
    first.message.tries = TRIES_MAX;
    tell(&house, &first, Sent::failed("no connection"));
    assert!(due(&house, "ops").is_none());
    house.engine.redeliver(OutboxId(1), house.now()).unwrap();
    let again = due(&house, "ops").unwrap();
    assert_eq!(again.message.outbox_id, OutboxId(1), "the id stays");
    assert_eq!(
        (again.message.attempts, again.message.tries),
        (1, 0),
        "with all its tries before it"
    );
    tell(&house, &again, Sent::delivered(200, "delivered"));
    house.engine.redeliver(OutboxId(1), house.now()).unwrap();
    assert!(due(&house, "ops").is_some(), "also one that was delivered");

    let missing = house.engine.redeliver(OutboxId(9), house.now());
    assert!(matches!(missing, Err(EngineError::MessageNotFound { .. })));
    house.engine.set_targets(Vec::new());
    let stranger = house
        .engine
        .redeliver(OutboxId(1), house.now())
        .unwrap_err();
    assert_eq!(
        stranger.to_string(),
        "target \"ops\" is not in the settings any more, add it under notify"
    );
}

#[test]
fn what_waits_for_a_target_that_was_taken_out_of_the_settings_is_given_up_at_the_start() {
    let house = TestHouse::new();
    let on = [EventKind::JobSubmitted];
    house
        .engine
        .set_targets(vec![subscriber("kept", &on), subscriber("left", &on)]);
    for _ in 0..1_500 {
        house.submit(vec![script("a")]);
    }
    house.engine.set_targets(vec![subscriber("kept", &on)]);
    assert_eq!(house.engine.give_up_strangers(house.now()).unwrap(), 1_500);
    assert_eq!(house.engine.give_up_strangers(house.now()).unwrap(), 0);
    let waiting = MessageFilter {
        state: Some(MessageState::Pending),
        ..MessageFilter::default()
    };
    let (waiting, _) = house.engine.messages(None, &waiting, 10_000).unwrap();
    assert_eq!(waiting.len(), 1_500);
    assert!(waiting.iter().all(|message| message.target == "kept"));
}

#[test]
fn the_log_of_a_message_keeps_the_last_deliveries() {
    let house = TestHouse::new();
    let ops = subscriber("ops", &[EventKind::JobSubmitted]);
    house.engine.set_targets(vec![ops]);
    house.submit(vec![script("a")]);
    for _ in 0..60 {
        house.engine.redeliver(OutboxId(1), house.now()).unwrap();
        let outgoing = due(&house, "ops").unwrap();
        tell(&house, &outgoing, Sent::failed("x".repeat(100_000)));
    }
    let detail = house.engine.message(OutboxId(1)).unwrap();
    let attempts: Vec<u32> = detail.deliveries.iter().map(|row| row.attempt).collect();
    assert_eq!(attempts, (11..=60).collect::<Vec<u32>>());
    assert!(detail.deliveries[0].message.len() <= 512);
}
