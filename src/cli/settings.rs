//! Settings as `stepward server` or `stepward worker` would have them if it were started here, and who said what.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Args, Command};

use super::embedded;
use super::exit::{Exit, Fault};
use super::files::{SERVER_CONFIG, WORKER_CONFIG, config_file};
use super::help::{name_variable, with_variables};
use super::server::ServerArgs;
use super::worker::WorkerArgs;
use crate::config::environment::{Variable, of_process, server_variables, worker_variables};
use crate::config::{ConfigError, Given, Origin, ServerConfig, Setting, WorkerConfig, in_force};

/// Arguments of verbs whose setting is called otherwise.
const CALLED: &[(&str, &str, &str)] = &[
    ("worker", "server", "server_url"),
    ("worker", "log_format", "log.format"),
    ("server", "log_format", "log.format"),
    ("server", "no_auth", "auth.required"),
    ("dev", "port", "listen"),
    ("dev", "slots", "embedded_worker.slots"),
    ("dev", "tags", "embedded_worker.tags"),
];

pub struct Known<C> {
    /// `None`: there is none.
    pub file: Option<PathBuf>,
    pub config: C,
    pub settings: Vec<Setting>,
    pub given: Vec<Given>,
}

pub fn server(named: Option<&Path>, words: &[OsString]) -> anyhow::Result<Known<ServerConfig>> {
    let file = config_file(named, SERVER_CONFIG);
    let (args, mut given) = given::<ServerArgs>("server", words)?;
    given.extend(by_variables(server_variables()));
    let loaded = ServerConfig::load_with(file.as_deref(), |config| args.put_over(config));
    let config = with_folder(loaded.map_err(refused)?);
    let settings = in_force(&config, file.as_deref(), &given);
    let mut settings = settings.map_err(refused)?;
    as_embedded(&mut settings);
    Ok(Known {
        file,
        config,
        settings,
        given,
    })
}

/// Those of a server that `stepward VERB` has just started, for its page. What the verb chose by itself is told to be its choice.
pub fn of_running<A: Args>(
    verb: &'static str,
    config: &ServerConfig,
    file: Option<&Path>,
) -> Vec<Setting> {
    let words = std::env::args_os().skip_while(|word| word != verb);
    let words: Vec<OsString> = words.skip(1).collect();
    // Flags that are not of the verb alone are not understood here: then it is not known who said what.
    let mut given = given::<A>(verb, &words).map_or_else(|_| Vec::new(), |(_, given)| given);
    given.extend(by_variables(server_variables()));
    let config = with_folder(config.clone());
    let mut settings = in_force(&config, file, &given).unwrap_or_default();
    as_embedded(&mut settings);
    for setting in &mut settings {
        if setting.is_changed() && setting.origin == Origin::Default {
            setting.origin = Origin::Flag(format!("stepward {verb}"));
        }
    }
    settings
}

/// With the folder that its worker has, if the settings leave that open.
fn with_folder(mut config: ServerConfig) -> ServerConfig {
    if let Some(folder) = embedded::folder(&config)
        && let Some(worker) = &mut config.embedded_worker
    {
        worker.data_dir = folder;
    }
    config
}

/// Its defaults are those of every worker. How it reaches the server nobody can say but the server.
fn as_embedded(settings: &mut Vec<Setting>) {
    const WORKER: &str = "embedded_worker.";
    let of_any = in_force(&WorkerConfig::default(), None, &[]).unwrap_or_default();
    settings.retain_mut(|setting| {
        let Some(key) = setting.key.strip_prefix(WORKER) else {
            return true;
        };
        let of_any = of_any.iter().find(|known| known.key == key);
        setting.default = of_any.map_or(setting.default.clone(), |known| known.value.clone());
        ![
            "server_url",
            "token_file",
            "ca_file",
            "log.format",
            "log.level",
        ]
        .contains(&key)
    });
}

