//! `stepward retry`.

use clap::Args;

use super::exit::Exit;

#[derive(Args)]
pub struct RetryArgs {}

pub fn run(_: RetryArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not there yet")
}
