//! Messages, events, fires, workers, sessions and tokens.

use stepward::domain::outbox::Sent;
use stepward::domain::retention::Retention;
use stepward::domain::schedule::{Overlap, ScheduleDraft};
use stepward::domain::token::{NewToken, Role};
use stepward::domain::{Timestamp, TokenId};
use stepward::engine::Due;
use stepward::reaper::Kind;

use super::{Attic, DAY, HOUR};
use crate::house::script;

#[test]
fn a_worker_that_nobody_hears_of_is_forgotten_and_its_name_when_no_job_has_it() {
    let attic = Attic::new();
    let job = attic.done_job();
    let listed = || attic.count("worker WHERE deleted_at IS NULL");
    attic.pass(DAY);
    attic.house.sweep();
    assert_eq!(listed(), 1, "it is inactive, and listed");
    attic.pass(8 * DAY);
    assert_eq!(listed(), 0);
    let worker = attic.house.job(job).step("a").unwrap().worker_id;
    assert!(worker.is_some());
    assert_eq!(attic.count("worker"), 1, "the job names it");
    assert_eq!(attic.house.breaches(), Vec::<String>::new());
    attic.pass(90 * DAY);
    assert_eq!((attic.count("worker"), attic.count("session")), (0, 0));
}

#[test]
fn whom_a_job_names_that_stays_beyond_its_time_stays_with_it() {
    let attic = Attic::new();
    let house = &attic.house;
    let job = house.submit(vec![script("a")]);
    let old = house.worker("old", &[], 1);
    old.run_all(&[]);
    house.engine.keep(job, true, house.now()).unwrap();
    let there = || {
        let worker = format!("worker WHERE worker_id = {}", old.worker_id);
        let session = format!("session WHERE worker_id = {}", old.worker_id);
        (attic.count(&worker), attic.count(&session))
    };
    attic.pass(DAY);
    house.sweep();
    attic.pass(200 * DAY);
    assert!(attic.exists(job));
    assert_eq!(there(), (1, 1), "the job names both");
    assert_eq!(house.breaches(), Vec::<String>::new());
    house.engine.keep(job, false, house.now()).unwrap();
    attic.pass(DAY);
    assert_eq!(there(), (0, 0));
}

#[test]
fn a_worker_that_comes_back_is_a_new_one() {
    let attic = Attic::new();
    attic.done_job();
    attic.pass(DAY);
    attic.house.sweep();
    attic.pass(8 * DAY);
    let job = attic.done_job();
    assert!(attic.exists(job));
    assert_eq!(attic.count("worker"), 2);
}

#[test]
fn sessions_that_were_replaced_go_when_no_job_names_them() {
    let attic = Attic::new();
    for _ in 0..200 {
        attic.house.clock.advance_ms(12 * HOUR);
        attic.done_job();
        attic.reap();
    }
    assert_eq!(attic.count("worker"), 1);
    let sessions = attic.count("session");
    assert!(
        (180..=190).contains(&sessions),
        "{sessions}: those of 90 days, and the last"
    );
}

#[test]
fn a_message_goes_after_its_days_and_one_that_is_still_to_be_sent_stays_with_its_event() {
    let attic = Attic::new();
    let house = &attic.house;
    let mut tell = stepward::domain::outbox::Target::of_hooks("tell");
    tell.on = vec![stepward::domain::event::EventKind::JobCompleted];
    house.engine.set_targets(vec![tell]);
    attic.done_job();
    attic.done_job();
    let Due::Now(first) = house.engine.next_message("tell", house.now()).unwrap() else {
        panic!("there is one");
    };
    let delivered = Sent::delivered(200, "fine");
    (house.engine)
        .tell_delivery(first.message, delivered, 1, house.now())
        .unwrap();
    attic.pass(31 * DAY);
    assert_eq!(house.outbox().len(), 1);
    attic.pass(100 * DAY);
    assert_eq!(house.outbox().len(), 1);
    let Due::Now(_) = house.engine.next_message("tell", house.now()).unwrap() else {
        panic!("what it tells is kept");
    };
}

#[test]
fn instants_that_no_job_was_made_for_go_and_the_others_with_their_jobs() {
    use crate::scheduler::{Timetable, schedule};
    let timetable = Timetable::with(ScheduleDraft {
        overlap: Overlap::Skip,
        ..schedule("0 * * * *")
    });
    // The first job is never run: all that follow are skipped.
    let tasks = timetable.tasks;
    let attic = Attic::of(timetable.house, Retention::default());
    let look = |attic: &Attic| {
        let task = |name: &str| tasks.get(name).cloned();
        attic
            .house
            .engine
            .fire_due(attic.house.now(), &task)
            .unwrap();
    };
    let mut removed = 0;
    for _ in 0..100 {
        attic.house.clock.advance_ms(DAY);
        look(&attic);
        let round = attic.reap();
        removed += round.get(&Kind::Fires).copied().unwrap_or_default();
    }
    assert!(removed > 5, "{removed}");
    assert_eq!(attic.count("schedule_fire WHERE job_id IS NOT NULL"), 1);
    attic.house.run_all(&[]);
    attic.house.submit(vec![script("a")]);
    attic.house.run_all(&[]);
    attic.pass(92 * DAY);
    assert_eq!(attic.count("schedule_fire WHERE job_id IS NOT NULL"), 0);
}