pub fn worker(named: Option<&Path>, words: &[OsString]) -> anyhow::Result<Known<WorkerConfig>> {
    let file = config_file(named, WORKER_CONFIG);
    let (args, mut given) = given::<WorkerArgs>("worker", words)?;
    given.extend(by_variables(worker_variables()));
    let loaded = WorkerConfig::load_with(file.as_deref(), |config| args.put_over(config));
    let config = loaded.map_err(refused)?;
    let settings = in_force(&config, file.as_deref(), &given);
    let settings = settings.map_err(refused)?;
    Ok(Known {
        file,
        config,
        settings,
        given,
    })
}

fn refused(fault: ConfigError) -> anyhow::Error {
    Fault::new(Exit::of_settings(&fault), fault.to_string()).into()
}

fn invalid(fault: String) -> anyhow::Error {
    Fault::new(Exit::Invalid, fault).into()
}

/// What these words and the environment say to a verb.
fn given<A: Args>(verb: &'static str, words: &[OsString]) -> anyhow::Result<(A, Vec<Given>)> {
    let command = A::augment_args(Command::new(verb).no_binary_name(true));
    let command = with_variables(command);
    let matches = command.clone().try_get_matches_from(words);
    let matches = matches.map_err(|mut error| {
        name_variable(&mut error, &command, words);
        // The rest of it is about how to ask for help.
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default();
        let line = line.strip_prefix("error: ").unwrap_or(line);
        invalid(format!("stepward {verb} does not take it: {line}"))
    })?;
    let of = |argument: &clap::Arg| {
        let id = argument.get_id().as_str();
        let key = called(verb, id).to_string();
        let by = match matches.value_source(id)? {
            ValueSource::EnvVariable => {
                Origin::Variable(argument.get_env()?.to_string_lossy().into_owned())
            }
            ValueSource::CommandLine => Origin::Flag(format!("--{}", argument.get_long()?)),
            _ => return None,
        };
        Some(Given { key, by })
    };
    let given = command.get_arguments().filter_map(of).collect();
    let args = A::from_arg_matches(&matches);
    Ok((args.map_err(|error| invalid(error.to_string()))?, given))
}

/// Settings from environment variables that have no flag.
fn by_variables(variables: Vec<Variable>) -> impl Iterator<Item = Given> {
    let is_set = |name: &str| of_process(name).is_some_and(|value| !value.is_empty());
    let set = variables
        .into_iter()
        .filter(move |variable| is_set(&variable.name));
    set.map(|variable| Given {
        key: variable.key.to_string(),
        by: Origin::Variable(variable.name),
    })
}

fn called<'a>(verb: &str, id: &'a str) -> &'a str {
    let mut all = CALLED.iter();
    let found = all.find(|(of, known, _)| (*of, *known) == (verb, id));
    found.map_or(id, |(_, _, key)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise nobody would be told that it was a variable.
    #[test]
    fn every_variable_of_a_verb_is_known_by_its_setting() {
        fn variables<A: Args>(verb: &str) -> Vec<(String, String)> {
            let command = A::augment_args(Command::new("any"));
            let arguments = command.get_arguments();
            let named = arguments.filter_map(|argument| {
                let id = argument.get_id().as_str();
                let key = called(verb, id);
                let variable = argument.get_env()?.to_string_lossy().into_owned();
                Some((variable, key.to_string()))
            });
            named.collect()
        }
        let known = |settings: &[Setting], key: &str| {
            let below = format!("{key}.");
            let is = |setting: &Setting| setting.key == key || setting.key.starts_with(&below);
            settings.iter().any(is)
        };
        let settings = in_force(&ServerConfig::default(), None, &[]).unwrap();
        for (variable, key) in variables::<ServerArgs>("server") {
            assert!(known(&settings, &key), "{variable} is no setting {key}");
        }
        let settings = in_force(&WorkerConfig::default(), None, &[]).unwrap();
        for (variable, key) in variables::<WorkerArgs>("worker") {
            // What it is, no file may hold: it has its own line.
            let is_known = known(&settings, &key) || key == "token";
            assert!(is_known, "{variable} is no setting {key}");
        }
    }
}
