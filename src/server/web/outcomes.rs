//! How the last jobs of a task went: a bar for each, as high as it took long.

use maud::{Markup, html};

use super::{links, parts};
use crate::domain::span::span;
use crate::store::PastJob;

const BAR: u32 = 8;
const HEIGHT: i64 = 24;
/// The shortest can still be seen and clicked.
const LOWEST: i64 = 6;

/// The oldest of them first, as time goes.
pub fn strip(jobs: &[PastJob]) -> Markup {
    let longest = jobs.iter().filter_map(ran_ms).max().unwrap_or(0).max(1);
    let width = jobs.len() as u32 * BAR;
    html! {
        @if jobs.is_empty() { (parts::none()) }
        @else {
            svg.strip width=(width) height=(HEIGHT) viewBox={ "0 0 " (width) " " (HEIGHT) } role="group" aria-label="The last jobs, oldest first" {
                @for (at, job) in jobs.iter().rev().enumerate() {
                    @let height = ran_ms(job).map_or(LOWEST, |ms| LOWEST + (HEIGHT - LOWEST) * ms / longest);
                    @let words = format!("job {} {}{}", job.job_id, job.state, ran_ms(job).map_or(String::new(), |ms| format!(", {}", span(ms))));
                    a href=(links::job(job.job_id.0)) aria-label=(words) {
                        rect class={ "bar bar-" (job.state) } x=(at as u32 * BAR) y=(HEIGHT - height) width=(BAR - 2) height=(height) { title { (words) } }
                    }
                }
            }
        }
    }
}

/// Half of the jobs that completed took no longer, and 19 of 20 no longer than the second. `None`: none has.
pub fn usual_ms(jobs: &[PastJob]) -> Option<(i64, i64)> {
    let completed = jobs
        .iter()
        .filter(|job| job.state == crate::domain::job::JobState::Completed);
    let mut took: Vec<i64> = completed.filter_map(ran_ms).collect();
    took.sort_unstable();
    let at = |share: usize| took[(took.len() * share).div_ceil(100).max(1) - 1];
    (!took.is_empty()).then(|| (at(50), at(95)))
}

fn ran_ms(job: &PastJob) -> Option<i64> {
    let (from, to) = job.started_at.zip(job.ended_at)?;
    Some((to.0 - from.0).max(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::job::JobState;
    use crate::domain::{JobId, Timestamp};

    #[test]
    fn half_of_the_jobs_and_nineteen_of_twenty_take_no_longer() {
        let took = |ms: i64| PastJob {
            job_id: JobId(1),
            state: JobState::Completed,
            created_at: Timestamp(0),
            started_at: Some(Timestamp(1_000)),
            ended_at: Some(Timestamp(1_000 + ms)),
        };
        let of = |times: &[i64]| usual_ms(&times.iter().copied().map(took).collect::<Vec<_>>());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[7]), Some((7, 7)));
        assert_eq!(of(&[9, 3]), Some((3, 9)));
        let twenty: Vec<i64> = (1..=20).collect();
        assert_eq!(of(&twenty), Some((10, 19)));
        let failed = PastJob {
            state: JobState::Failed,
            ..took(5)
        };
        assert_eq!(usual_ms(&[failed]), None);
    }
}
