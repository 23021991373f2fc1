//! A small site of fixed pages, to try the browser on.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

/// Path, content type, body. Everything else is not found.
pub type Page = (String, &'static str, String);

/// As strict as our own pages: only what is listed, and no string becomes code.
const POLICY: &str = "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self'; require-trusted-types-for 'script'; trusted-types story";

pub struct Site {
    address: SocketAddr,
}

impl Site {
    /// With the policy of our own pages.
    pub fn strict(pages: Vec<Page>) -> Site {
        Site::start(pages, format!("content-security-policy: {POLICY}\r\n"))
    }

    /// Whatever a page wants, it may.
    pub fn lax(pages: Vec<Page>) -> Site {
        Site::start(pages, "access-control-allow-origin: *\r\n".to_string())
    }

    fn start(pages: Vec<Page>, header: String) -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let pages = Arc::new((pages, header));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let pages = pages.clone();
                std::thread::spawn(move || serve(stream, &pages.0, &pages.1));
            }
        });
        Site { address }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// A connection that breaks is the browser's affair.
fn serve(mut stream: TcpStream, pages: &[Page], header: &str) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    let request = lines.next()?.ok()?;
    lines.find(|line| line.as_ref().map_or(true, String::is_empty));
    let path = request.split(' ').nth(1)?.split('?').next()?;
    let found = pages.iter().find(|(known, _, _)| *known == path);
    let (status, kind, body) = match found {
        Some((_, kind, body)) => ("200 OK", *kind, body.as_str()),
        None => ("404 Not Found", "text/plain", "not found"),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}; charset=utf-8\r\ncontent-length: {length}\r\n{header}connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body.as_bytes()).ok()
}
