//! `stepward run`.

use clap::Args;

use super::exit::Exit;

#[derive(Args)]
pub struct RunArgs {}

pub fn run(_: RunArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not there yet")
}
