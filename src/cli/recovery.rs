//! `stepward recovery`.

use clap::Args;

use super::exit::Exit;

#[derive(Args)]
pub struct RecoveryArgs {}

pub fn run(_: RecoveryArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not there yet")
}
