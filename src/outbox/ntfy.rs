//! A phone, through ntfy: the sentence as the body, the rest in headers.

use super::header::{one_line, words};
use super::http;
use super::message::Letter;
use super::secret::Resolved;
use crate::config::Text;
use crate::domain::outbox::Sent;
use crate::domain::secret::SecretRef;

pub fn deliver(
    url: &Text,
    token: Option<&SecretRef>,
    priority: Option<&str>,
    letter: &Letter,
) -> Sent {
    let mut resolved = Resolved::default();
    let mut reached = || {
        let url = resolved.text(url)?;
        let token = token.map(|token| resolved.shown(token)).transpose()?;
        Ok::<_, String>((url, token))
    };
    let (url, token) = match reached() {
        Ok(reached) => reached,
        Err(fault) => return Sent::failed(fault),
    };
    let tag = match letter.is_bad {
        true => "warning",
        false => "information_source",
    };
    let mut headers = vec![
        ("content-type", "text/plain; charset=utf-8".to_string()),
        ("title", words(&letter.title).join(" ")),
        ("tags", tag.to_string()),
    ];
    if let Some(priority) = priority {
        headers.push(("priority", priority.to_string()));
    }
    if let Some(link) = &letter.link {
        headers.push(("click", one_line(link)));
    }
    if let Some(token) = token {
        headers.push(("authorization", format!("Bearer {token}")));
    }
    http::post(&url, &headers, letter.text.as_bytes(), &resolved)
}
