//! Any program: the event as JSON on its input, a few words in its environment. No shell is in between.

use std::sync::atomic::AtomicBool;

use super::message::Letter;
use super::program;
use crate::domain::outbox::Sent;

pub fn deliver(command: &[String], letter: &Letter, stopping: &AtomicBool) -> Sent {
    let mut variables = vec![
        ("STEPWARD_MESSAGE_ID", letter.id.clone()),
        ("STEPWARD_EVENT", letter.kind.clone()),
        ("STEPWARD_TARGET", letter.target.clone()),
    ];
    if let Some(job) = &letter.job {
        variables.push(("STEPWARD_JOB_ID", job.id.to_string()));
        variables.push(("STEPWARD_TASK", job.task.replace('\0', " ")));
    }
    program::run(command, &variables, &letter.cloud_event(), stopping)
}
