//! The audit log in the database: what is written with which transaction, and what is found when somebody changes it.

use rusqlite::Connection;
use stepward::domain::Now;
use stepward::domain::audit::{Actor, AnchorFault, AuditAction, AuditEntry, ChainFault, ChainLink};
use stepward::engine::EngineError;
use stepward::store::{AuditFilter, Store, StoreError, StoreOptions};
use tempfile::TempDir;

use crate::house::{TestHouse, script};

const ROWS: i64 = 6;

/// A house in which ada did five things. With the row that begins the log there are six rows.
fn house() -> TestHouse {
    let house = TestHouse::new();
    for number in 0..5 {
        act(&house, number);
    }
    house
}

fn act(house: &TestHouse, number: i64) {
    let now = house.now();
    let entry = AuditEntry::of(AuditAction::JobKept)
        .object("job", number)
        .detail(Some("{\"a\":1}".to_string()));
    let actor = Actor {
        token_id: Some(stepward::domain::TokenId(7)),
        address: Some("127.0.0.1".to_string()),
        ..Actor::named("ada")
    };
    let written = house
        .engine
        .store
        .write(move |tx| tx.audit_as(&actor, &entry, now));
    written.unwrap();
}

fn walk(house: &TestHouse, expected: Option<ChainLink>) -> Result<u64, ChainFault> {
    let store = &house.engine.store;
    let walked = store.read(|tx| tx.walk_audit(expected, |_| ())).unwrap();
    walked.map(|(_, rows)| rows)
}

fn head(house: &TestHouse) -> ChainLink {
    house.engine.audit_head().unwrap()
}

fn tamper(house: &TestHouse, sql: &str) {
    let database = Connection::open(house.database()).unwrap();
    database.execute_batch(sql).unwrap();
}

/// A house looks at its database when it goes: the story was about a chain that does not fit.
fn clear(house: &TestHouse) {
    tamper(
        house,
        "DELETE FROM audit; DELETE FROM audit_anchor; DELETE FROM milestone",
    );
}

#[test]
fn a_change_of_any_field_of_any_row_is_found() {
    for seq in 1..=ROWS {
        for change in [
            "at = at + 1",
            "actor = 'eve'",
            "token_id = 8",
            "address = '10.0.0.1'",
            "action = 'job_released'",
            "object = 'job/99'",
            "outcome = 'refused'",
            "detail = '{\"a\":2}'",
            "detail = ''",
            "hash = zeroblob(32)",
        ] {
            let house = house();
            assert_eq!(walk(&house, None), Ok(ROWS as u64));
            tamper(
                &house,
                &format!("UPDATE audit SET {change} WHERE seq = {seq}"),
            );
            assert_eq!(
                walk(&house, None),
                Err(ChainFault::Changed { seq }),
                "{change}"
            );
            let breaches = house.breaches();
            assert_eq!(breaches.len(), 1, "{breaches:?}");
            assert!(breaches[0].contains(&format!("row {seq} ")), "{breaches:?}");
            clear(&house);
        }
    }
}

#[test]
fn a_removed_row_and_a_changed_order_are_found() {
    for seq in 1..ROWS {
        let house = house();
        tamper(&house, &format!("DELETE FROM audit WHERE seq = {seq}"));
        let (expected, found) = (seq, seq + 1);
        assert_eq!(walk(&house, None), Err(ChainFault::Gap { expected, found }));
        clear(&house);
    }
    let house = house();
    tamper(
        &house,
        "UPDATE audit SET seq = 99 WHERE seq = 3; UPDATE audit SET seq = 3 WHERE seq = 4; UPDATE audit SET seq = 4 WHERE seq = 99;",
    );
    assert_eq!(walk(&house, None), Err(ChainFault::Changed { seq: 3 }));
    clear(&house);
}

#[test]
fn a_removed_end_and_an_emptied_log_are_found_with_a_noted_head() {
    let house = house();
    let expected = head(&house);
    assert_eq!(walk(&house, Some(expected)), Ok(ROWS as u64));
    tamper(&house, &format!("DELETE FROM audit WHERE seq = {ROWS}"));
    assert_eq!(
        walk(&house, None),
        Ok(ROWS as u64 - 1),
        "the rest fits together"
    );
    let last = ROWS - 1;
    assert_eq!(
        walk(&house, Some(expected)),
        Err(ChainFault::TooShort { expected, last })
    );
    // Somebody goes on from there: the number is the same, the hash is not.
    act(&house, 99);
    let found = head(&house).hash;
    assert_eq!(
        walk(&house, Some(expected)),
        Err(ChainFault::Differs { expected, found })
    );
    tamper(&house, "DELETE FROM audit");
    assert_eq!(
        walk(&house, Some(expected)),
        Err(ChainFault::TooShort { expected, last: 0 })
    );
}

