//! `stepward schema`: the shape of our files, for editors.

use clap::Subcommand;

use super::exit::Exit;
use super::say::answer;
use crate::language::schema;

#[derive(Subcommand)]
pub enum SchemaVerb {
    /// Prints the JSON schema (draft-07) of workflow files.
    ///
    /// Keep it in a file, and name that file in the first line of a workflow:
    /// # yaml-language-server: $schema=workflow.schema.json
    Workflow,
}

pub fn run(verb: SchemaVerb) -> anyhow::Result<Exit> {
    match verb {
        SchemaVerb::Workflow => {
            answer(serde_json::to_string_pretty(&schema::workflow())?);
            Ok(Exit::Success)
        }
    }
}
