//! `stepward schedule`.

use clap::Args;

use super::exit::Exit;

#[derive(Args)]
pub struct ScheduleArgs {}

pub fn run(_: ScheduleArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not there yet")
}
