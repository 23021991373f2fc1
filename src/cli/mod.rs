//! What a person types. One file per verb; no logic of its own.

mod db_check;
mod embedded;
mod explain;
mod import;
mod process;
mod run_pod;
mod say;
mod schema;
mod server;
mod validate;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A worker orchestrator in one binary.
#[derive(Parser)]
#[command(name = "stepward", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Runs the server until it is told to stop.
    Server(server::ServerArgs),
    /// Runs a worker until it is told to stop.
    ///
    /// The first SIGTERM lets it finish what it runs; the second ends that.
    Worker(worker::WorkerArgs),
    /// The parent of one attempt, started by a worker.
    #[command(hide = true)]
    Supervise,
    /// Follows one pod to its end, as a file says.
    #[command(hide = true)]
    RunPod { plan: PathBuf },
    /// Says what is wrong with workflow files.
    ///
    /// Exits with 0 if nothing is, with 3 if something is. Opens no database and no connection.
    Validate(validate::ValidateArgs),
    /// Explains a rule of the workflow language, such as E012.
    Explain(explain::ExplainArgs),
    /// Looks after the database.
    #[command(subcommand)]
    Db(DbVerb),
    /// Writes workflows of others as ours, and says what became of each line.
    #[command(subcommand)]
    Import(import::ImportVerb),
    /// Prints the shape of our files, for editors.
    #[command(subcommand)]
    Schema(schema::SchemaVerb),
}

#[derive(Subcommand)]
enum DbVerb {
    /// Checks every rule that the database must keep and lists what is wrong.
    ///
    /// Exits with 0 if nothing is, with 1 otherwise. The server must be stopped.
    Check {
        /// The data folder; taken from the settings file if left out.
        #[arg(env = "STEPWARD_DATA_DIR")]
        folder: Option<PathBuf>,
        /// The settings file of the server.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.verb {
        Verb::Server(args) => server::run(args),
        Verb::Worker(args) => worker::run(args),
        Verb::Supervise => Ok(crate::worker::supervisor::supervise()),
        Verb::RunPod { plan } => run_pod::run(&plan),
        Verb::Validate(args) => validate::run(args),
        Verb::Explain(args) => explain::run(args),
        Verb::Db(DbVerb::Check { folder, config }) => db_check::run(folder, config),
        Verb::Import(verb) => import::run(verb),
        Verb::Schema(verb) => schema::run(verb),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            say::say(error);
            ExitCode::from(1)
        }
    }
}
