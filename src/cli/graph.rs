//! `stepward graph`.

use clap::Args;

use super::exit::Exit;

#[derive(Args)]
pub struct GraphArgs {}

pub fn run(_: GraphArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not there yet")
}
