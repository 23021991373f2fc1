//! What a person types. One file per verb; no logic of its own.
//!
//! Every verb answers on stdout and speaks of itself on stderr (`say`), ends as `exit` says, finds its server by `reach`, and
//! looks as `look` says. Verbs without a server run one in this process (`local`).

mod announce;
mod approve;
mod audit;
mod backup;
mod cancel;
mod columns;
mod completions;
mod config_show;
mod db_check;
mod db_compact;
mod demo;
mod dev;
mod doctor;
mod embedded;
mod events;
mod exit;
mod explain;
mod files;
mod first_process;
mod fleet;
mod follow;
mod found;
mod graph;
mod help;
mod import;
mod init;
mod inputs;
mod job;
mod local;
mod log_follow;
mod log_line;
mod logs;
pub mod look;
mod man;
mod own_log;
mod page;
mod port_owner;
mod process;
mod progress;
mod prune;
mod queue;
mod reach;
mod recovery;
mod reject;
mod render;
mod restore;
mod retry;
mod run;
mod run_pod;
mod say;
mod schedule;
mod schema;
mod server;
mod settings;
mod sheet;
mod start_here;
mod status;
mod table;
mod task;
mod token;
mod validate;
mod wait;
mod watch;
mod why;
pub mod why_text;
mod words;
mod worker;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{FromArgMatches, Parser, Subcommand};

use exit::Exit;
use reach::Reach;

/// Runs YAML workflows on one machine or a few. One binary, one SQLite file.
#[derive(Parser)]
#[command(name = "stepward", version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// For `stepward` alone.
    #[command(flatten)]
    reach: Reach,
}

#[derive(Subcommand)]
enum Verb {
    /// Shows in twenty seconds what happens when things go wrong.
    Demo(demo::DemoArgs),
    /// Writes a small project: workflows, settings, a schema for the editor.
    Init(init::InitArgs),
    /// Runs a server with a worker for this folder, until Ctrl-C.
    Dev(dev::DevArgs),

    /// Runs a task, or a workflow file, and shows how it goes.
    Run(run::RunArgs),
    /// Shows how a job goes.
    Watch(watch::WatchArgs),
    /// Waits for jobs to end, and says nothing.
    Wait(wait::WaitArgs),
    /// Prints what steps printed.
    Logs(logs::LogsArgs),
    /// Explains why something waits, or why it ended as it did.
    Why(why::WhyArgs),
    /// Cancels jobs.
    Cancel(cancel::CancelArgs),
    /// Does again what did not complete.
    Retry(retry::RetryArgs),
    /// Lets a step go on that waits for a decision.
    Approve(approve::ApproveArgs),
    /// Fails a step that waits for a decision.
    Reject(reject::RejectArgs),

    /// Says what is wrong, what runs, what waits, what comes next.
    Status(status::StatusArgs),
    /// Lists what waits, for what, and until when.
    Queue(queue::QueueArgs),
    /// Says what recovery does, did and will do.
    Recovery(recovery::RecoveryArgs),
    /// Lists what happened, or follows it.
    Events(events::EventsArgs),
    /// Jobs: list, show, keep, release.
    Job(job::JobArgs),
    /// Tasks: list, show.
    Task(task::TaskArgs),
    /// Runs a worker; its commands look after those of a server.
    ///
    /// The first SIGTERM lets it finish what it runs; the second ends that.
    Worker(worker::WorkerArgs),
    /// Schedules: list, show, pause, resume, fire.
    Schedule(schedule::ScheduleArgs),
    /// Tokens: make one, try one.
    Token(token::TokenArgs),
    /// The audit log: list, verify, export.
    Audit(audit::AuditArgs),

    /// Says what is wrong with workflow files.
    ///
    /// Exits with 0 if nothing is, with 3 if something is. Opens no database and no connection.
    Validate(validate::ValidateArgs),
    /// Explains a rule such as E012, a reason such as worker_lost, a word such as recovery.
    Explain(explain::ExplainArgs),
    /// Prints the shape of our files, for editors.
    #[command(subcommand)]
    Schema(schema::SchemaVerb),
    /// Shows a task as its steps will see it.
    Render(render::RenderArgs),
    /// Draws the steps of a task.
    Graph(graph::GraphArgs),
    /// Writes workflows of others as ours, and says what became of each line.
    #[command(subcommand)]
    Import(import::ImportVerb),

    /// Runs the server until it is told to stop.
    Server(server::ServerArgs),
    /// Looks for what is wrong with an installation, and says how to mend it.
    Doctor(doctor::DoctorArgs),
    /// Makes one file of everything, while the server runs.
    Backup(backup::BackupArgs),
    /// Makes a data folder of a backup, after a look at all of it.
    Restore(restore::RestoreArgs),
    /// Removes jobs before the time that the settings say.
    Prune(prune::PruneArgs),
    /// Looks after the database.
    #[command(subcommand)]
    Db(DbVerb),
    /// Settings, and where they come from.
    #[command(subcommand)]
    Config(ConfigVerb),
    /// Prints what a shell needs to complete our commands.
    Completions(completions::CompletionsArgs),
    /// Prints or writes the manual pages.
    Man(man::ManArgs),
}

#[derive(Subcommand)]
#[command(before_help = "Examples:
  stepward db check
  stepward db check /var/lib/stepward --json")]
