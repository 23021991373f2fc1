//! `stepward job`.

use clap::Args;

use super::exit::Exit;

#[derive(Args)]
pub struct JobArgs {}

pub fn run(_: JobArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not there yet")
}
