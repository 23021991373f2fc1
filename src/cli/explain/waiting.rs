//! Why steps that have not ended are where they are.

use super::Said;
use crate::domain::reason::Waiting;

pub fn said(waiting: Waiting) -> Said {
    let (title, text) = match waiting {
        Waiting::Dependencies => (
            "steps that it depends on have not ended",
            "It is decided once all of them have: `stepward graph --job JOB` shows which ones it waits for.",
        ),
        Waiting::NotBefore => (
            "it was asked for at a later time",
            "The job was submitted with `not_before`. `stepward queue` says when that is.",
        ),
        Waiting::RetryBackoff => (
            "it failed and will be tried again",
            "The pause is the `delay` of its `retry`. `stepward logs JOB/STEP` shows how the last attempt went.",
        ),
        Waiting::Concurrency => (
            "its concurrency group is full",
            "It begins when another job of the group ends: `stepward why JOB` names those.\n\
             A larger `limit` lets several run at once.",
        ),
        Waiting::Paused => (
            "those who could run it are paused",
            "`stepward worker ls` shows who; `stepward worker resume NAME` lets one go on.",
        ),
        Waiting::Approval => (
            "a person has to decide",
            "`stepward approve JOB/STEP` or `stepward reject JOB/STEP`. Without either it fails after its `timeout`.",
        ),
        Waiting::Held => (
            "its worker was lost, and a person has to decide whether it runs again",
            "The step says `on_worker_loss: hold`. See how far it came (`stepward logs JOB/STEP`), then\n\
             `stepward approve JOB/STEP` runs it again and `stepward reject JOB/STEP` fails it.",
        ),
        Waiting::ChildJob => (
            "the job that it called has not ended",
            "`stepward why JOB` leads to that job and to what it waits for.",
        ),
        Waiting::Instances => (
            "items of its loop have not ended",
            "Each is a step of its own, such as test[2]: `stepward job show JOB` lists them. `max_parallel` bounds how many run at once.",
        ),
        Waiting::NoMatchingWorker => (
            "no active worker offers all its tags",
            "`stepward why JOB/STEP` says what each worker lacks. Start one that has them: `stepward worker --tags script,gpu`.\n\
             After `unmatched_step_timeout_secs` recovery fails the step, unless it says `unmatched: wait`.",
        ),
        Waiting::MatchingWorkersSilent => (
            "those who could run it have not been heard of",
            "They are inactive: machine, network or process is gone. One heartbeat makes a worker active again.\n\
             Without one, recovery fails the step after `unmatched_step_timeout_secs`.",
        ),
        Waiting::WorkersBusy => (
            "those who could run it have no free slot",
            "It is taken as soon as one has. More `slots`, more workers, or a higher `priority` make that sooner.\n\
             `stepward queue` shows its place.",
        ),
        Waiting::Claimable => (
            "a worker may take it at any moment",
            "It usually lasts for milliseconds. If it does not, no worker is asking: look at `stepward worker ls` and the worker's log.",
        ),
        Waiting::Preparing => (
            "a worker has it and makes it ready",
            "Folders are made, an image is pulled. Without a sign for `ack_timeout_secs`, and after `prepare_timeout_secs` in any case,\n\
             it goes back to the queue.",
        ),
        Waiting::Running => (
            "it runs",
            "`stepward logs -f JOB/STEP` follows what it prints. It ends at the latest after its `timeout`.",
        ),
    };
    Said { title, text }
}
