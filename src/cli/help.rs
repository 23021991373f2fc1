//! The whole command line as one tree, and how its help reads: a sentence, examples, then everything else.

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue};
use clap::{Command, CommandFactory};

use super::Arguments;
use crate::language::words::nearest;

/// The verbs in the order in which somebody needs them.
#[rustfmt::skip]
const GROUPS: [(&str, &[&str]); 5] = [
    ("Begin",           &["demo", "init", "dev"]),
    ("Run and follow",  &["run", "watch", "wait", "logs", "why", "cancel", "retry", "approve", "reject"]),
    ("Look",            &["status", "queue", "recovery", "events", "job", "task", "worker", "schedule", "token", "audit"]),
    ("Write workflows", &["validate", "explain", "schema", "render", "graph", "import"]),
    ("Operate",         &["server", "worker", "doctor", "backup", "restore", "prune", "db", "config", "completions", "man"]),
];

/// What others call it.
#[rustfmt::skip]
const ELSEWHERE: [(&[&str], &str); 10] = [
    (&["ps", "list", "ls", "jobs"],            "job ls"),
    (&["start", "submit", "exec", "trigger"],  "run"),
    (&["stop", "kill", "abort"],               "cancel"),
    (&["tail", "log", "output"],               "logs"),
    (&["check", "lint"],                       "validate"),
    (&["serve", "up", "daemon"],               "server"),
    (&["info", "health", "ping"],              "status"),
    (&["forecast"],                            "recovery forecast"),
    (&["history"],                             "recovery history"),
    (&["agent", "runner", "workers", "nodes"], "worker"),
];

/// The command that was probably meant by a word that is none.
pub fn meant(word: &str) -> Option<String> {
    let elsewhere = ELSEWHERE.iter().find(|(words, _)| words.contains(&word));
    if let Some((_, here)) = elsewhere {
        return Some(here.to_string());
    }
    let names = GROUPS.iter().flat_map(|(_, names)| names.iter().copied());
    let words = ELSEWHERE
        .iter()
        .flat_map(|(words, _)| words.iter().copied());
    match nearest(word, names) {
        Some(near) => Some(near.to_string()),
        None => nearest(word, words).and_then(meant),
    }
}

const TEMPLATE: &str =
    "{about-with-newline}\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}\n";

pub fn command() -> Command {
    let command = with_variables(dressed(Arguments::command()));
    let help = overview(&command);
    command.override_help(help)
}

/// Variables of a worker by their first names, which a server may have as well: (name, first name).
pub const FIRST_NAMES: [(&str, &str); 5] = [
    ("STEPWARD_WORKER_NAME", "STEPWARD_NAME"),
    ("STEPWARD_WORKER_TAGS", "STEPWARD_TAGS"),
    ("STEPWARD_WORKER_SLOTS", "STEPWARD_SLOTS"),
    ("STEPWARD_WORKER_DATA_DIR", "STEPWARD_DATA_DIR"),
    ("STEPWARD_WORKER_LOG_FORMAT", "STEPWARD_LOG_FORMAT"),
];

/// Decides which variable each argument reads. A variable that is set to nothing counts as not set. The first name of a variable is
/// read where the name is not set.
pub fn with_variables(command: Command) -> Command {
    let is_set = |name: &OsStr| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let command = command.mut_args(|argument| {
        let Some(name) = argument.get_env().filter(|name| !is_set(name)) else {
            return argument;
        };
        let mut names = FIRST_NAMES.iter();
        let first = names.find(|(known, first)| *known == name && is_set(OsStr::new(first)));
        match first {
            Some((_, first)) => argument.env(*first),
            // Without a variable, clap does not take the empty value for a value.
            None if std::env::var_os(name).is_some() => argument.env(None),
            None => argument,
        }
    });
    command.mut_subcommands(with_variables)
}

/// Names the variable in an error about a value that no flag gave.
pub fn name_variable(error: &mut clap::Error, command: &Command, words: &[OsString]) {
    let (shown, value) = match (
        error.get(ContextKind::InvalidArg),
        error.get(ContextKind::InvalidValue),
    ) {
        (Some(ContextValue::String(shown)), Some(ContextValue::String(value))) => (shown, value),
        _ => return,
    };
    let is_typed = |argument: &clap::Arg| {
        let flag = argument.get_long().map(|long| format!("--{long}"));
        let is_flag = |word: &OsString, flag: &str| {
            let word = word.to_string_lossy();
            word == flag
                || word
                    .strip_prefix(flag)
                    .is_some_and(|rest| rest.starts_with('='))
        };
        flag.is_none_or(|flag| words.iter().any(|word| is_flag(word, &flag)))
    };
    fn arguments(command: &Command) -> Vec<&clap::Arg> {
        let below = command.get_subcommands().flat_map(arguments);
        command.get_arguments().chain(below).collect()
    }
    // Only a command that was built knows how its arguments are shown.
    let mut command = command.clone();
    command.build();
    let mut all = arguments(&command).into_iter();
    let found = all.find_map(|argument| {
        let name = argument.get_env()?;
        let set = std::env::var_os(name)?.to_string_lossy().into_owned();
        // A list is refused for one of its values.
        let is_it = argument.to_string() == *shown && set.contains(value.as_str());
        (is_it && !is_typed(argument)).then(|| name.to_string_lossy().into_owned())
    });
    if let Some(name) = found {
        error.insert(ContextKind::InvalidArg, ContextValue::String(name));
    }
}

