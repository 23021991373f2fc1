//! What importers do with shell commands: quote them, and name tasks after them.

use crate::domain::task::is_template;

/// A text that means itself, also if it looks like a template.
pub fn literal(text: &str) -> String {
    match is_template(text) {
        false => text.to_string(),
        true => match text.strip_suffix('\n') {
            Some(body) => format!("{{% raw %}}{body}{{% endraw %}}\n"),
            None => format!("{{% raw %}}{text}{{% endraw %}}"),
        },
    }
}

pub fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Programs that run another one: the other one gives the name.
const CARRIERS: &[&str] = &[
    "sudo",
    "doas",
    "nice",
    "ionice",
    "chrt",
    "taskset",
    "nohup",
    "env",
    "exec",
    "eval",
    "time",
    "timeout",
    "flock",
    "setlock",
    "chronic",
    "cronic",
    "systemd-cat",
    "systemd-run",
    "setsid",
    "stdbuf",
    "xargs",
    "bash",
    "sh",
    "dash",
    "ash",
    "ksh",
    "zsh",
    "python",
    "python2",
    "python3",
    "perl",
    "php",
    "ruby",
    "node",
    "command",
    "builtin",
    "then",
    "do",
    "else",
    "!",
    "(",
    "{",
];

/// Words after which a part of a command only prepares or asks something. The parts behind it say what the command is for.
const PREPARATIONS: &[&str] = &[
    "test", "[", "[[", "cd", "pushd", "popd", "sleep", "export", "set", "unset", "umask", "ulimit",
    ".", "source", "true", "false", ":", "exit", "return", "trap", "wait", "for", "case", "esac",
    "fi", "done", "read", "local", "declare", "shopt", "renice", "mkdir",
];

/// Words in front of a condition.
const CONDITIONS: &[&str] = &["if", "elif", "while", "until"];

const ENDINGS: &[&str] = &[".sh", ".bash", ".py", ".pl", ".php", ".rb", ".js"];

const NAME_CHARS_MAX: usize = 40;

/// A short name for what a command does: the program, and the first of its words that says something. `job` if nothing does.
pub fn name_of(command: &str) -> String {
    let parts: Vec<&str> = command
        .split(['\n', ';'])
        .flat_map(|part| part.split("&&"))
        .flat_map(|part| part.split("||"))
        .flat_map(|part| part.split(" & "))
        .collect();
    let named = parts
        .iter()
        .find_map(|part| name_of_part(part, PREPARATIONS));
    // A command that only prepares is named after what it prepares.
    let named = named.or_else(|| parts.iter().find_map(|part| name_of_part(part, &[])));
    named.unwrap_or_else(|| "job".to_string())
}

fn unquoted(word: &str) -> &str {
    word.trim_matches(['"', '\'', '(', ')', '{', '}', '`', '$'])
}

