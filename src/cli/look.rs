//! How things look on this terminal, or where there is none: colour, signs, width. A word always says what a colour or a sign does.

use std::io::IsTerminal;

use clap::{Args, ValueEnum};
use rustix::termios::tcgetwinsize;

const HEADING: &str = "How it looks";

#[derive(Args, Clone, Copy, Default)]
pub struct LookArgs {
    /// Colours; NO_COLOR and CLICOLOR_FORCE are heeded.
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Colour::Auto, help_heading = HEADING)]
    pub color: Colour,
    /// Plain ASCII signs, as where the locale is not UTF-8.
    #[arg(long, help_heading = HEADING)]
    pub ascii: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Colour {
    #[default]
    Auto,
    Always,
    Never,
}

/// For verbs that answer with data.
#[derive(Args, Clone, Copy, Default)]
#[command(next_help_heading = "How it looks")]
pub struct Show {
    /// For programs: in a shape that stays, described in the README.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub look: LookArgs,
}

/// Of one stream, stdout or stderr.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    pub colour: bool,
    pub unicode: bool,
    pub is_terminal: bool,
    /// In columns. `None`: as long as it takes.
    pub width: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ink {
    Good,
    Bad,
    Busy,
    Faint,
    Bold,
}

impl Show {
    /// Of what goes to stdout.
    pub fn look(&self) -> Look {
        self.look.stdout()
    }
}

impl LookArgs {
    pub fn stdout(&self) -> Look {
        let out = std::io::stdout();
        let columns = tcgetwinsize(&out).map(|size| size.ws_col);
        self.of(out.is_terminal(), columns.ok())
    }

    pub fn stderr(&self) -> Look {
        let out = std::io::stderr();
        let columns = tcgetwinsize(&out).map(|size| size.ws_col);
        self.of(out.is_terminal(), columns.ok())
    }

    fn of(&self, is_terminal: bool, columns: Option<u16>) -> Look {
        let columns = columns.map(usize::from).filter(|columns| *columns > 0);
        let said = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let is_dumb = said("TERM").is_some_and(|term| term == "dumb");
        let colour = match self.color {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto if said("NO_COLOR").is_some() => false,
            Colour::Auto if said("CLICOLOR_FORCE").is_some_and(|value| value != "0") => true,
            Colour::Auto => is_terminal && !is_dumb,
        };
        Look {
            colour,
            unicode: !self.ascii && has_unicode(said),
            is_terminal,
            width: columns.filter(|_| is_terminal),
        }
    }
}

/// The first of them that is set counts. None is set where nobody logged in: those are of our time.
fn has_unicode(said: impl Fn(&str) -> Option<String>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(said);
    locale.is_none_or(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

impl Look {
    pub fn paint(&self, ink: Ink, text: &str) -> String {
        let code = match ink {
            Ink::Good => "32",
            Ink::Bad => "31",
            Ink::Busy => "36",
            Ink::Faint => "2",
            Ink::Bold => "1",
        };
        match self.colour && !text.is_empty() {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_string(),
        }
    }

    /// Of a job, step or worker.
    pub fn sign(&self, status: &str) -> &'static str {
        let (unicode, ascii) = match status {
            "completed" | "active" => ("✔", "+"),
            "failed" | "inactive" => ("✘", "x"),
            "running" => ("▶", ">"),
            "assigned" => ("▷", ">"),
            "ready" => ("●", "*"),
            "suspended" => ("‖", "="),
            "skipped" => ("↷", "-"),
            "cancelled" => ("⊘", "/"),
            _ => ("○", "."),
        };
        if self.unicode { unicode } else { ascii }
    }

    pub fn ink(status: &str) -> Ink {
        match status {
            "completed" | "active" => Ink::Good,
            "failed" | "inactive" => Ink::Bad,
            "running" | "assigned" | "ready" | "suspended" => Ink::Busy,
            _ => Ink::Faint,
        }
    }

    /// Sign and word.
    pub fn status(&self, status: &str) -> String {
        self.paint(
            Look::ink(status),
            &format!("{} {status}", self.sign(status)),
        )
    }

    /// A terminal with room for a few columns only.
    pub fn is_narrow(&self) -> bool {
        const NARROW: usize = 60;
        self.width.is_some_and(|width| width < NARROW)
    }

    /// Between parts of a line.
    pub fn dot(&self) -> &'static str {
        if self.unicode { "·" } else { "-" }
    }

    /// Where something was cut out.
    pub fn ellipsis(&self) -> &'static str {
        if self.unicode { "…" } else { "..." }
    }

    /// What we wrote ourselves, in signs that there are here. One for one: what stands below something stays there.
    pub fn own(&self, text: String) -> String {
        match self.unicode {
            true => text,
            false => text
                .replace('→', ">")
                .replace('…', ".")
                .replace(['·', '–'], "-")
                .replace('ø', "o"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locale_that_counts_says_whether_there_is_unicode() {
        let of = |set: &[(&str, &str)]| {
            has_unicode(|name| {
                let found = set.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| value.to_string())
            })
        };
        assert!(of(&[]));
        assert!(of(&[("LANG", "en_US.UTF-8")]));
        assert!(of(&[("LANG", "C"), ("LC_CTYPE", "C.utf8")]));
        assert!(!of(&[("LC_ALL", "C"), ("LANG", "en_US.UTF-8")]));
        assert!(!of(&[("LANG", "de_DE.ISO-8859-1")]));
    }
}
