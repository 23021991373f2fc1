//! Workflow files: what is loaded, what is wrong with it, and what would be wrong with others.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use crate::clock::Deadline;
use crate::engine::EngineError;
use crate::language::{CheckBudget, CheckOptions, SourceFile, check_sources};
use crate::server::App;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::wire::Time;
use crate::wire::api::{
    ServedProblem, ServedWorkflows, ValidateRequest, ValidatedJson, WorkflowsJson,
};

/// Files of one request: as many as a folder that somebody looks at.
const FILES_MAX: usize = 100;

pub fn show(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    let loaded = app.workflows.current();
    let folder = app.workflows_dir.as_ref();
    let workflows = WorkflowsJson {
        folder: folder.map(|folder| folder.display().to_string()),
        tasks: loaded.tasks.len(),
        schedules: loaded.schedules.len(),
        webhooks: loaded.webhooks.len(),
        loaded_at: loaded.at.map(Time),
        stale: loaded.stale.clone(),
        left_out: loaded.left_out.clone(),
        problems: &loaded.problems,
    };
    Ok(Response::json(200, &workflows).into())
}

/// What of it fits into lines.
pub fn look(app: &App) -> ServedWorkflows {
    let loaded = app.workflows.current();
    let folder = app.workflows_dir.as_ref();
    let problems = loaded.problems.iter().map(|problem| ServedProblem {
        code: problem.code.to_string(),
        severity: match problem.is_error() {
            true => "error".to_string(),
            false => "warning".to_string(),
        },
        message: problem.message.clone(),
        file: problem.at.file.clone(),
        line: problem.at.line,
    });
    ServedWorkflows {
        folder: folder.map(|folder| folder.display().to_string()),
        loaded_at: loaded.at.map(Time),
        tasks: loaded.tasks.len(),
        stale: loaded.stale.clone(),
        left_out: loaded.left_out.clone(),
        problems: problems.collect(),
    }
}

/// Time limit of a check for a caller. The server's own folder has no limit, because a separate thread reads it.
const CHECK_TIME_MAX: Duration = Duration::from_secs(2);

/// Says all that `stepward validate` says, and what only a server knows: which tags its workers offer.
pub fn validate(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&[])?;
    let asked: ValidateRequest = request.json()?;
    if asked.files.is_empty() || asked.files.len() > FILES_MAX {
        let message = format!("files are {}, expected 1 to {FILES_MAX}", asked.files.len());
        return Err(ApiError::invalid(message));
    }
    let files = asked.files.into_iter().map(|file| SourceFile {
        path: PathBuf::from(file.path),
        text: file.text,
    });
    let deadline = Deadline::after(CHECK_TIME_MAX);
    let options = CheckOptions {
        offered_tags: offered_tags(app)?,
        budget: CheckBudget::new(CHECK_TIME_MAX, move || deadline.is_over()),
        ..CheckOptions::default()
    };
    let checked = check_sources(files.collect(), &options);
    let answer = ValidatedJson {
        valid: checked.errors() == 0,
        errors: checked.errors(),
        warnings: checked.warnings(),
        diagnostics: &checked.diagnostics,
    };
    Ok(Response::json(200, &answer).into())
}

/// Those of active workers. Nobody there says nothing about who will be.
fn offered_tags(app: &App) -> Result<Option<BTreeSet<String>>, EngineError> {
    let tags = app.engine.offered_tags()?;
    Ok(Some(tags).filter(|tags| !tags.is_empty()))
}
