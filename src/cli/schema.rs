//! `stepward schema`: the shape of our files, for editors.

use clap::Subcommand;

use super::exit::Exit;
use super::say::answer_json;
use crate::config;
use crate::language;

#[derive(Subcommand)]
pub enum SchemaVerb {
    /// Prints the JSON schema (draft-07) of workflow files.
    ///
    /// Keep it in a file, and name that file in the first line of a workflow:
    /// # yaml-language-server: $schema=workflow.schema.json
    Workflow,
    /// Prints the JSON schema (draft-07) of server-config.yaml.
    ServerConfig,
    /// Prints the JSON schema (draft-07) of worker-config.yaml.
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
