//! `stepward completions SHELL`: what a shell needs to complete our commands.

use clap::Args;
use clap_complete::Shell;

use super::exit::Exit;
use super::help;
use super::say::print;

#[derive(Args)]
#[command(before_help = "Examples:
  stepward completions bash > ~/.local/share/bash-completion/completions/stepward
  stepward completions zsh  > ~/.zfunc/_stepward
  stepward completions fish > ~/.config/fish/completions/stepward.fish")]
pub struct CompletionsArgs {
    #[arg(value_enum)]
    shell: Shell,
}

pub fn run(args: CompletionsArgs) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut help::public(), "stepward", &mut script);
    print(&String::from_utf8_lossy(&script));
    Ok(Exit::Success)
}
