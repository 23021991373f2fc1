//! The tokens of the first start: made once, and made anew if the start was interrupted before their files were written.

use stepward::domain::TokenId;
use stepward::domain::token::{FIRST_START, NewToken, Role, Token};

use crate::house::TestHouse;

fn token(name: &str, role: Role, made_by: &str) -> NewToken {
    NewToken {
        name: name.to_string(),
        role,
        hash: format!("hash of {name} by {made_by}"),
        tags: None,
        made_by: made_by.to_string(),
        expires_at: None,
        is_unasked: false,
    }
}

fn first_tokens() -> Vec<NewToken> {
    vec![
        token("first-admin", Role::Admin, FIRST_START),
        token("local-worker", Role::Worker, FIRST_START),
    ]
}

fn good_tokens(house: &TestHouse) -> Vec<Token> {
    let tokens = house.engine.tokens(TokenId(0), u32::MAX).unwrap();
    let wall = house.now().wall;
    tokens
        .into_iter()
        .filter(|token| token.is_good(wall))
        .collect()
}

#[test]
fn an_interrupted_first_start_is_repeated_and_leaves_no_valid_token_behind() {
    let house = TestHouse::new();
    let interrupted = house
        .engine
        .make_first_tokens(first_tokens(), house.now())
        .unwrap();
    // Nobody has the texts: these tokens do not count as somebody's.
    assert!(!house.engine.has_admin_of_somebody(house.now()).unwrap());
    assert!(!house.engine.folder_door().unwrap().has_had_first_start);
    let made = house
        .engine
        .make_first_tokens(first_tokens(), house.now())
        .unwrap();
    assert_eq!(good_tokens(&house), made);
    assert!(interrupted.iter().all(|token| !made.contains(token)));
    house.engine.record_first_start(house.now()).unwrap();
    assert!(house.engine.folder_door().unwrap().has_had_first_start);
}

#[test]
fn a_name_that_somebody_has_gets_a_number() {
    let house = TestHouse::new();
    let theirs = token("first-admin", Role::Viewer, "ada");
    house.engine.make_token(theirs, house.now()).unwrap();
    let made = house
        .engine
        .make_first_tokens(first_tokens(), house.now())
        .unwrap();
    let names: Vec<&str> = made.iter().map(|token| token.name.as_str()).collect();
    assert_eq!(names, ["first-admin-2", "local-worker"]);
    assert_eq!(good_tokens(&house).len(), 3);
}

#[test]
fn a_worker_that_was_enrolled_with_a_marked_enrolment_is_marked() {
    let house = TestHouse::new();
    let hour_on = stepward::domain::Timestamp(house.now().wall.0 + 3_600_000);
    let enrolment = NewToken {
        expires_at: Some(hour_on),
        is_unasked: true,
        ..token("edge", Role::Enrolment, "local")
    };
    let enrolment = house.engine.make_token(enrolment, house.now()).unwrap();
    let hash = "hash that the worker drew".to_string();
    let enrolled = house
        .engine
        .enrol(enrolment.token_id, hash, "edge".to_string(), house.now())
        .unwrap();
    let marked = house.engine.unasked_tokens(house.now().wall).unwrap();
    let ids: Vec<TokenId> = marked.iter().map(|token| token.token_id).collect();
    // The enrolment itself is used up.
    assert_eq!(ids, [enrolled.token_id]);
}

/// Otherwise somebody who made a token while the door was open would keep the owner of the folder from getting one.
#[test]
fn a_marked_admin_does_not_count_as_somebody() {
    let house = TestHouse::new();
    let marked = NewToken {
        is_unasked: true,
        ..token("eve", Role::Admin, "local")
    };
    house.engine.make_token(marked, house.now()).unwrap();
    assert!(!house.engine.has_admin_of_somebody(house.now()).unwrap());
    assert!(!house.engine.has_trusted_admin(house.now().wall).unwrap());
    house
        .engine
        .make_first_tokens(first_tokens(), house.now())
        .unwrap();
    assert!(!house.engine.has_admin_of_somebody(house.now()).unwrap());
    assert!(house.engine.has_trusted_admin(house.now().wall).unwrap());
    let ada = token("ada", Role::Admin, "first-admin");
    house.engine.make_token(ada, house.now()).unwrap();
    assert!(house.engine.has_admin_of_somebody(house.now()).unwrap());
}

/// Nobody may pass for the first start: a repeated one revokes what it made.
#[test]
fn the_name_of_the_first_start_is_taken() {
    let house = TestHouse::new();
    let taken = token(FIRST_START, Role::Viewer, "ada");
    house.engine.make_token(taken, house.now()).unwrap_err();
}
