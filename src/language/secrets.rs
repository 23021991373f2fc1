//! Texts that look like a password or a token.

/// By the name of the value, or by the form of what is in it.
pub fn looks_secret(name: &str, value: &str) -> bool {
    if crate::domain::task::is_template(value) {
        return false;
    }
    holds_token(value) || (is_secret_name(name) && is_guessable(value))
}

/// By its name alone: what it holds had better not be shown, whatever it is.
pub fn names_secret(name: &str) -> bool {
    const WORDS: &[&str] = &[
        "password",
        "passwd",
        "passphrase",
        "pwd",
        "secret",
        "token",
        "key",
        "credential",
        "cookie",
    ];
    names_one_of(name, WORDS)
}

fn is_secret_name(name: &str) -> bool {
    const WORDS: &[&str] = &[
        "password",
        "passwd",
        "secret",
        "token",
        "apikey",
        "privatekey",
        "accesskey",
    ];
    names_one_of(name, WORDS)
}

fn names_one_of(name: &str, words: &[&str]) -> bool {
    let name = name.to_lowercase().replace(['-', '_'], "");
    // `TOKEN_FILE`, `SECRET_NAME` say where one is, not what it is.
    let elsewhere = ["file", "path", "name", "url", "dir", "env"];
    words.iter().any(|word| name.contains(word))
        && !elsewhere.iter().any(|word| name.ends_with(word))
}

/// What a person would not write as a word, a path or a variable.
fn is_guessable(value: &str) -> bool {
    let placeholder = value.starts_with(['$', '/', '<', '%', '~']) || value.contains("://");
    value.len() >= 8 && !placeholder && !value.contains(' ')
}

/// The marks of well-known tokens, anywhere in the text.
pub fn holds_token(text: &str) -> bool {
    const MARKS: &[(&str, usize)] = &[
        ("ghp_", 30),
        ("gho_", 30),
        ("github_pat_", 30),
        ("glpat-", 20),
        ("xoxb-", 20),
        ("xoxp-", 20),
        ("AKIA", 16),
        ("sk_live_", 16),
        ("AIza", 30),
    ];
    if text.contains("PRIVATE KEY-----") {
        return true;
    }
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-".contains(byte);
    MARKS.iter().any(|(mark, rest)| {
        text.match_indices(mark).any(|(at, _)| {
            let before = at.checked_sub(1).map(|before| text.as_bytes()[before]);
            let behind = text.as_bytes()[at + mark.len()..].iter();
            !before.is_some_and(|byte| byte.is_ascii_alphanumeric())
                && behind.take_while(|byte| is_part(byte)).count() >= *rest
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_told_from_words_about_them() {
        for (name, value, expected) in [
            ("DB_PASSWORD", "hunter2hunter2", true),
            ("DB_PASSWORD", "{{ secret.db }}", false),
            ("DB_PASSWORD", "$FROM_ELSEWHERE", false),
            ("TOKEN_FILE", "secrets/token.txt", false),
            ("MODE", "productive", false),
            ("NOTE", "ghp_abcdefghijklmnopqrstuvwxyz0123456789", true),
        ] {
            assert_eq!(looks_secret(name, value), expected, "{name}: {value}");
        }
    }

    #[test]
    fn a_name_is_enough_to_hide_what_it_stands_for() {
        for hidden in [
            "PASSWORD",
            "db-passwd",
            "SSH_KEY",
            "GoogleCredentials",
            "TOKEN",
        ] {
            assert!(names_secret(hidden), "{hidden}");
        }
        for shown in ["TOKEN_FILE", "MODE", "SECRET_NAME", "PATH"] {
            assert!(!names_secret(shown), "{shown}");
        }
    }
}
