//! A program that sends exactly what it is told to, where a browser would not.

use std::io::{Read, Write};
use std::net::TcpStream;

pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
    }
}

/// `site` as in `http://127.0.0.1:7717`. Without a `host` among the headers, it is that.
pub fn ask(site: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let address = site.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let mut request = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        request.push_str(&format!("host: {address}\r\n"));
    }
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("content-length: {length}\r\n\r\n{body}"));
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer {
        status,
        head: head.to_string(),
        body: body.to_string(),
    }
}

pub fn get(site: &str, path: &str) -> Answer {
    ask(site, "GET", path, &[("accept", "text/html")], "")
}

/// A form as a browser sends it from a page of ours.
pub fn send_form(site: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut all = vec![
        ("content-type", "application/x-www-form-urlencoded"),
        ("accept", "text/html"),
    ];
    all.extend(headers);
    ask(site, "POST", path, &all, body)
}

/// What the page at this path proves its forms with.
pub fn proof(site: &str, path: &str, headers: &[(&str, &str)]) -> String {
    let page = ask(site, "GET", path, headers, "").body;
    let (_, rest) = page
        .split_once("name=\"page\" value=\"")
        .unwrap_or_else(|| panic!("no form in {page}"));
    rest.split_once('"').unwrap().0.to_string()
}
