//! Signatures of Standard Webhooks: HMAC-SHA256 over id, time and body.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

/// `whsec_` and base64, or the bytes themselves. Without any bytes everybody could sign.
pub fn decoded_secret(secret: &str) -> Result<Vec<u8>, String> {
    let secret = secret.trim();
    let bytes = match secret.strip_prefix("whsec_") {
        None => secret.as_bytes().to_vec(),
        Some(encoded) => STANDARD
            .decode(encoded)
            .map_err(|_| "the secret begins with whsec_ but is no base64 after it".to_string())?,
    };
    match bytes.is_empty() {
        true => Err("the secret is empty".to_string()),
        false => Ok(bytes),
    }
}

/// What the signature is over.
pub fn signed(id: &str, timestamp_secs: i64, body: &[u8]) -> Vec<u8> {
    let mut signed = format!("{id}.{timestamp_secs}.").into_bytes();
    signed.extend_from_slice(body);
    signed
}

/// The value of `webhook-signature`.
pub fn signature(secret: &[u8], id: &str, timestamp_secs: i64, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let tag = hmac::sign(&key, &signed(id, timestamp_secs, body));
    format!("v1,{}", STANDARD.encode(tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example that the specification of Standard Webhooks gives.
    #[test]
    fn it_is_what_the_specification_says() {
        let secret = decoded_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let found = signature(
            &secret,
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(found, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_secret_is_base64_only_if_it_says_so() {
        assert_eq!(decoded_secret("plain+text\n").unwrap(), b"plain+text");
        assert_eq!(decoded_secret("whsec_AAEC").unwrap(), [0, 1, 2]);
        for none in ["whsec_!", "whsec_", "", " "] {
            assert!(decoded_secret(none).is_err(), "{none:?}");
        }
    }
}
