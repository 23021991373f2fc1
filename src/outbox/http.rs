//! One POST, with an end to everything: connecting, answering, the length of an answer. Redirects are not followed.

use std::io::Read;
use std::time::Duration;

use ureq::Agent;
use ureq::http::HeaderMap;

use super::header::one_line;
use super::secret::Resolved;
use crate::client::is_here;
use crate::clock::wall_time;
use crate::domain::Timestamp;
use crate::domain::outbox::Sent;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(15);
const ANSWER_BYTES_MAX: u64 = 64 << 10;

pub fn post(url: &str, headers: &[(&str, String)], body: &[u8], resolved: &Resolved) -> Sent {
    let mut config = Agent::config_builder()
        .http_status_as_error(false)
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_global(Some(TIMEOUT))
        .max_redirects(0)
        .max_idle_connections(0)
        .user_agent(concat!("stepward/", env!("CARGO_PKG_VERSION")));
    if is_here(url) {
        // What the environment says of proxies is not meant for this machine itself.
        config = config.proxy(None);
    }
    let agent = config.build().new_agent();
    let mut request = agent.post(url);
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let mut response = match request.send(body) {
        Ok(response) => response,
        Err(error) => return Sent::failed(resolved.scrub(&in_words(&error))),
    };
    let status = response.status();
    if status.is_success() {
        return Sent::delivered(i32::from(status.as_u16()), "delivered");
    }
    let retry_after_ms = retry_after_ms(response.headers(), wall_time());
    let said = match resolved.may_be_quoted() {
        true => {
            let mut answer = Vec::new();
            let reader = response.body_mut().as_reader();
            // What broke off may still say something.
            let _ = reader.take(ANSWER_BYTES_MAX).read_to_end(&mut answer);
            // Before it is cut: half a secret would not be known any more.
            one_line(&resolved.scrub(&String::from_utf8_lossy(&answer)))
        }
        false => String::new(),
    };
    let mut message = match status.is_redirection() {
        true => format!("it answered {status}, and redirects are not followed"),
        false => format!("it answered {status}"),
    };
    if !said.is_empty() {
        message = format!("{message}: {said}");
    }
    Sent {
        status: Some(i32::from(status.as_u16())),
        retry_after_ms,
        is_final: status.as_u16() == 410,
        ..Sent::failed(message)
    }
}

/// An address may be a secret, so no error is quoted that could hold it.
fn in_words(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Timeout(what) => format!("no answer in time ({what})"),
        ureq::Error::HostNotFound => "the name of the host is not known".to_string(),
        ureq::Error::Io(error) => format!("no connection: {error}"),
        ureq::Error::ConnectionFailed => "no connection".to_string(),
        ureq::Error::Rustls(error) => format!("no secure connection: {error}"),
        ureq::Error::Tls(what) => format!("no secure connection: {what}"),
        ureq::Error::Protocol(error) => format!("the answer is not understood: {error}"),
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => {
            "the address is none, write one such as https://example.org/hook".to_string()
        }
        ureq::Error::LargeResponseHeader(..) => "the answer has too large a head".to_string(),
        ureq::Error::InvalidProxyUrl | ureq::Error::ConnectProxyFailed(_) => {
            "the proxy of the environment could not be used".to_string()
        }
        _ => "it could not be sent".to_string(),
    }
}

/// Seconds, or a date.
fn retry_after_ms(headers: &HeaderMap, now: Timestamp) -> Option<i64> {
    let text = headers.get("retry-after")?.to_str().ok()?.trim();
    if let Ok(secs) = text.parse::<u32>() {
        return Some(i64::from(secs) * 1_000);
    }
    let at = jiff::fmt::rfc2822::parse(text).ok()?;
    Some((at.timestamp().as_millisecond() - now.0).max(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_says_when_to_come_back_in_seconds_or_by_a_date() {
        let ask = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("retry-after", text.parse().unwrap());
            retry_after_ms(&headers, Timestamp(1_445_412_420_000))
        };
        assert_eq!(ask("120"), Some(120_000));
        assert_eq!(ask("Wed, 21 Oct 2015 07:28:00 GMT"), Some(60_000));
        assert_eq!(ask("Wed, 21 Oct 2015 07:00:00 GMT"), Some(0));
        assert_eq!(ask("soon"), None);
        assert_eq!(ask("-5"), None);
    }
}
