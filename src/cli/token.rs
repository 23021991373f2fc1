//! `stepward token`.

use clap::Args;

use super::exit::Exit;

#[derive(Args)]
pub struct TokenArgs {}

pub fn run(_: TokenArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not there yet")
}
