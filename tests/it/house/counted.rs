//! What was counted against what is in the database: at the end of every story of the engine.

use std::collections::BTreeMap;

use rusqlite::Connection;
use stepward::domain::StepId;
use stepward::domain::reason::Waiting;
use stepward::domain::step::StepState;
use stepward::engine::Code;
use stepward::metrics::text::Page;

use super::TestHouse;
use crate::exposition::Exposition;

/// Each is asked why it waits: more would take too long.
const ASKED_MAX: usize = 40;

/// What is counted of each, as the ledger of the database has it: a family, and its series by what they count.
const COUNTED: &[(&str, &str)] = &[
    (
        "stepward_jobs_created_total",
        "SELECT '{source=\"' || source || '\"}', count(*) FROM job GROUP BY 1",
    ),
    (
        "stepward_jobs_finished_total",
        "SELECT '{status=\"' || state || '\",reason=\"' || coalesce(reason, 'none') || '\"}', count(*)
           FROM job WHERE ended_at IS NOT NULL GROUP BY 1",
    ),
    (
        "stepward_steps_finished_total",
        "SELECT '{status=\"' || state || '\",reason=\"' || coalesce(reason, 'none') || '\"}', count(*)
           FROM step WHERE ended_at IS NOT NULL GROUP BY 1",
    ),
    (
        "stepward_fenced_reports_total",
        "SELECT '', count(*) FROM event WHERE kind = 'report_fenced' GROUP BY 1",
    ),
    (
        "stepward_recovery_actions_total",
        "SELECT '{phase=\"' || phase || '\",reason=\"' || coalesce(reason, kind) || '\"}', count(*)
           FROM event WHERE phase IS NOT NULL GROUP BY 1",
    ),
    (
        "stepward_step_wait_seconds_count",
        "SELECT '', count(*) FROM step WHERE kind = 'work' AND tries > 0 GROUP BY 1",
    ),
];

pub fn written(house: &TestHouse) -> Exposition {
    let mut page = Page::default();
    house.engine.store.metrics().write(&mut page);
    Exposition::read(&page.into_text())
}

/// Where the counts and the database differ.
pub fn miscounts(house: &TestHouse) -> Vec<String> {
    let sql = Connection::open(house.folder.path().join("stepward.db")).unwrap();
    let mut miscounts = Vec::new();
    let written = written(house);
    // A step that a retried job took over ended in another one.
    let takes_over = "SELECT EXISTS (SELECT 1 FROM job WHERE retry_of IS NOT NULL)";
    let takes_over: bool = sql.query_row(takes_over, [], |row| row.get(0)).unwrap();
    // What was too old and removed was counted before: numbers are never given twice, so a gap shows it.
    let has_gaps = "SELECT EXISTS (
        SELECT 1 FROM sqlite_sequence WHERE (name = 'job' AND seq <> (SELECT count(*) FROM job))
            OR (name = 'event' AND seq <> (SELECT count(*) FROM event)))";
    let has_gaps: bool = sql.query_row(has_gaps, [], |row| row.get(0)).unwrap();
    for (family, statement) in COUNTED {
        if has_gaps {
            break;
        }
        if takes_over && *family == "stepward_steps_finished_total" {
            continue;
        }
        let mut kept: Vec<String> = rows(&sql, statement)
            .iter()
            .map(|(labels, count)| format!("{labels} {count}").trim().to_string())
            .collect();
        kept.sort();
        let mut told = written.told(family);
        told.sort();
        if told != kept {
            miscounts.push(format!(
                "{family} tells {told:?}, the database has {kept:?}"
            ));
        }
    }
    miscounts.extend(misjudged(house, &sql));
    miscounts
}

fn rows(sql: &Connection, statement: &str) -> BTreeMap<String, u64> {
    let mut statement = sql.prepare(statement).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)));
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}

/// What there is now, against a look at every row.
fn misjudged(house: &TestHouse, sql: &Connection) -> Vec<String> {
    let census = house.engine.census(house.now()).unwrap();
    let mut misjudged = Vec::new();
    let open = "SELECT state, count(*) FROM step WHERE ended_at IS NULL GROUP BY 1";
    let kept = rows(sql, open);
    for state in StepState::ALL {
        let (told, kept) = (census.steps[*state as usize], kept.get(state.as_str()));
        if told != kept.copied().unwrap_or(0) {
            misjudged.push(format!(
                "{told} steps are {state}, the database has {kept:?}"
            ));
        }
    }
    let open = rows(
        sql,
        "SELECT state, count(*) FROM job WHERE ended_at IS NULL GROUP BY 1",
    );
    let told = [
        ("pending", census.jobs_pending),
        ("running", census.jobs_running),
    ];
    for (state, told) in told {
        if told != open.get(state).copied().unwrap_or(0) {
            misjudged.push(format!(
                "{told} jobs are {state}, the database has {open:?}"
            ));
        }
    }
    let open = "SELECT CAST(step_id AS TEXT), step_id FROM step WHERE ended_at IS NULL LIMIT 41";
    let open = rows(sql, open);
    if open.len() <= ASKED_MAX {
        let mut asked = [0; Waiting::ALL.len()];
        for step_id in open.values() {
            let why = house.engine.why(StepId(*step_id as i64), house.now());
            match why.unwrap().code {
                Code::Waiting(waiting) => asked[waiting as usize] += 1,
                code => misjudged.push(format!("an open step is {code}")),
            }
        }
        let words = |counts: [u64; Waiting::ALL.len()]| -> Vec<String> {
            let pairs = Waiting::ALL.iter().zip(counts);
            let told = pairs.filter(|(_, count)| *count > 0);
            told.map(|(waiting, count)| format!("{waiting} {count}"))
                .collect()
        };
        if asked != census.waiting {
            let (told, asked) = (words(census.waiting), words(asked));
            misjudged.push(format!("waiting is {told:?}, and why says {asked:?}"));
        }
    }
    misjudged
}
