//! `stepward init`.

use clap::Args;

use super::exit::Exit;

#[derive(Args)]
pub struct InitArgs {}

pub fn run(_: InitArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not there yet")
}
