//! `stepward cancel`.

use clap::Args;

use super::exit::Exit;

#[derive(Args)]
pub struct CancelArgs {}

pub fn run(_: CancelArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not there yet")
}
