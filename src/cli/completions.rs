//! `stepward completions`.

use clap::Args;

use super::exit::Exit;

#[derive(Args)]
pub struct CompletionsArgs {}

pub fn run(_: CompletionsArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not there yet")
}
