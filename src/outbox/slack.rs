//! A chat that takes Slack's incoming webhooks: Slack, Mattermost, Rocket.Chat, Discord with `/slack`.

use super::http;
use super::message::Letter;
use super::secret::Resolved;
use crate::config::Text;
use crate::domain::outbox::Sent;

pub fn deliver(url: &Text, letter: &Letter) -> Sent {
    let mut resolved = Resolved::default();
    let url = match resolved.text(url) {
        Ok(url) => url,
        Err(fault) => return Sent::failed(fault),
    };
    let mut text = format!("*{}*\n{}", escaped(&letter.title), escaped(&letter.text));
    if let Some(link) = &letter.link {
        text = format!("{text}\n{}", escaped(link));
    }
    let body = serde_json::json!({ "text": text }).to_string();
    let headers = [("content-type", "application/json".to_string())];
    http::post(&url, &headers, body.as_bytes(), &resolved)
}

/// So that no name of a task calls everybody, or hides an address behind another text.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_called_by_a_name() {
        assert_eq!(
            escaped("<!channel> a&b &lt;"),
            "&lt;!channel&gt; a&amp;b &amp;lt;"
        );
    }
}
