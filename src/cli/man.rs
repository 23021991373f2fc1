//! `stepward man`.

use clap::Args;

use super::exit::Exit;

#[derive(Args)]
pub struct ManArgs {}

pub fn run(_: ManArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not there yet")
}
