//! Everything that must not be so, as queries that must find nothing. Tests run it at their end, people with `db check`.

use std::collections::BTreeMap;
use std::fmt;

use super::{StoreError, Tx};
use crate::domain::JobId;
use crate::domain::audit::ChainFault;
use crate::domain::depends::Outcome;
use crate::domain::job::{JobState, Tally};
use crate::domain::step::{Step, StepState};

/// One thing that is wrong in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    pub rule: &'static str,
    pub what: String,
}

impl Breach {
    pub fn of_pages(what: String) -> Breach {
        let rule = "every page of the file is sound";
        // SQLite begins a list of what it found with the name of the database.
        let what = what.replace("*** in database main ***", "");
        let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
        Breach { rule, what }
    }
}

impl Breach {
    pub fn of_audit(fault: ChainFault) -> Breach {
        Breach {
            rule: "the audit log is one chain of hashes",
            what: fault.to_string(),
        }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not so: {}: {}", self.rule, self.what)
    }
}

/// (rule, query that returns one text per breach). Whole-table scans: never on a hot path.
const RULES: &[(&str, &str)] = &[
    ("what a row refers to exists", "
        SELECT 'row ' || coalesce(rowid, '?') || ' of ' || \"table\" || ' refers to a ' || parent || ' that does not exist'
          FROM pragma_foreign_key_check"),
    ("a terminal job has only terminal steps", "
        SELECT 'job ' || j.job_id || ' is ' || j.state || ', its step ' || s.step_id || ' is ' || s.state
          FROM job AS j JOIN step AS s ON s.job_id = j.job_id
         WHERE j.ended_at IS NOT NULL AND s.ended_at IS NULL"),
    ("a job whose steps have all ended has ended", "
        SELECT 'job ' || j.job_id || ' is ' || j.state
          FROM job AS j
         WHERE j.ended_at IS NULL
           AND NOT EXISTS (SELECT 1 FROM step AS s WHERE s.job_id = j.job_id AND s.ended_at IS NULL)"),
    ("a job that is not held can go on", "
        SELECT 'job ' || j.job_id || ' has only pending steps'
          FROM job AS j
         WHERE j.ended_at IS NULL AND j.hold IS NULL
           AND NOT EXISTS (SELECT 1 FROM step AS s
                            WHERE s.job_id = j.job_id AND s.ended_at IS NULL AND s.state <> 'pending')"),
    ("a held job has not begun", "
        SELECT 'job ' || j.job_id || ' is held, its step ' || s.step_id || ' is ' || s.state
          FROM job AS j JOIN step AS s ON s.job_id = j.job_id
         WHERE j.hold IS NOT NULL AND s.state NOT IN ('pending', 'completed', 'skipped')"),
    ("a pending job has nothing running", "
        SELECT 'job ' || j.job_id || ' is pending, its step ' || s.step_id || ' is ' || s.state
          FROM job AS j JOIN step AS s ON s.job_id = j.job_id
         WHERE j.state = 'pending' AND s.kind <> 'loop' AND s.state IN ('running', 'suspended')"),
    ("a parent step runs for as long as its child job does", "
        SELECT 'step ' || s.step_id || ' is ' || s.state || ' (attempt ' || s.attempt || '), child job ' || j.job_id
               || ' is ' || j.state
          FROM job AS j JOIN step AS s ON s.step_id = j.parent_step_id
         WHERE (j.ended_at IS NULL AND NOT (s.state = 'running' AND s.child_job_id = j.job_id
                                            AND s.attempt = j.parent_attempt))
            OR (j.ended_at IS NOT NULL AND s.state = 'running' AND s.child_job_id = j.job_id)"),
    ("a running task step has its child job", "
        SELECT 'step ' || s.step_id
          FROM step AS s LEFT JOIN job AS j ON j.job_id = s.child_job_id AND j.parent_step_id = s.step_id
         WHERE s.kind = 'task' AND s.state = 'running' AND j.job_id IS NULL"),
    ("an attempt number is issued once", "
        SELECT 'step ' || s.step_id || ' is at attempt ' || s.attempt || ' after ' || count(f.attempt) || ' former ones'
          FROM step AS s LEFT JOIN former_attempt AS f ON f.step_id = s.step_id
         WHERE s.kind IN ('work', 'task') AND (s.origin_step_id IS NULL OR s.attempt > 0)
           AND NOT EXISTS (SELECT 1 FROM job AS j WHERE j.job_id = s.job_id AND j.leaving = 1)
         GROUP BY s.step_id
        HAVING s.attempt <> count(f.attempt)
                          + (s.session_id IS NOT NULL OR s.child_job_id IS NOT NULL)"),
    ("every started attempt of a step is listed with its outcome", "
        SELECT 'step ' || s.step_id || ' started ' || s.tries || ' attempts, '
               || (count(f.started_at) + (s.started_at IS NOT NULL AND (s.session_id IS NOT NULL OR s.child_job_id IS NOT NULL)))
               || ' are listed'
          FROM step AS s LEFT JOIN former_attempt AS f ON f.step_id = s.step_id
         WHERE s.kind IN ('work', 'task') AND (s.origin_step_id IS NULL OR s.attempt > 0)
           AND NOT EXISTS (SELECT 1 FROM job AS j WHERE j.job_id = s.job_id AND j.leaving = 1)
         GROUP BY s.step_id
        HAVING s.tries <> count(f.started_at)
                        + (s.started_at IS NOT NULL AND (s.session_id IS NOT NULL OR s.child_job_id IS NOT NULL))"),
    ("a session holds no more than its worker has slots", "
        SELECT 'worker ' || w.worker_id || ' holds ' || count(*) || ' of ' || w.slots
          FROM step AS s JOIN worker AS w ON w.worker_id = s.worker_id
         WHERE s.state IN ('assigned', 'running') AND s.kind = 'work' AND s.session_id = w.session_id
         GROUP BY w.worker_id
        HAVING count(*) > w.slots"),
    ("what a session holds is its worker's, and the session is current", "
        SELECT 'step ' || s.step_id || ' is ' || s.state || ' in session ' || s.session_id
          FROM step AS s
          LEFT JOIN session AS n ON n.session_id = s.session_id
          LEFT JOIN worker AS w ON w.worker_id = n.worker_id
         WHERE s.state IN ('assigned', 'running') AND s.kind = 'work'
           AND (w.worker_id IS NOT s.worker_id OR w.session_id IS NOT s.session_id OR w.deleted_at IS NOT NULL)"),
    ("a worker holds only what its tags allow", "
        SELECT 'step ' || s.step_id || ' is held by worker ' || s.worker_id
          FROM step AS s
         WHERE s.state IN ('assigned', 'running') AND s.kind = 'work'
           AND NOT EXISTS (SELECT 1 FROM capability AS c
                            WHERE c.worker_id = s.worker_id AND c.requirement_id = s.requirement_id)"),
    ("only a step in the queue or just assigned is kept from workers that gave it back", "
        SELECT 'step ' || s.step_id || ' is ' || s.state || ' and avoids worker ' || a.worker_id
          FROM avoidance AS a JOIN step AS s ON s.step_id = a.step_id
         WHERE s.state NOT IN ('ready', 'assigned')"),
    ("a worker has a session of its own until it is deleted", "
        SELECT 'worker ' || w.worker_id || ' has session ' || coalesce(w.session_id, 'none')
          FROM worker AS w LEFT JOIN session AS n ON n.session_id = w.session_id
         WHERE w.deleted_at IS NULL AND n.worker_id IS NOT w.worker_id"),
    ("whoever had a step is known", "
        SELECT 'step ' || s.step_id || ' names worker ' || coalesce(s.worker_id, 'none') || ' and session '
               || coalesce(s.session_id, 'none')
          FROM step AS s
          LEFT JOIN worker AS w ON w.worker_id = s.worker_id
          LEFT JOIN session AS n ON n.session_id = s.session_id
         WHERE w.worker_id IS NOT s.worker_id OR n.session_id IS NOT s.session_id"),
    ("a job blames a step of its own that failed", "
        SELECT 'job ' || j.job_id || ' blames step ' || j.failed_step_id
          FROM job AS j LEFT JOIN step AS s ON s.step_id = j.failed_step_id
         WHERE j.failed_step_id IS NOT NULL AND (s.job_id IS NOT j.job_id OR s.state IS NOT 'failed')"),
    ("a deleted worker can do nothing", "
        SELECT 'worker ' || w.worker_id || ' satisfies requirement ' || c.requirement_id
          FROM capability AS c JOIN worker AS w ON w.worker_id = c.worker_id
         WHERE w.deleted_at IS NOT NULL
         UNION ALL
        SELECT 'worker ' || w.worker_id || ' is avoided by step ' || a.step_id
          FROM avoidance AS a JOIN worker AS w ON w.worker_id = a.worker_id
         WHERE w.deleted_at IS NOT NULL"),
    ("a running loop waits for exactly its open instances", "
        SELECT 'step ' || l.step_id || ' waits for ' || l.waiting_on || ' instances'
          FROM step AS l
         WHERE l.kind = 'loop' AND l.state = 'running'
           AND l.waiting_on <> (SELECT count(*) FROM step AS s
                                 WHERE s.job_id = l.job_id AND s.position = l.position AND s.item >= 0
                                   AND s.ended_at IS NULL)"),
    ("an ended loop has only ended instances", "
        SELECT 'step ' || s.step_id || ' is ' || s.state
          FROM step AS l JOIN step AS s ON s.job_id = l.job_id AND s.position = l.position AND s.item >= 0
         WHERE l.kind = 'loop' AND l.ended_at IS NOT NULL AND s.ended_at IS NULL"),
    ("every failed step was told once", "
        SELECT 'step ' || s.step_id || ' has ' || count(e.seq) || ' events'
          FROM step AS s LEFT JOIN event AS e ON e.step_id = s.step_id AND e.kind = 'step_failed'
         WHERE s.state = 'failed'
         GROUP BY s.step_id
        HAVING count(e.seq) <> 1"),
    ("every ended job was told once", "
        SELECT 'job ' || j.job_id || ' has ' || count(e.seq) || ' events'
          FROM job AS j
          LEFT JOIN event AS e ON e.job_id = j.job_id AND e.kind = 'job_' || j.state
         WHERE j.ended_at IS NOT NULL
         GROUP BY j.job_id
        HAVING count(e.seq) <> 1"),
    ("nothing has happened after the service clock", "
        SELECT 'step ' || step_id || ' moved at ' || since_up
          FROM step WHERE since_up > (SELECT service_clock_up FROM server)
         UNION ALL
        SELECT 'job ' || job_id || ' moved at ' || since_up
          FROM job WHERE since_up > (SELECT service_clock_up FROM server)
         UNION ALL
        SELECT 'worker ' || worker_id || ' was seen at ' || seen_up
          FROM worker WHERE seen_up > (SELECT service_clock_up FROM server)"),
    ("what recovery did is told as its doing", "
        SELECT 'event ' || seq || ' has phase ' || coalesce(phase, 'none')
          FROM event
         WHERE (phase IS NOT NULL) <> (substr(message, 1, 11) = '[recovery] ')"),
    ("a fire has its job, and the job its fire", "
        SELECT 'schedule ' || f.schedule_id || ' at ' || f.due_at || ' names job ' || f.job_id
          FROM schedule_fire AS f LEFT JOIN job AS j ON j.job_id = f.job_id
         WHERE f.job_id IS NOT NULL
           AND (j.schedule_id IS NOT f.schedule_id OR j.scheduled_for IS NOT f.due_at OR j.source <> 'schedule')
         UNION ALL
        SELECT 'job ' || j.job_id || ' is in no ledger'
          FROM job AS j LEFT JOIN schedule_fire AS f ON f.job_id = j.job_id
         WHERE j.source = 'schedule' AND f.job_id IS NULL"),
    ("no fire of a schedule that makes no jobs waits to be one", "
        SELECT 'schedule ' || c.schedule_id || ' queued ' || f.due_at || ' and makes no jobs'
          FROM schedule AS c JOIN schedule_fire AS f ON f.schedule_id = c.schedule_id
         WHERE f.outcome = 'queued' AND (c.removed_at IS NOT NULL OR c.paused = 1 OR c.enabled = 0)"),
    ("nobody waits for an empty group", "
        SELECT 'group ' || concurrency_group || ' has jobs waiting and none in it'
          FROM job
         WHERE concurrency_group IS NOT NULL AND ended_at IS NULL AND hold IS NOT 'not_before'
         GROUP BY concurrency_group
        HAVING count(*) FILTER (WHERE hold IS NULL) = 0"),
];

impl Tx<'_> {
    /// Everything in the database that must not be so.
    pub fn breaches(&self) -> Result<Vec<Breach>, StoreError> {
        let mut breaches = self.page_breaches()?;
        breaches.extend(self.rule_breaches()?);
        breaches.extend(self.audit_breaches()?);
        Ok(breaches)
    }

    /// What is wrong with the file itself.
    pub fn page_breaches(&self) -> Result<Vec<Breach>, StoreError> {
        let found = self.texts("PRAGMA quick_check")?.into_iter();
        let unsound = found.filter(|what| what != "ok");
        Ok(unsound.map(Breach::of_pages).collect())
    }

    /// The same, but for the soundness of the file itself: cheap enough to be asked after every event of a simulation.
    pub fn rule_breaches(&self) -> Result<Vec<Breach>, StoreError> {
        let mut breaches = Vec::new();
        for &(rule, query) in RULES {
            let texts = self.texts(query)?.into_iter();
            breaches.extend(texts.map(|what| Breach { rule, what }));
        }
        let mut jobs = self.sql("SELECT job_id FROM job ORDER BY job_id")?;
        let mut rows = jobs.query([])?;
        while let Some(row) = rows.next()? {
            let job_id = JobId(row.get(0)?);
            let what = match self.graph_breaches(job_id, &mut breaches) {
                Ok(()) => continue,
                Err(StoreError::Unreadable { expected, found }) => {
                    format!("job {job_id} has {found:?} where {expected} belongs")
                }
                Err(StoreError::Sqlite(rusqlite::Error::QueryReturnedNoRows)) => {
                    format!("job {job_id} has no definition")
                }
                Err(error) => return Err(error),
            };
            let rule = "every job, its steps and its definition can be read";
            breaches.push(Breach { rule, what });
        }
        Ok(breaches)
    }

    fn texts(&self, query: &'static str) -> Result<Vec<String>, StoreError> {
        let mut statement = self.sql(query)?;
        let texts = statement.query_map([], |row| row.get(0))?;
        Ok(texts.collect::<Result<_, _>>()?)
    }

    /// What the job's graph says about its steps, and its counters about both.
    fn graph_breaches(&self, job_id: JobId, breaches: &mut Vec<Breach>) -> Result<(), StoreError> {
        let Some(job) = self.job(job_id)? else {
            return Ok(());
        };
        let definition = self.definition(job.definition_id)?;
        let steps = self.steps_of_job(job_id)?;
        let mut breach = |rule, what: String| breaches.push(Breach { rule, what });
        let Some(task) = definition.tasks().get(job.task_index as usize) else {
            let what = format!("job {job_id} is made from task {}", job.task_index);
            breach("a job is made from a task of its definition", what);
            return Ok(());
        };
        let flow: BTreeMap<u32, &Step> = steps
            .iter()
            .filter(|step| step.item.is_none())
            .map(|step| (step.position, step))
            .collect();
        let places = task.draft.steps.len();
        let unmade = flow.is_empty() && job.state == JobState::Skipped;
        if !unmade && !flow.keys().copied().eq(0..places as u32) {
            let what = format!("job {job_id} has {} of {places} steps", flow.len());
            breach(
                "a job has the steps of its definition, each in its place",
                what,
            );
            return Ok(());
        }
        for (&position, step) in &flow {
            let named = task.dependencies(position);
            let open: Vec<u32> = named
                .iter()
                .copied()
                .filter(|dependency| {
                    flow.get(dependency)
                        .is_none_or(|step| step.outcome().is_none())
                })
                .collect();
            let name = &task.step(position).name;
            if step.state == StepState::Pending && step.waiting_on as usize != open.len() {
                let what = format!(
                    "job {job_id} step {name} waits for {} steps, {} are open",
                    step.waiting_on,
                    open.len()
                );
                breach(
                    "a pending step waits for exactly its open dependencies",
                    what,
                );
            }
            if step.state == StepState::Pending && open.is_empty() && job.hold.is_none() {
                breach(
                    "every dependent of an ended step is decided",
                    format!("job {job_id} step {name}"),
                );
            }
            let decided = !matches!(step.state, StepState::Pending | StepState::Cancelled);
            if decided && !open.is_empty() {
                let what = format!(
                    "job {job_id} step {name} is {}, {} are open",
                    step.state,
                    open.len()
                );
                breach("a step is decided after all that it depends on", what);
            }
            if decided && open.is_empty() {
                let outcome_of = |at: u32| flow[&at].outcome().expect("none is open");
                let accepted = task.depends_on(position).accepts(&outcome_of);
                if accepted == (step.outcome() == Some(Outcome::Omitted)) {
                    let what = format!("job {job_id} step {name} is {}", step.state);
                    breach(
                        "a step runs if and only if its dependencies are accepted",
                        what,
                    );
                }
            }
            if step.kind != task.step(position).kind() {
                breach(
                    "a step is what its definition says",
                    format!("job {job_id} step {name}"),
                );
            }
        }
        let untolerated = |step: &&&Step| {
            step.state == StepState::Failed && !task.step(step.position).continue_on_failure
        };
        let cancelled = |step: &&&Step| step.state == StepState::Cancelled;
        let counted = Tally {
            open: steps
                .iter()
                .filter(|step| !step.state.is_terminal())
                .count() as u32,
            failed: flow.values().filter(untolerated).count() as u32,
            // Cancelling a job counts its loops' instances as well.
            cancelled: match job.state {
                JobState::Cancelled => job.tally.cancelled,
                _ => flow.values().filter(cancelled).count() as u32,
            },
        };
        if counted != job.tally {
            let what = format!(
                "job {job_id} counts {:?}, its steps are {counted:?}",
                job.tally
            );
            breach("a job counts its steps", what);
        }
        Ok(())
    }
}