#[test]
fn a_row_that_was_added_before_the_anchor_is_found() {
    let house = house();
    let store = &house.engine.store;
    assert_eq!(store.write(|tx| tx.remove_audit(3, 100)).unwrap(), 3);
    assert_eq!(walk(&house, None), Ok(ROWS as u64 - 3));
    tamper(
        &house,
        "INSERT INTO audit (seq, at, actor, action, outcome, hash) VALUES (2, 1, 'eve', 'job_kept', 'allowed', zeroblob(32))",
    );
    assert_eq!(
        walk(&house, None),
        Err(ChainFault::Gap {
            expected: 4,
            found: 2
        })
    );
    clear(&house);
}

#[test]
fn a_changed_and_an_additional_anchor_are_found() {
    const UNCHECKED: &str = "PRAGMA ignore_check_constraints = on;";
    let anchor = "SELECT 2, seq, hash FROM audit WHERE seq = 5";
    for (fault, change) in [
        (
            AnchorFault::Unreadable,
            "UPDATE audit_anchor SET hash = x'00'".to_string(),
        ),
        (
            AnchorFault::Unreadable,
            "UPDATE audit_anchor SET seq = -3".to_string(),
        ),
        (
            AnchorFault::Additional,
            format!("INSERT INTO audit_anchor {anchor}"),
        ),
        (
            AnchorFault::Additional,
            "UPDATE audit_anchor SET only_row = 2".to_string(),
        ),
        // No row is left, so that there is none that could not fit.
        (
            AnchorFault::Unreadable,
            "DELETE FROM audit; UPDATE audit_anchor SET hash = x'00'".to_string(),
        ),
        (
            AnchorFault::Additional,
            "DELETE FROM audit; DELETE FROM audit_anchor;
             INSERT INTO audit_anchor VALUES (7, 3, zeroblob(32))"
                .to_string(),
        ),
    ] {
        let house = house();
        let store = &house.engine.store;
        assert_eq!(store.write(|tx| tx.remove_audit(3, 100)).unwrap(), 3);
        assert_eq!(walk(&house, None), Ok(ROWS as u64 - 3));
        tamper(&house, &format!("{UNCHECKED} {change}"));
        let expected = Err(ChainFault::Anchor(fault));
        assert_eq!(walk(&house, None), expected, "{change}");
        let ends = house.engine.audit_ends().unwrap();
        assert_eq!(ends.anchor_fault, Some(fault), "{change}");
        let breaches = house.breaches();
        assert!(breaches[0].contains("anchor"), "{breaches:?}");
        clear(&house);
    }
}

#[test]
fn rows_with_impossible_numbers_are_found() {
    for found in [0, -5, i64::MIN] {
        let house = house();
        tamper(
            &house,
            &format!(
                "INSERT INTO audit (seq, at, actor, action, outcome, hash)
                 SELECT {found}, at, actor, action, outcome, hash FROM audit WHERE seq = 3"
            ),
        );
        let gap = ChainFault::Gap { expected: 1, found };
        assert_eq!(walk(&house, None), Err(gap));
        let first = house.engine.audit_after(i64::MIN, 1).unwrap().remove(0);
        assert_eq!(first.seq, found);
        clear(&house);
    }
    let house = house();
    tamper(
        &house,
        "UPDATE audit SET seq = 9223372036854775807 WHERE seq = 6",
    );
    let found = i64::MAX;
    let gap = ChainFault::Gap { expected: 6, found };
    assert_eq!(walk(&house, None), Err(gap));
    assert!(house.engine.audit_after(i64::MAX, 1).unwrap().is_empty());
    let now = house.now();
    let entry = AuditEntry::of(AuditAction::JobKept);
    let store = &house.engine.store;
    let refused = store.write(move |tx| tx.audit_as(&Actor::named("ada"), &entry, now));
    let why = refused.unwrap_err().to_string();
    assert!(
        why.contains("9223372036854775807") && why.contains("audit log"),
        "{why}"
    );
    clear(&house);
}

#[test]
fn a_row_that_cannot_be_read_is_named_and_hides_no_other_row() {
    for change in [
        "actor = cast(x'ff' AS TEXT)",
        "address = cast(x'61ff' AS TEXT)",
        "detail = cast(x'ff61' AS TEXT)",
    ] {
        let house = house();
        tamper(&house, &format!("UPDATE audit SET {change} WHERE seq = 5"));
        assert_eq!(
            walk(&house, None),
            Err(ChainFault::Unreadable { seq: 5 }),
            "{change}"
        );
        let breaches = house.breaches();
        assert!(breaches[0].contains("row 5 cannot be read"), "{breaches:?}");
        assert_eq!(
            house.engine.audit_after(0, 100).unwrap().len(),
            ROWS as usize
        );
        let newest = (house.engine).audit_before(i64::MAX, &AuditFilter::default(), 100);
        assert_eq!(newest.unwrap().rows.len(), ROWS as usize);
        clear(&house);
    }
}