#[test]
fn tokens_that_let_nobody_in_go_with_the_events_of_what_they_did() {
    let attic = Attic::new();
    let (engine, now) = (&attic.house.engine, || attic.house.now());
    let token = |name: &str, role: Role, days: Option<i64>| {
        let token = NewToken {
            name: name.to_string(),
            role,
            hash: format!("hash of {name}"),
            tags: None,
            made_by: "local".to_string(),
            expires_at: days.map(|days| Timestamp(now().wall.0 + days * DAY)),
            is_unasked: true,
        };
        engine.make_token(token, now()).unwrap().token_id
    };
    let holds = token("holds", Role::Admin, None);
    let expires = token("expires", Role::Viewer, Some(30));
    let enrolment = token("enrolment", Role::Enrolment, Some(1));
    let enrolled = engine.enrol(enrolment, "drawn".to_string(), "edge".to_string(), now());
    let enrolled = enrolled.unwrap().token_id;
    let left = || -> Vec<TokenId> {
        let tokens = engine.tokens(TokenId(0), 100).unwrap();
        tokens.iter().map(|token| token.token_id).collect()
    };
    attic.pass(89 * DAY);
    assert_eq!(left(), [holds, expires, enrolment, enrolled]);
    // It was used on the first day.
    attic.pass(2 * DAY);
    assert_eq!(left(), [holds, expires, enrolled]);
    attic.pass(30 * DAY);
    assert_eq!(left(), [holds, enrolled], "expired for ninety days");
    engine.revoke_token(enrolled, true, now()).unwrap();
    attic.pass(89 * DAY);
    assert_eq!(left(), [holds, enrolled]);
    attic.pass(2 * DAY);
    assert_eq!(left(), [holds]);
    assert!(
        token("next", Role::Viewer, None) > enrolled,
        "no number is used twice"
    );
    assert_eq!(attic.house.breaches(), Vec::<String>::new());
}

/// What ada did, as rows of the audit log. They are chained, and go from the oldest on.
#[test]
fn the_oldest_rows_of_the_audit_log_go_and_the_rest_can_be_verified() {
    let attic = Attic::keeping(Retention {
        audit_ms: 10 * DAY,
        ..Retention::default()
    });
    let house = &attic.house;
    let act = || {
        let job = house.submit(vec![script("a")]);
        let ada = house.engine.by("ada");
        ada.keep(job, true, house.now()).unwrap();
    };
    let verified = || {
        let store = &house.engine.store;
        let walked = store.read(|tx| tx.walk_audit(None, |_| ())).unwrap();
        walked.unwrap().1
    };
    for _ in 0..250 {
        act();
    }
    let noted = house.engine.audit_head().unwrap();
    attic.pass(5 * DAY);
    act();
    attic.pass(4 * DAY);
    assert_eq!(verified(), 252, "none is old enough");
    let removed = attic.pass(2 * DAY);
    assert_eq!(removed.get(&Kind::Audit), Some(&251));
    assert_eq!(verified(), 1);
    assert_eq!(
        house.engine.audit_ends().unwrap().anchor,
        noted,
        "the anchor"
    );
    attic.pass(10 * DAY);
    assert_eq!(verified(), 0);
    act();
    assert_eq!(house.engine.audit_head().unwrap().seq, 253, "numbers go on");
    assert_eq!(verified(), 1);
}

/// A row that says that it is of the future goes in its turn, and takes no other with it.
#[test]
fn a_clock_that_was_wrong_keeps_no_row_of_the_audit_log_for_ever_and_removes_none_early() {
    let attic = Attic::keeping(Retention {
        audit_ms: 10 * DAY,
        ..Retention::default()
    });
    let house = &attic.house;
    let rows = || attic.count("audit");
    let act_at = |wall_ms: i64| {
        let now = house.now();
        let now = stepward::domain::Now {
            wall: Timestamp(now.wall.0 + wall_ms),
            ..now
        };
        let job = house.submit(vec![script("a")]);
        house.engine.by("ada").keep(job, true, now).unwrap();
    };
    act_at(3_650 * DAY);
    act_at(0);
    act_at(-3_650 * DAY);
    attic.pass(9 * DAY);
    assert_eq!(rows(), 4, "none is old enough, whatever it says");
    attic.pass(2 * DAY);
    assert_eq!(rows(), 0, "none stays for ever, whatever it says");
    assert_eq!(house.breaches(), Vec::<String>::new());
}
