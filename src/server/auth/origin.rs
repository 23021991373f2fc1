//! What other sites make a browser send is told by `Host`, `Origin` and `Sec-Fetch-Site`, and refused here.

use std::net::{IpAddr, SocketAddr};

use crate::server::error::ApiError;
use crate::server::exchange::{Headers, Method};

/// By which names this server goes.
pub struct OwnNames {
    names: Vec<String>,
    /// Without a token a browser that was led here under another name serves somebody else; with one there is nothing to be had for
    /// a name that is not ours: a cookie belongs to a name.
    any_will_do: bool,
}

impl OwnNames {
    pub fn new(listen: SocketAddr, public_url: &str, any_will_do: bool) -> OwnNames {
        let authority = public_url.split("://").nth(1).unwrap_or_default();
        let authority = authority.split('/').next().unwrap_or_default();
        let names = [authority, &listen.to_string()].map(|name| host_name(name).to_string());
        OwnNames {
            names: names.into_iter().filter(|name| !name.is_empty()).collect(),
            any_will_do,
        }
    }

    /// What is to be kept from browsers that were led here by somebody else.
    pub fn check(
        &self,
        method: Method,
        headers: &Headers,
        is_linkable: bool,
    ) -> Result<(), ApiError> {
        let host = headers.host.as_deref().unwrap_or_default();
        // Every browser says which name it followed.
        let is_led = headers.host.is_some() && !self.is_ours(host_name(host));
        if is_led && !self.any_will_do {
            let message = format!(
                "this server is not called {host:?}; reach it as localhost, or set public_url to its address"
            );
            return Err(ApiError::new(421, "misdirected", message));
        }
        // A person may follow a link from another site to a page. A link to anything else would let that site start downloads, and
        // what a page of another site fetches here it could not read, but it would cost us.
        let is_navigation = headers.fetch_mode.as_deref() == Some("navigate");
        let is_visit = is_linkable && (is_navigation || headers.fetch_site.is_none());
        if method.is_safe() && is_visit {
            return Ok(());
        }
        let is_own = match (&headers.fetch_site, &headers.origin, &headers.referer) {
            (Some(site), ..) => matches!(site.as_str(), "same-origin" | "none"),
            (None, Some(origin), _) => authority(origin) == Some(host),
            // Browsers send `Sec-Fetch-Site` over TLS and to this machine only. Elsewhere `Referer` names the page with the link, unless
            // that page keeps the browser from it. A proxy may have put another name into `Host`.
            (None, None, Some(referer)) => authority(referer)
                .is_none_or(|sender| sender == host || self.is_ours(host_name(sender))),
            // No browser, or an address that somebody typed.
            (None, None, None) => true,
        };
        if is_own {
            return Ok(());
        }
        let message = match method.is_safe() && (is_navigation || headers.fetch_site.is_none()) {
            true => {
                "another site led the browser to this address, which is no page: open it from a page of this server, or type it in"
            }
            false => "this request was made by a page of another site",
        };
        Err(ApiError::new(403, "cross_site", message))
    }

    fn is_ours(&self, name: &str) -> bool {
        is_local(name) || (self.names.iter()).any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// The host and the port in a URL.
fn authority(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    rest.split(['/', '?', '#']).next()
}

/// A name of this machine, to itself.
pub fn is_local(name: &str) -> bool {
    let address = name.trim_start_matches('[').trim_end_matches(']');
    let address = address.parse::<IpAddr>();
    address.is_ok_and(|address| address.is_loopback())
        || name.eq_ignore_ascii_case("localhost")
        || name.to_ascii_lowercase().ends_with(".localhost")
}

/// Without the port.
pub fn host_name(authority: &str) -> &str {
    match (authority.rfind(':'), authority.rfind(']')) {
        (Some(colon), Some(bracket)) if colon < bracket => authority,
        (Some(colon), _) => &authority[..colon],
        (None, _) => authority,
    }
}
