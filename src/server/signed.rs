//! Whether a request shows that it knows a webhook's secret, in one of three ways. Nothing is told of why it does not.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

use crate::domain::Timestamp;
use crate::domain::webhook::WebhookScheme;
use crate::outbox::decoded_secret;
use crate::store::hex_sha256;

/// How old a signature may be, or how far ahead its sender's clock.
const TOLERANCE_SECS: i64 = 5 * 60;

/// While a secret is changed there are two; more are an attempt to keep us busy.
const SIGNATURES_MAX: usize = 16;

/// What a request says, as it came.
pub struct Evidence<'a> {
    /// Names in lower case.
    pub headers: &'a [(String, String)],
    pub body: &'a [u8],
}

impl Evidence<'_> {
    /// One that is there twice says nothing.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(known, _)| known == name);
        let (_, value) = found.next()?;
        found.next().is_none().then_some(value.as_str())
    }

    /// The way in which it says that it knows the secret; none or one.
    fn scheme(&self) -> Option<WebhookScheme> {
        if self.header("webhook-signature").is_some() {
            Some(WebhookScheme::Standard)
        } else if self.header("x-hub-signature-256").is_some() {
            Some(WebhookScheme::Github)
        } else {
            let bearer = self.header("authorization");
            bearer.map(|_| WebhookScheme::Bearer)
        }
    }

    /// What names this delivery: the same when it is repeated.
    pub fn delivery_id(&self) -> Option<&str> {
        let names = ["webhook-id", "x-github-delivery", "idempotency-key"];
        let mut ids = names.iter().filter_map(|name| self.header(name));
        ids.find(|id| !id.trim().is_empty())
    }

    /// Whether the request shows a signature or a secret at all, right or wrong.
    pub fn is_shown(&self) -> bool {
        self.scheme().is_some()
    }

    /// Names the delivery by what was signed, for a request that `shows` the secret. The id that GitHub sends is not signed, so
    /// whoever has seen one delivery could repeat it under another id. `None`: the request carries the secret itself, and whoever
    /// knows that can ask for anything.
    pub fn signed_digest(&self, scheme: Option<WebhookScheme>) -> Option<String> {
        match scheme.or_else(|| self.scheme())? {
            WebhookScheme::Standard => {
                let (id, timestamp) = (
                    self.header("webhook-id")?,
                    self.header("webhook-timestamp")?,
                );
                let signed = [format!("{id}.{timestamp}.").as_bytes(), self.body].concat();
                Some(hex_sha256(&signed))
            }
            WebhookScheme::Github => Some(hex_sha256(self.body)),
            WebhookScheme::Bearer => None,
        }
    }

    /// With a scheme, only that one is taken.
    pub fn shows(&self, scheme: Option<WebhookScheme>, secret: &str, now: Timestamp) -> bool {
        if secret.trim().is_empty() {
            // Everybody knows it.
            return false;
        }
        let shown = match scheme.or_else(|| self.scheme()) {
            Some(WebhookScheme::Standard) => self.is_signed(secret, now),
            Some(WebhookScheme::Github) => self.is_signed_by_github(secret),
            Some(WebhookScheme::Bearer) => self.bears(secret),
            None => None,
        };
        shown == Some(true)
    }

    fn is_signed(&self, secret: &str, now: Timestamp) -> Option<bool> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &decoded_secret(secret).ok()?);
        let id = self.header("webhook-id")?;
        let timestamp = self.header("webhook-timestamp")?;
        let secs: i64 = timestamp.parse().ok()?;
        let age_secs = (now.0 / 1_000).checked_sub(secs)?;
        let mut signed = format!("{id}.{timestamp}.").into_bytes();
        signed.extend_from_slice(self.body);
        let signatures = self.header("webhook-signature")?.split(' ');
        let signatures = signatures.take(SIGNATURES_MAX);
        let known = signatures.filter_map(|signature| signature.strip_prefix("v1,"));
        let mut tags = known.filter_map(|encoded| STANDARD.decode(encoded).ok());
        let is_known = tags.any(|tag| hmac::verify(&key, &signed, &tag).is_ok());
        Some(is_known && age_secs.abs() <= TOLERANCE_SECS)
    }

    fn is_signed_by_github(&self, secret: &str) -> Option<bool> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let encoded = self
            .header("x-hub-signature-256")?
            .strip_prefix("sha256=")?;
        let tag = from_hex(encoded)?;
        Some(hmac::verify(&key, self.body, &tag).is_ok())
    }

    fn bears(&self, secret: &str) -> Option<bool> {
        let (scheme, token) = self.header("authorization")?.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        // The two are compared by their tags, in a time that tells nothing.
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let expected = hmac::sign(&key, secret.as_bytes());
        Some(hmac::verify(&key, token.trim().as_bytes(), expected.as_ref()).is_ok())
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let pairs = (0..text.len()).step_by(2);
    pairs
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::signature;

    const NOW: Timestamp = Timestamp(1_700_000_000_000);
    const NOW_SECS: i64 = 1_700_000_000;

    fn shows(
        headers: &[(&str, &str)],
        body: &[u8],
        scheme: Option<WebhookScheme>,
        secret: &str,
    ) -> bool {
        let headers: Vec<(String, String)> = headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect();
        let evidence = Evidence {
            headers: &headers,
            body,
        };
        evidence.shows(scheme, secret, NOW)
    }

    /// The example that GitHub gives.
    #[test]
    fn github_signs_the_body() {
        let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let secret = "It's a Secret to Everybody";
        let of = |signature: &str, body: &[u8]| {
            shows(&[("x-hub-signature-256", signature)], body, None, secret)
        };
        assert!(of(signature, b"Hello, World!"));
        assert!(of(
            &signature.to_uppercase().replace("SHA", "sha"),
            b"Hello, World!"
        ));
        assert!(!of(signature, b"Hello, World?"));
        assert!(!of(&signature[..signature.len() - 2], b"Hello, World!"));
        assert!(!of("sha256=", b"Hello, World!"));
        assert!(!of("sha256=zz", b"Hello, World!"));
        assert!(!of("sha1=00", b"Hello, World!"));
        assert!(!of("sha256=\u{e4}\u{e4}", b"Hello, World!"));
    }

    #[test]
    fn a_signature_is_over_id_time_and_body_and_not_old() {
        let signed = |id: &str, secs: i64| signature(b"secret", id, secs, b"{}");
        let of = |id: &str, secs: i64, signatures: &str, body: &[u8]| {
            let secs = secs.to_string();
            let headers = [
                ("webhook-id", id),
                ("webhook-timestamp", secs.as_str()),
                ("webhook-signature", signatures),
            ];
            shows(&headers, body, None, "secret")
        };
        let good = signed("msg_1", NOW_SECS);
        assert!(of("msg_1", NOW_SECS, &good, b"{}"));
        assert!(of(
            "msg_1",
            NOW_SECS,
            &format!("v1,AAAA v2,x v1 {good}"),
            b"{}"
        ));
        assert!(!of("msg_1", NOW_SECS, &good, b"{ }"));
        assert!(!of("msg_2", NOW_SECS, &good, b"{}"));
        assert!(!of("msg_1", NOW_SECS + 1, &good, b"{}"));
        for (secs, expected) in [(300, true), (301, false), (-300, true), (-301, false)] {
            let at = NOW_SECS - secs;
            assert_eq!(
                of("msg_1", at, &signed("msg_1", at), b"{}"),
                expected,
                "{secs}"
            );
        }
        let odd = signature(b"secret", "msg_1", i64::MIN, b"{}");
        assert!(!of("msg_1", i64::MIN, &odd, b"{}"));
        assert!(!of(
            "msg_1",
            NOW_SECS,
            &format!("{}{good}", "v1,AAAA ".repeat(16)),
            b"{}"
        ));
        assert!(!of("msg_1", NOW_SECS, "", b"{}"));
        assert!(!of("msg_1", NOW_SECS, "v1,", b"{}"));
    }

    #[test]
    fn a_token_is_the_secret_itself() {
        let of = |value: &str| shows(&[("authorization", value)], b"", None, "correct horse");
        assert!(of("Bearer correct horse"));
        assert!(of("bearer correct horse"));
        assert!(!of("Bearer correct hors"));
        assert!(!of("Bearer "));
        assert!(!of("Bearer"));
        assert!(!of("Basic correct horse"));
        for blank in ["", " "] {
            assert!(!shows(&[("authorization", "Bearer ")], b"", None, blank));
        }
    }

    #[test]
    fn with_a_scheme_no_other_is_taken_and_twice_is_never() {
        let bearer = ("authorization", "Bearer secret");
        for scheme in [WebhookScheme::Standard, WebhookScheme::Github] {
            assert!(!shows(&[bearer], b"", Some(scheme), "secret"));
        }
        assert!(shows(&[bearer], b"", Some(WebhookScheme::Bearer), "secret"));
        assert!(!shows(&[bearer, bearer], b"", None, "secret"));
        assert!(!shows(&[], b"", None, "secret"));
        // A wrong signature is not helped by a right token.
        assert!(!shows(
            &[bearer, ("webhook-signature", "v1,AAAA")],
            b"",
            None,
            "secret"
        ));
    }
}