#[test]
fn an_emptied_log_that_begins_anew_is_found_with_what_the_database_noted() {
    let house = house();
    tamper(
        &house,
        "INSERT INTO milestone (age_ms, at, up, owed_ms, job_id, event_seq, outbox_id, session_id, audit_seq)
         VALUES (0, 1, 1, 0, 0, 0, 0, 0, (SELECT max(seq) FROM audit))",
    );
    assert_eq!(walk(&house, None), Ok(ROWS as u64));
    tamper(&house, "DELETE FROM audit; DELETE FROM audit_anchor");
    for last in [0, 2] {
        let noted = ROWS;
        let fault = ChainFault::EndRemoved { noted, last };
        assert_eq!(walk(&house, None), Err(fault));
        act(&house, 99);
    }
    clear(&house);
}

#[test]
fn a_row_is_there_if_and_only_if_what_it_records_happened() {
    let house = TestHouse::new();
    let job = house.submit(vec![script("a")]);
    assert_eq!(head(&house), ChainLink::GENESIS, "nobody is named");
    let ada = house.engine.by("ada");
    ada.cancel(job, "ada", house.now()).unwrap();
    let after = head(&house);
    assert_eq!(after.seq, 2, "the beginning of the log, and what ada did");
    assert!(matches!(
        ada.cancel(job, "ada", house.now()),
        Err(EngineError::JobEnded { .. })
    ));
    assert_eq!(head(&house), after, "nothing happened");
    // A transaction that fails after it has written its row takes the row with it, and no other.
    let now = house.now();
    let failing = move |tx: &stepward::store::Tx| -> Result<(), StoreError> {
        tx.audit_as(
            &Actor::named("eve"),
            &AuditEntry::of(AuditAction::JobKept),
            now,
        )?;
        Err(StoreError::Lost)
    };
    let store = &house.engine.store;
    store.write(failing).unwrap_err();
    assert_eq!(head(&house), after);
    assert_eq!(walk(&house, None), Ok(2));
}

#[test]
fn rows_that_share_a_commit_are_chained_in_their_order() {
    let house = TestHouse::new();
    let now = house.now();
    let works: Vec<_> = (0..200)
        .map(|number| {
            move |tx: &stepward::store::Tx| {
                let entry = AuditEntry::of(AuditAction::JobKept).object("job", number);
                tx.audit_as(&Actor::named("ada"), &entry, now)?;
                match number % 50 {
                    17 => Err(StoreError::Lost),
                    _ => Ok(()),
                }
            }
        })
        .collect();
    let results = house.engine.store.write_many(works);
    assert_eq!(results.iter().filter(|result| result.is_err()).count(), 4);
    assert_eq!(walk(&house, None), Ok(197));
    let page = house.engine.audit_after(1, 1_000).unwrap();
    let objects: Vec<&str> = page
        .iter()
        .filter_map(|row| row.object.as_deref())
        .collect();
    let expected: Vec<String> = (0..200)
        .filter(|number| number % 50 != 17)
        .map(|number| format!("job/{number}"))
        .collect();
    assert_eq!(objects, expected);
}

#[test]
fn a_filtered_page_looks_at_a_bounded_number_of_rows() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path(), StoreOptions::default()).unwrap();
    let now = Now {
        wall: stepward::domain::Timestamp(1_800_000_000_000),
        up: store.begun_up(),
    };
    let rows = i64::from(stepward::store::AUDIT_SCAN_MAX) + 10;
    let write = move |tx: &stepward::store::Tx| -> Result<(), StoreError> {
        for number in 0..rows {
            let actor = if number == 0 { "rare" } else { "ada" };
            let entry = AuditEntry::of(AuditAction::JobKept).object("job", number);
            tx.audit_as(&Actor::named(actor), &entry, now)?;
        }
        Ok(())
    };
    store.write(write).unwrap();
    let filter = AuditFilter {
        actor: Some("rare".to_string()),
        ..AuditFilter::default()
    };
    let page = |before| {
        store
            .read(|tx| tx.audit_before(before, &filter, 50))
            .unwrap()
    };
    let first = page(i64::MAX);
    assert!(first.rows.is_empty());
    let second = page(first.next.expect("there is more to look at"));
    assert_eq!(second.rows.len(), 1);
    assert_eq!(second.next, None);
}