enum DbVerb {
    /// Checks every rule that the database must keep and lists what is wrong.
    ///
    /// Exits with 0 if nothing is, with 1 otherwise. The server must be stopped.
    Check(db_check::DbCheckArgs),
    /// Rewrites the database without what is free in it; from then on the file shrinks by itself.
    ///
    /// The server must be stopped. It needs room for a copy.
    Compact(db_compact::DbCompactArgs),
}

#[derive(Subcommand)]
#[command(before_help = "Examples:
  stepward config show --origin
  stepward config show --worker --changed")]
enum ConfigVerb {
    /// Prints every setting as it would be in force for a server, or a worker, that is started here.
    ///
    /// Exits with 3 if it would be refused.
    Show(config_show::ConfigShowArgs),
}

pub fn run() -> ExitCode {
    if let Some(code) = first_process::run() {
        return code;
    }
    if let Some(code) = started_by_ours() {
        return code;
    }
    // Before anything is read: every command may have a token in its environment and secrets in its memory.
    process::hide_from_steps();
    let matches = help::command().try_get_matches();
    let matches = matches.unwrap_or_else(|error| help_and_exit(error));
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let outcome = match arguments.verb {
        Some(verb) => perform(verb),
        None => start_here::run(arguments.reach),
    };
    let exit = outcome.unwrap_or_else(|error| {
        // What others wrote may be in it, and how they called their files.
        let told = say::in_words(&error);
        let lines: Vec<String> = told.lines().map(words::printable).collect();
        own_log::say_fault(lines.join("\n"));
        Exit::of(&error)
    });
    in_the_end(exit).into()
}

/// What was asked for and is not there is no success, whatever became of the rest.
fn in_the_end(exit: Exit) -> Exit {
    match say::unwritten() {
        None => exit,
        Some(fault) => {
            say::say(fault);
            match exit {
                Exit::Success => Exit::Error,
                exit => exit,
            }
        }
    }
}

/// Help, our version, or what is wrong with what was typed.
fn help_and_exit(mut error: clap::Error) -> ! {
    suggest(&mut error);
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    help::name_variable(&mut error, &help::command(), &words);
    let printed = error.print();
    if !error.use_stderr() {
        say::is_written(printed);
        let exit = in_the_end(Exit::Success);
        std::process::exit(exit.code().into());
    }
    std::process::exit(error.exit_code());
}

/// For a first word that is no command.
fn suggest(error: &mut clap::Error) {
    let typed = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => word.clone(),
        _ => return,
    };
    let is_first = std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == *typed);
    if let Some(meant) = help::meant(&typed).filter(|_| is_first) {
        let meant = ContextValue::Strings(vec![meant]);
        error.insert(ContextKind::SuggestedSubcommand, meant);
    }
}

/// What programs of ours start and nobody types: the parent of one attempt, and whoever follows one pod to its end. They are no
/// verbs, or else `serve` would be taken for `supervise`.
fn started_by_ours() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    match (words.next()?.to_str()?, words.next(), words.next()) {
        ("supervise", None, None) => Some(crate::worker::supervisor::supervise()),
        ("run-pod", Some(plan), None) => Some(run_pod::run(Path::new(&plan))),
        _ => None,
    }
}

fn perform(verb: Verb) -> anyhow::Result<Exit> {
    match verb {
        Verb::Demo(args) => demo::run(args),
        Verb::Init(args) => init::run(args),
        Verb::Dev(args) => dev::run(args),
        Verb::Run(args) => run::run(args),
        Verb::Watch(args) => watch::run(args),
        Verb::Wait(args) => wait::run(args),
        Verb::Logs(args) => logs::run(args),
        Verb::Why(args) => why::run(args),
        Verb::Cancel(args) => cancel::run(args),
        Verb::Retry(args) => retry::run(args),
        Verb::Approve(args) => approve::run(args),
        Verb::Reject(args) => reject::run(args),
        Verb::Status(args) => status::run(args),
        Verb::Queue(args) => queue::run(args),
        Verb::Recovery(args) => recovery::run(args),
        Verb::Events(args) => events::run(args),
        Verb::Job(args) => job::run(args),
        Verb::Task(args) => task::run(args),
        Verb::Worker(args) => worker::run(args),
        Verb::Schedule(args) => schedule::run(args),
        Verb::Token(args) => token::run(args),
        Verb::Audit(args) => audit::run(args),
        Verb::Validate(args) => validate::run(args),
        Verb::Explain(args) => explain::run(args),
        Verb::Schema(verb) => schema::run(verb),
        Verb::Render(args) => render::run(args),
        Verb::Graph(args) => graph::run(args),
        Verb::Import(verb) => import::run(verb),
        Verb::Server(args) => server::run(args),
        Verb::Doctor(args) => doctor::run(args),
        Verb::Backup(args) => backup::run(args),
        Verb::Restore(args) => restore::run(args),
        Verb::Prune(args) => prune::run(args),
        Verb::Db(DbVerb::Check(args)) => db_check::run(args),
        Verb::Db(DbVerb::Compact(args)) => db_compact::run(args),
        Verb::Config(ConfigVerb::Show(args)) => config_show::run(args),
        Verb::Completions(args) => completions::run(args),
        Verb::Man(args) => man::run(args),
    }
}
