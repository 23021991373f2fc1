//! Mail, through the machine's own sendmail. No text of a job can become a header or a receiver.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::header::words;
use super::message::Letter;
use super::program;
use crate::domain::outbox::Sent;
use crate::words::calendar_time;

pub fn deliver(
    to: &[String],
    from: Option<&str>,
    sendmail: &Path,
    letter: &Letter,
    stopping: &AtomicBool,
) -> Sent {
    // Receivers stand in the message; a line with a dot alone does not end it.
    let command = [&sendmail.display().to_string(), "-t", "-i"].map(str::to_string);
    program::run(&command, &[], &mail(to, from, letter), stopping)
}

/// Lines end as RFC 5322 has it.
fn mail(to: &[String], from: Option<&str>, letter: &Letter) -> Vec<u8> {
    let mut head = String::new();
    let mut line = |name: &str, value: &str| head.push_str(&format!("{name}: {value}\r\n"));
    if let Some(from) = from {
        line("From", from);
    }
    line("To", &to.join(",\r\n "));
    line("Subject", &words(&letter.title).join("\r\n "));
    let date = calendar_time(letter.sent_at);
    let date = jiff::fmt::rfc2822::to_string(&date.to_zoned(jiff::tz::TimeZone::UTC));
    if let Ok(date) = date {
        line("Date", &date);
    }
    line("Message-ID", &format!("<{}@stepward>", letter.id));
    line("Auto-Submitted", "auto-generated");
    line("MIME-Version", "1.0");
    line("Content-Type", "text/plain; charset=utf-8");
    line("Content-Transfer-Encoding", "base64");
    let mut text = format!("{}\r\n", letter.text);
    if let Some(link) = &letter.link {
        text.push_str(&format!("\r\n{link}\r\n"));
    }
    let mut mail = format!("{head}\r\n").into_bytes();
    for line in STANDARD.encode(text).as_bytes().chunks(76) {
        mail.extend_from_slice(line);
        mail.extend_from_slice(b"\r\n");
    }
    mail
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Timestamp;
    use crate::outbox::Origin;

    #[test]
    fn no_text_becomes_a_header_or_ends_the_mail() {
        let origin = Origin::new("key", None);
        let letter = Letter {
            title: "x\r\nBcc: eve@example.org\r\n\r\nbody".to_string(),
            text: "first\r\n.\r\nlast\r\n".repeat(1_000),
            ..Letter::test("mail", &origin, Timestamp(1_700_000_000_000))
        };
        let to = ["ops@example.org".to_string()];
        let mail = String::from_utf8(mail(&to, None, &letter)).unwrap();
        let (head, body) = mail.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains("\r\nSubject: x  Bcc: eve@example.org    body\r\n"),
            "{head}"
        );
        assert!(
            head.contains("\r\nDate: Tue, 14 Nov 2023 22:13:20 "),
            "{head}"
        );
        assert!(!head.contains("\nBcc"), "{head}");
        assert!(mail.lines().all(|line| line.len() <= 78));
        let text = STANDARD.decode(body.replace("\r\n", "")).unwrap();
        assert!(text.starts_with(letter.text.as_bytes()));
    }
}
