//! `stepward approve`.

use clap::Args;

use super::exit::Exit;

#[derive(Args)]
pub struct ApproveArgs {}

pub fn run(_: ApproveArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not there yet")
}
