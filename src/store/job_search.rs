//! Lists of jobs, newest first, narrowed by a filter.
//!
//! Each condition of a filter has an index that ends with the job's id, so the newest job below a given id that meets the
//! condition is one seek away. A filter with several conditions goes from index to index, each time down to the lowest id
//! found, until all of them agree on a job. So a page costs as much as the jobs on it and the jobs that meet some conditions
//! but not all, and never as much as the history.

use rusqlite::named_params;

use super::rows::{self, job_columns};
use super::{StoreError, Tx};
use crate::domain::job::{Job, JobFilter, JobState, Source};
use crate::domain::reason::Reason;
use crate::domain::{JobId, Timestamp};

pub const STATEMENTS: &[&str] = &[
    JOBS_BEFORE,
    JOB_IN_STATE_BEFORE,
    JOB_OF_TASK_BEFORE,
    JOB_WITH_REASON_BEFORE,
    JOB_FROM_SOURCE_BEFORE,
];

/// The seeks of one part of a search. Only a filter whose conditions each fit very many jobs, and together almost none, needs
/// more; then the part ends early, and the next part continues the search.
const SEEKS_MAX: u32 = 50_000;

/// The size of the inputs on one page. The page ends with the job that exceeds it.
pub const PAGE_BYTES_MAX: usize = 4 << 20;

/// A filter by time ends after this many jobs in a row that are too old. The first one need not be the end: if the clock was
/// set back, a few older ids have younger times.
const TOO_OLD_MAX: u32 = 1_000;

const JOBS_BEFORE: &str = concat!(
    "SELECT ",
    job_columns!(),
    " FROM job AS j
      WHERE j.job_id < :before AND j.leaving = 0
      ORDER BY j.job_id DESC"
);

const JOB_IN_STATE_BEFORE: &str = "
    SELECT max(job_id) FROM job WHERE state = :state AND job_id < :before
";

const JOB_OF_TASK_BEFORE: &str = "
    SELECT max(job_id) FROM job WHERE task = :task AND state = :state AND job_id < :before
";

const JOB_WITH_REASON_BEFORE: &str = "
    SELECT max(job_id) FROM job WHERE reason = :reason AND job_id < :before
";

const JOB_FROM_SOURCE_BEFORE: &str = "
    SELECT max(job_id) FROM job WHERE source = :source AND job_id < :before
";

/// One condition of a filter that an index serves.
#[derive(Clone, Copy)]
enum Condition<'f> {
    State(JobState),
    Task(&'f str, JobState),
    Reason(Reason),
    Source(Source),
}

/// The jobs that meet at least one of these conditions, newest first.
struct AnyOf<'f> {
    /// Each condition with the newest job that meets it among those that the search has not passed. `None`: no job is left.
    heads: Vec<(Condition<'f>, Option<JobId>)>,
}

/// The jobs that meet all conditions, newest first.
struct Search<'s, 'f> {
    tx: &'s Tx<'s>,
    all_of: Vec<AnyOf<'f>>,
    seeks: u32,
}

/// What one step of a search comes to.
enum Found {
    Job(JobId),
    /// No older job meets all conditions.
    Nothing,
    /// The search has cost as much as one page may cost. Jobs below this id were not searched.
    Unfinished(JobId),
}

impl<'s, 'f> Search<'s, 'f> {
    /// Begins below a job. `None`: the filter has no condition that an index serves.
    fn begin(
        tx: &'s Tx<'s>,
        filter: &'f JobFilter,
        before: JobId,
    ) -> Result<Option<Search<'s, 'f>>, StoreError> {
        let mut all_of: Vec<Vec<Condition>> = Vec::new();
        match (&filter.task, filter.state) {
            (Some(task), Some(state)) => all_of.push(vec![Condition::Task(task, state)]),
            (Some(task), None) => {
                let states = JobState::ALL.iter();
                all_of.push(states.map(|&state| Condition::Task(task, state)).collect());
            }
            (None, Some(state)) => all_of.push(vec![Condition::State(state)]),
            (None, None) => {}
        }
        all_of.extend(filter.reason.map(|reason| vec![Condition::Reason(reason)]));
        all_of.extend(filter.source.map(|source| vec![Condition::Source(source)]));
        if all_of.is_empty() {
            return Ok(None);
        }
        let mut search = Search {
            tx,
            all_of: Vec::new(),
            seeks: 0,
        };
        for conditions in all_of {
            let mut heads = Vec::new();
            for condition in conditions {
                heads.push((condition, search.seek(condition, before)?));
            }
            search.all_of.push(AnyOf { heads });
        }
        Ok(Some(search))
    }

    fn seek(&mut self, condition: Condition, before: JobId) -> Result<Option<JobId>, StoreError> {
        self.seeks += 1;
        self.tx.newest_before(condition, before)
    }

