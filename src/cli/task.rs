//! `stepward task`.

use clap::Args;

use super::exit::Exit;

#[derive(Args)]
pub struct TaskArgs {}

pub fn run(_: TaskArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not there yet")
}