fn name_of_part(part: &str, preparations: &[&str]) -> Option<String> {
    let words = part
        .split_whitespace()
        .take_while(|word| !word.contains(['>', '<', '|']));
    let mut words = words.peekable();
    let mut carried_by: Option<&str> = None;
    while let Some(&word) = words.peek() {
        let is_bracket = ["[", "[[", "(", "{", "!", "."].contains(&word);
        let bare = if is_bracket { word } else { unquoted(word) };
        let base = base_name(bare);
        if CONDITIONS.contains(&base) {
            words.next();
            // A condition that runs a program is about that program, unless it only asks whether something is there.
            let asks =
                |word: &&str| ["command", "which", "type", "pgrep", "grep", "test"].contains(word);
            let mut next = words.clone().filter(|word| *word != "!");
            if next.next().is_some_and(|word| asks(&word)) {
                return None;
            }
            continue;
        }
        if preparations.contains(&base) {
            return None;
        }
        if ["su", "runuser"].contains(&base) {
            // `su - www -c 'command'`: what is before -c says as whom it runs.
            let mut behind = words.clone().skip_while(|word| *word != "-c");
            if behind.next().is_some() {
                words.by_ref().find(|word| *word == "-c");
                carried_by = Some("su");
                continue;
            }
        }
        let assigns = bare.contains('=') && !bare.starts_with(['/', '-']);
        let is_number = base.starts_with(|c: char| c.is_ascii_digit()) || base.starts_with('+');
        let is_lock = matches!(carried_by, Some("flock" | "setlock")) && bare.contains("lock");
        let is_flag = bare.starts_with('-');
        let is_nothing = base.is_empty();
        let is_carrier = CARRIERS.contains(&base);
        if !(is_carrier || assigns || is_number || is_lock || is_flag || is_nothing) {
            break;
        }
        words.next();
        // `sudo -u www`: the flag has a word of its own.
        if is_flag
            && ["-u", "-g", "-c"].contains(&bare)
            && matches!(carried_by, Some("sudo" | "doas" | "ionice"))
        {
            words.next();
        }
        carried_by = CARRIERS
            .iter()
            .copied()
            .find(|carrier| *carrier == base)
            .or(carried_by);
    }
    let mut words = words.filter(|word| !word.starts_with('-'));
    let program = match words.next() {
        Some(word) => base_name(unquoted(word)),
        None => {
            return carried_by.map(slug).filter(|name| !name.is_empty());
        }
    };
    let bare = ENDINGS
        .iter()
        .find_map(|ending| program.strip_suffix(ending))
        .unwrap_or(program);
    let mut name = slug(bare);
    let is_variable = |word: &str| {
        let name = word.trim_matches(['"', '\'']).strip_prefix('$');
        let is_name = |c: char| c.is_alphanumeric() || "_{}".contains(c);
        name.is_some_and(|name| name.chars().all(is_name))
    };
    let says = |word: &&str| {
        let is_evaluated = word.starts_with(['$', '`']) || is_variable(word);
        !is_evaluated && word.chars().any(char::is_alphabetic)
    };
    if let Some(word) = words.next().filter(says) {
        let word = word.trim_matches(['"', '\'']);
        let word = word
            .split("://")
            .last()
            .unwrap_or(word)
            .trim_end_matches('/');
        let word = if word.starts_with('/') {
            base_name(word)
        } else {
            word.split('/').next().unwrap_or(word)
        };
        let longer = slug(&format!("{name}-{word}"));
        if longer.len() <= NAME_CHARS_MAX {
            name = longer;
        }
    }
    Some(name).filter(|name| !name.is_empty())
}

/// The text as a name: small letters, digits, `-` and `_`.
pub fn slug(text: &str) -> String {
    let mut slug = String::new();
    for c in text.chars().take(NAME_CHARS_MAX) {
        match c {
            c if c.is_ascii_alphanumeric() => slug.push(c.to_ascii_lowercase()),
            '_' => slug.push('_'),
            _ if slug.ends_with('-') || slug.is_empty() => {}
            _ => slug.push('-'),
        }
    }
    slug.trim_end_matches('-').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_what_a_command_is_for() {
        for (command, name) in [
            ("/opt/scripts/backup.sh --full", "backup"),
            (
                "if [ -x /usr/sbin/anacron ]; then /usr/sbin/anacron -s; fi",
                "anacron",
            ),
            (
                "if command -v certbot >/dev/null; then certbot renew; fi",
                "certbot-renew",
            ),
            (
                "if ! pgrep -x worker; then systemctl start worker; fi",
                "systemctl-start",
            ),
            ("for f in /data/*.csv; do gzip \"$f\"; done", "gzip"),
            (
                "while read -r host; do ping -c 1 $host; done < hosts",
                "ping",
            ),
            (
                "test -x /usr/sbin/anacron || ( cd / && run-parts --report /etc/cron.daily )",
                "run-parts-cron-daily",
            ),
            ("[ -d /srv ] && cd /srv && make report", "make-report"),
            (
                "cd /srv/app && php artisan schedule:run",
                "artisan-schedule-run",
            ),
            ("sh -c 'cd /srv && ./publish.sh now'", "publish-now"),
            ("bash -lc \"source ~/.profile && rake clean\"", "rake-clean"),
            ("PATH=/usr/bin:/bin sudo -u www nice -n 10 ./noon", "noon"),
            ("su - postgres -c 'pg_dumpall > /tmp/all'", "pg_dumpall"),
            ("sleep 30; . /etc/profile; umask 022; nightly", "nightly"),
            ("sleep 60", "sleep"),
            ("(cd /x; tidy)", "tidy"),
            ("{ date; df -h; } > /tmp/report", "date"),
            ("", "job"),
            ("!!!", "job"),
        ] {
            assert_eq!(name_of(command), name, "{command}");
        }
    }
}