    /// The newest job at or below `from` that meets all conditions. `from` falls from call to call.
    fn next(&mut self, mut from: JobId) -> Result<Found, StoreError> {
        loop {
            if self.seeks >= SEEKS_MAX {
                return Ok(Found::Unfinished(JobId(from.0.saturating_add(1))));
            }
            let mut lowest = from;
            for at in 0..self.all_of.len() {
                let Some(newest) = self.newest_of(at, lowest)? else {
                    return Ok(Found::Nothing);
                };
                lowest = newest;
            }
            // The first condition may not have been asked about an id as low as the last one gave.
            if self.all_of.iter().all(|any| any.newest() == Some(lowest)) {
                return Ok(Found::Job(lowest));
            }
            from = lowest;
        }
    }

    /// The newest job at or below `from` that meets one of the conditions of a group.
    fn newest_of(&mut self, at: usize, from: JobId) -> Result<Option<JobId>, StoreError> {
        for head in 0..self.all_of[at].heads.len() {
            let (condition, newest) = self.all_of[at].heads[head];
            if newest > Some(from) {
                let next = self.seek(condition, JobId(from.0.saturating_add(1)))?;
                self.all_of[at].heads[head].1 = next;
            }
        }
        Ok(self.all_of[at].newest())
    }
}

impl AnyOf<'_> {
    fn newest(&self) -> Option<JobId> {
        self.heads.iter().filter_map(|(_, newest)| *newest).max()
    }
}

/// A page in the making.
struct Page {
    jobs: Vec<Job>,
    limit: usize,
    bytes: usize,
    since: Option<Timestamp>,
    too_old: u32,
}

impl Page {
    /// Adds the next older job. `Some`: the page is complete, and the next page begins below this job, if there is one.
    fn add(&mut self, job: Job) -> Option<Option<JobId>> {
        if self.since.is_some_and(|since| job.created_at < since) {
            self.too_old += 1;
            return (self.too_old >= TOO_OLD_MAX).then_some(None);
        }
        self.too_old = 0;
        if self.jobs.len() == self.limit || self.bytes >= PAGE_BYTES_MAX {
            return Some(self.jobs.last().map(|last| last.job_id));
        }
        self.bytes += job.input.0.len();
        self.jobs.push(job);
        None
    }
}

impl Tx<'_> {
    /// The newest jobs below an id that fit a filter, at most `limit`, and where the next page begins. `None`: this is the
    /// last page. A page with fewer jobs than `limit` is the last one, but for large inputs and the limit on seeks.
    pub fn jobs_before(
        &self,
        before: JobId,
        filter: &JobFilter,
        limit: u32,
    ) -> Result<(Vec<Job>, Option<JobId>), StoreError> {
        let mut page = Page {
            jobs: Vec::new(),
            limit: limit as usize,
            bytes: 0,
            since: filter.since,
            too_old: 0,
        };
        let next = match Search::begin(self, filter, before)? {
            Some(search) => self.fill_by_search(&mut page, search, before)?,
            None => self.fill_by_id(&mut page, before)?,
        };
        Ok((page.jobs, next))
    }

    fn fill_by_id(&self, page: &mut Page, before: JobId) -> Result<Option<JobId>, StoreError> {
        let mut statement = self.sql(JOBS_BEFORE)?;
        let mut rows = statement.query(named_params! {":before": before.0})?;
        while let Some(row) = rows.next()? {
            if let Some(next) = page.add(rows::job(row)?) {
                return Ok(next);
            }
        }
        Ok(None)
    }

    fn fill_by_search(
        &self,
        page: &mut Page,
        mut search: Search,
        before: JobId,
    ) -> Result<Option<JobId>, StoreError> {
        let mut from = JobId(before.0.saturating_sub(1));
        loop {
            let job_id = match search.next(from)? {
                Found::Job(job_id) => job_id,
                Found::Nothing => return Ok(None),
                Found::Unfinished(before) => return Ok(Some(before)),
            };
            // A job that is being removed is in the indexes, and nobody sees it any more.
            if let Some(job) = self.job(job_id)?
                && let Some(next) = page.add(job)
            {
                return Ok(next);
            }
            from = JobId(job_id.0 - 1);
        }
    }

    fn newest_before(
        &self,
        condition: Condition,
        before: JobId,
    ) -> Result<Option<JobId>, StoreError> {
        let newest = |row: &rusqlite::Row| row.get::<_, Option<i64>>(0);
        let job_id = match condition {
            Condition::State(state) => self.sql(JOB_IN_STATE_BEFORE)?.query_row(
                named_params! {":state": state.as_str(), ":before": before.0},
                newest,
            ),
            Condition::Task(task, state) => self.sql(JOB_OF_TASK_BEFORE)?.query_row(
                named_params! {":task": task, ":state": state.as_str(), ":before": before.0},
                newest,
            ),
            Condition::Reason(reason) => self.sql(JOB_WITH_REASON_BEFORE)?.query_row(
                named_params! {":reason": reason.as_str(), ":before": before.0},
                newest,
            ),
            Condition::Source(source) => self.sql(JOB_FROM_SOURCE_BEFORE)?.query_row(
                named_params! {":source": source.as_str(), ":before": before.0},
                newest,
            ),
        };
        Ok(job_id?.map(JobId))
    }
}
