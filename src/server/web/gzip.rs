//! Pages and their files, squeezed for whoever takes them so: a tenth of the bytes, for a slow link to an edge box.
//!
//! A page with the hidden field of a form is sent as it is: how well a secret and what somebody else put beside it can be squeezed
//! together tells something about the secret.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::server::exchange::{Headers, Response};

/// What is smaller fits into a few packets anyway.
const BYTES_MIN: usize = 2 << 10;

pub fn squeezed(response: Response, headers: &Headers) -> Response {
    let accepted = headers.accept_encoding.as_deref().unwrap_or_default();
    let response = response.header("vary", "accept-encoding");
    if response.body.len() < BYTES_MIN || !takes_gzip(accepted) {
        return response;
    }
    let body = gzip(&response.body, Compression::fast());
    Response {
        body: body.into(),
        ..response.header("content-encoding", "gzip")
    }
}

pub fn gzip(body: &[u8], how: Compression) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), how);
    // A Vec takes everything.
    let written = encoder.write_all(body).and_then(|()| encoder.finish());
    written.expect("memory cannot fail to be written to")
}

/// `gzip, deflate, br`; `gzip;q=0` says that it does not.
pub fn takes_gzip(accepted: &str) -> bool {
    accepted.split(',').any(|coding| {
        let mut words = coding.split(';').map(str::trim);
        let is_gzip = words.next() == Some("gzip");
        let weight = words.find_map(|word| word.strip_prefix("q="));
        is_gzip
            && weight.is_none_or(|weight| weight.parse::<f32>().is_ok_and(|weight| weight > 0.0))
    })
}

#[cfg(test)]
mod tests {
    use super::takes_gzip;

    #[test]
    fn whoever_does_not_take_it_is_not_sent_it() {
        for yes in ["gzip", "br, gzip;q=0.5", "deflate, gzip , br"] {
            assert!(takes_gzip(yes), "{yes}");
        }
        for no in ["", "br", "gzip;q=0", "gzip;q=0.0", "x-gzip", "identity"] {
            assert!(!takes_gzip(no), "{no}");
        }
    }
}