/// As somebody else is to know it: without what only programs of ours type.
pub fn public() -> Command {
    let whole = dressed(Arguments::command());
    let visible = whole.get_subcommands().filter(|verb| !verb.is_hide_set());
    let mut public = Command::new("stepward").version(env!("CARGO_PKG_VERSION"));
    if let Some(about) = whole.get_about() {
        public = public.about(about.clone());
    }
    public.subcommands(visible.cloned())
}

fn dressed(command: Command) -> Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|verb| verb.get_name().to_string())
        .collect();
    let dressed = command.help_template(TEMPLATE);
    names.into_iter().fold(dressed, |command, name| {
        command.mut_subcommand(name, dressed_verb)
    })
}

/// `fn` instead of a closure: it calls itself.
fn dressed_verb(verb: Command) -> Command {
    dressed(verb)
}

fn overview(command: &Command) -> String {
    let about = |name: &str| {
        let verb = command.find_subcommand(name);
        let about = verb.and_then(|verb| verb.get_about());
        about.map(ToString::to_string).unwrap_or_default()
    };
    let mut text = format!(
        "{}\n\n\
         Examples:\n  \
         stepward run examples/hello.yaml     a workflow file, now, without a server\n  \
         stepward dev                         a server and a worker for this folder\n  \
         stepward why latest                  what the last job waits for, or what ended it\n\n\
         Usage: stepward [COMMAND]\n       stepward [--server URL] [--token-file FILE]\n",
        about_stepward(command)
    );
    for (title, names) in GROUPS {
        text.push_str(&format!("\n{title}\n"));
        for name in names {
            text.push_str(&format!("  {name:<12} {}\n", about(name)));
        }
    }
    text.push_str(
        "\n`stepward COMMAND --help` says more; `stepward` alone says how things are.\n\
         It makes no network connection that nobody configured.\n",
    );
    text
}

fn about_stepward(command: &Command) -> String {
    let about = command.get_about();
    about.map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_is_in_a_group_and_every_word_there_is_a_verb() {
        let command = command();
        let visible = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        let mut verbs: Vec<&str> = visible.map(Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| names.iter().copied())
            .collect();
        verbs.sort();
        grouped.sort();
        grouped.dedup();
        assert_eq!(verbs, grouped);
        command.debug_assert();
    }

    #[test]
    fn what_others_call_it_is_known_here() {
        for (word, command) in [
            ("rnu", Some("run")),
            ("rn", Some("run")),
            ("statsu", Some("status")),
            ("ps", Some("job ls")),
            ("histroy", Some("recovery history")),
            ("qwertz", None),
        ] {
            assert_eq!(meant(word).as_deref(), command, "{word}");
        }
        for (words, command) in ELSEWHERE {
            let mut here = &self::command();
            for word in command.split(' ') {
                here = here.find_subcommand(word).expect(command);
            }
            let taken = |word: &&&str| self::command().find_subcommand(word).is_some();
            assert_eq!(words.iter().find(taken), None);
        }
    }

    fn leaves(command: &Command, path: &str, out: &mut Vec<(String, String)>) {
        for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let path = format!("{path} {}", verb.get_name());
            if verb.has_subcommands() {
                leaves(verb, &path, out);
            }
            let examples = verb.get_before_help().map(ToString::to_string);
            out.push((path, examples.unwrap_or_default()));
        }
    }

    #[test]
    fn the_help_of_every_verb_begins_with_examples_of_it() {
        let mut found = Vec::new();
        leaves(&command(), "stepward", &mut found);
        let without: Vec<String> = found
            .into_iter()
            .filter(|(path, examples)| {
                !examples.starts_with("Examples:\n") || !examples.contains(&format!("  {path}"))
            })
            .map(|(path, _)| path)
            .collect();
        assert_eq!(without, Vec::<String>::new());
    }
}
