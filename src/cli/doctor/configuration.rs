//! Whether the settings load, and whether what is in the environment means anything.

use std::collections::BTreeSet;

use clap::CommandFactory;

use super::case::Case;
use super::{Finding, Looked};
use crate::certificate;
use crate::cli::Arguments;
use crate::cli::help::FIRST_NAMES;
use crate::cli::settings::{Known, worker};
use crate::cli::words::{count, shell_path};
use crate::clock::wall_time;
use crate::config::environment::{server_variables, worker_variables};
use crate::config::{ConfigError, ServerConfig};
use crate::language::words::nearest;
use crate::server::tls::{Identity, out_of_date};

/// Variables that no flag has: of our own log, of tokens, and of steps, in one of which this may run.
const OTHERS: &[&str] = &[
    "STEPWARD_ATTEMPT",
    "STEPWARD_ATTEMPT_KEY",
    "STEPWARD_EVENT",
    "STEPWARD_JOB_ID",
    "STEPWARD_JOB_URL",
    "STEPWARD_LOG",
    "STEPWARD_MESSAGE_ID",
    "STEPWARD_OUTPUT",
    "STEPWARD_SCHEDULED_AT",
    "STEPWARD_SCRIPT",
    "STEPWARD_STARTED_AT",
    "STEPWARD_STEP",
    "STEPWARD_TARGET",
    "STEPWARD_TASK",
    "STEPWARD_TMP",
    "STEPWARD_TOKEN",
    "STEPWARD_WORKER",
    "STEPWARD_WORKSPACE",
];

pub fn look(case: &Case) -> Looked {
    let mut found = Vec::new();
    let shown_by = match &case.config {
        Some(file) => format!("stepward config show --config {}", shell_path(file)),
        None => "stepward config show".to_string(),
    };
    found.push(settings("server", &shown_by, &case.server));
    if let Ok(known) = &case.server {
        found.extend(token(known.config.token()));
        found.extend(certificate(&known.config));
    }
    // Without a file there may be variables.
    if case.worker.is_none()
        && let Err(fault) = worker(None, &[])
    {
        let message = format!("a worker started here would not start: {fault:#}");
        let fix = "mend it, until this goes through: stepward config show --worker";
        found.push(Finding::problem(message).fix(fix));
    }
    if let Some(worker) = &case.worker {
        found.push(settings("worker", "stepward config show --worker", worker));
        if let Ok(known) = worker {
            found.extend(token(known.config.token()));
            if let Err(fault) = known.config.trust() {
                let message = format!("the worker would not start: {fault}");
                found.push(
                    Finding::problem(message).fix("name another file with ca_file, or write null"),
                );
            }
        }
    }
    let prefix = match &case.server {
        Ok(known) => known.config.secrets.allow_env_prefix.clone(),
        // Whoever cannot read the settings must not tell anybody to remove a secret.
        Err(_) => ServerConfig::default().secrets.allow_env_prefix,
    };
    found.extend(variables(prefix.as_deref()));
    Ok(found)
}

fn settings<C>(kind: &str, shown_by: &str, known: &anyhow::Result<Known<C>>) -> Finding {
    let known = match known {
        Ok(known) => known,
        Err(fault) => {
            return Finding::problem(format!("the settings of the {kind} do not load: {fault:#}"))
                .fix(format!("mend it, until this goes through: {shown_by}"));
        }
    };
    let changed = known.settings.iter().filter(|one| one.is_changed()).count();
    let differ = match changed {
        0 => "all settings are the defaults".to_string(),
        1 => "1 setting differs from the defaults".to_string(),
        _ => format!("{} differ from the defaults", count(changed, "setting")),
    };
    Finding::ok(match &known.file {
        Some(file) => format!("{} loads, {differ}", file.display()),
        None => format!("no settings file of a {kind} here, {differ}"),
    })
}

fn token(token: Result<Option<String>, ConfigError>) -> Option<Finding> {
    let fault = token.err()?;
    Some(
        Finding::problem(format!("the token cannot be read: {fault}"))
            .fix("make one in another file: stepward token file FILE")
            .fix("or let the user that runs it read the file"),
    )
}

/// What clients would say of the certificate, before they do.
fn certificate(config: &ServerConfig) -> Option<Finding> {
    /// Whoever renews by a timer does it sooner.
    const DAYS_LEFT_MIN: i64 = 14;
    const DAY_MS: i64 = 86_400_000;
    let (cert_file, key_file) = config.tls.files()?;
    if let Err(fault) = Identity::load(cert_file, key_file) {
        let message = format!("the server would not start: {fault}");
        return Some(
            Finding::problem(message)
                .fix("mend it, or name other files with tls.cert_file and tls.key_file"),
        );
    }
    let chain = certificate::in_file(cert_file).ok()?;
    let validity = certificate::holds(&chain[0])?;
    let (file, now) = (cert_file.display(), wall_time());
    let renew = "renew it; the server takes the new one without a restart";
    if let Some(said) = out_of_date(validity, now) {
        return Some(Finding::problem(format!("the certificate in {file} {said}")).fix(renew));
    }
    let days = (validity.1.0 - now.0) / DAY_MS;
    let left = count(usize::try_from(days).unwrap_or_default(), "day");
    (days < DAYS_LEFT_MIN).then(|| {
        Finding::warning(format!("the certificate in {file} expires in {left}")).fix(renew)
    })
}

/// A name that means nothing was meant to mean something. `secrets_prefix`: workflow files may name variables that begin with it, so
/// they mean something.
fn variables(secrets_prefix: Option<&str>) -> Vec<Finding> {
    let mut known: BTreeSet<String> = OTHERS.iter().map(|name| name.to_string()).collect();
    collect(&Arguments::command(), &mut known);
    known.extend(FIRST_NAMES.iter().map(|(_, first)| first.to_string()));
    let of_settings = server_variables().into_iter().chain(worker_variables());
    known.extend(of_settings.map(|variable| variable.name));
    let set = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let ours = set.filter(|name| name.starts_with("STEPWARD_"));
    let is_secret = |name: &str| secrets_prefix.is_some_and(|prefix| name.starts_with(prefix));
    let unknown = ours.filter(|name| !known.contains(name) && !is_secret(name));
    let unknown: BTreeSet<String> = unknown.collect();
    let told = |name: String| {
        let finding = Finding::warning(format!("the variable {name} means nothing to stepward"));
        match nearest(&name, known.iter().map(String::as_str)) {
            Some(near) => finding.fix(format!("did you mean {near}?")),
            None => finding.fix(format!("take it away: unset {name}")),
        }
    };
    unknown.into_iter().map(told).collect()
}

fn collect(command: &clap::Command, known: &mut BTreeSet<String>) {
    let variables = command.get_arguments().filter_map(clap::Arg::get_env);
    known.extend(variables.map(|name| name.to_string_lossy().into_owned()));
    for verb in command.get_subcommands() {
        collect(verb, known);
    }
}
