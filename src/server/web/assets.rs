//! The files that pages load: one stylesheet, a few modules, an icon, all compiled in. Their address has a hash of all of them, so that a
//! browser may keep them for ever and never has those of another version.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use bytes::Bytes;
use flate2::Compression;
use sha2::{Digest, Sha256};

use super::gzip::{gzip, takes_gzip};
use crate::server::App;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// (name, what it is, the file)
const ASSETS: &[(&str, &str, &[u8])] = &[
    (
        "style.css",
        "text/css; charset=utf-8",
        include_bytes!("assets/style.css"),
    ),
    (
        "icon.svg",
        "image/svg+xml",
        include_bytes!("assets/icon.svg"),
    ),
    ("app.js", JAVASCRIPT, include_bytes!("assets/app.js")),
    ("live.js", JAVASCRIPT, include_bytes!("assets/live.js")),
    (
        "live-worker.js",
        JAVASCRIPT,
        include_bytes!("assets/live-worker.js"),
    ),
    ("stream.js", JAVASCRIPT, include_bytes!("assets/stream.js")),
    ("morph.js", JAVASCRIPT, include_bytes!("assets/morph.js")),
    ("ticks.js", JAVASCRIPT, include_bytes!("assets/ticks.js")),
    ("keys.js", JAVASCRIPT, include_bytes!("assets/keys.js")),
    ("dialog.js", JAVASCRIPT, include_bytes!("assets/dialog.js")),
    ("jobs.js", JAVASCRIPT, include_bytes!("assets/jobs.js")),
    ("form.js", JAVASCRIPT, include_bytes!("assets/form.js")),
    ("log.js", JAVASCRIPT, include_bytes!("assets/log.js")),
    (
        "log-pages.js",
        JAVASCRIPT,
        include_bytes!("assets/log-pages.js"),
    ),
];

/// Where a page finds one.
pub fn address(name: &str) -> String {
    format!("/assets/{}/{name}", version())
}

fn version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| {
        let mut hash = Sha256::new();
        for (_, _, file) in ASSETS {
            hash.update(file);
        }
        let hash = hash.finalize();
        hash[..6].iter().map(|byte| format!("{byte:02x}")).collect()
    })
}

pub fn show(_: &App, request: &Request) -> Result<Reply, ApiError> {
    let name = request.param(1);
    let found = ASSETS.iter().find(|(known, _, _)| *known == name);
    let (_, content_type, file) =
        found.ok_or_else(|| ApiError::not_found("there is no such file"))?;
    // A page of another version gets the file as it is now, but must not take it for what it asked for.
    let keep = match request.param(0) == version() {
        true => "public, max-age=31536000, immutable",
        false => "no-store",
    };
    let response = Response {
        status: 200,
        content_type,
        headers: Vec::new(),
        body: Bytes::from_static(file),
    };
    let response = response
        .header("cache-control", keep)
        .header("vary", "accept-encoding");
    let accepted = request.headers.accept_encoding.as_deref();
    if !takes_gzip(accepted.unwrap_or_default()) {
        return Ok(response.into());
    }
    let response = Response {
        body: small(name).unwrap_or_default(),
        ..response.header("content-encoding", "gzip")
    };
    Ok(response.into())
}

/// The same, squeezed as well as it can be, once.
fn small(name: &str) -> Option<Bytes> {
    static SMALL: OnceLock<BTreeMap<&str, Bytes>> = OnceLock::new();
    let all = SMALL.get_or_init(|| {
        let files = ASSETS.iter();
        files
            .map(|(name, _, file)| (*name, gzip(file, Compression::best()).into()))
            .collect()
    });
    all.get(name).cloned()
}
