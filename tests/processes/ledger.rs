//! What steps wrote down themselves, in a file that nobody else writes: the truth about what ran.

use std::collections::BTreeMap;

use crate::house::House;

/// For a script: one line when it begins, one when it ends.
pub const BEGIN: &str =
    r#"echo "$STEPWARD_JOB_ID/$STEPWARD_STEP/$STEPWARD_ATTEMPT begin" >> LEDGER"#;
pub const END: &str = r#"echo "$STEPWARD_JOB_ID/$STEPWARD_STEP/$STEPWARD_ATTEMPT end" >> LEDGER"#;

/// For a script: waits until the house opens its gate.
pub const AWAIT_GATE: &str = "while [ ! -e LEDGER.gate ]; do sleep 0.05; done";

/// How often each attempt began, and ended.
pub fn lives(house: &House) -> BTreeMap<String, (u32, u32)> {
    let mut lives: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    for line in house.read("ledger").lines() {
        let (attempt, what) = line.split_once(' ').expect("a whole line");
        let life = lives.entry(attempt.to_string()).or_default();
        match what {
            "begin" => life.0 += 1,
            "end" => life.1 += 1,
            odd => panic!("{odd:?} in the ledger"),
        }
    }
    lives
}
