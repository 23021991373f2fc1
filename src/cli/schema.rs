//! `stepward schema`: the shape of our files, for editors.

use clap::Subcommand;

use super::exit::Exit;
use super::say::answer_json;
use crate::config;
use crate::language;

#[derive(Subcommand)]
#[command(before_help = "Examples:
  stepward schema workflow > workflow.schema.json
  stepward schema server-config > server-config.schema.json")]
pub enum SchemaVerb {
    /// Prints the JSON schema (draft-07) of workflow files.
    ///
    /// Keep it in a file, and name that file in the first line of a workflow:
    /// # yaml-language-server: $schema=workflow.schema.json
    #[command(before_help = "Examples:\n  stepward schema workflow > workflow.schema.json")]
    Workflow,
    /// Prints the JSON schema (draft-07) of server-config.yaml.
    #[command(
        before_help = "Examples:\n  stepward schema server-config > server-config.schema.json"
    )]
    ServerConfig,
    /// Prints the JSON schema (draft-07) of worker-config.yaml.
    #[command(
        before_help = "Examples:\n  stepward schema worker-config > worker-config.schema.json"
    )]
    WorkerConfig,
}

pub fn run(verb: SchemaVerb) -> anyhow::Result<Exit> {
    let schema = match verb {
        SchemaVerb::Workflow => language::schema::workflow(),
        SchemaVerb::ServerConfig => config::schema::server(),
        SchemaVerb::WorkerConfig => config::schema::worker(),
    };
    answer_json(&schema);
    Ok(Exit::Success)
}
