//! `stepward reject`.

use clap::Args;

use super::exit::Exit;

#[derive(Args)]
pub struct RejectArgs {}

pub fn run(_: RejectArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not there yet")
}
