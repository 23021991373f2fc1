//! `stepward wait`.

use clap::Args;

use super::exit::Exit;

#[derive(Args)]
pub struct WaitArgs {}

pub fn run(_: WaitArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not there yet")
}
