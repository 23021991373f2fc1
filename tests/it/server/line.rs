//! One connection, byte by byte: what is sent is what a test wrote, what comes back is taken apart by hand.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Longer than anything here may take; what is still silent then hangs.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct Line {
    stream: TcpStream,
    /// What came and was not asked for yet.
    ahead: Vec<u8>,
}

/// What the server answered.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(known, _)| known == name);
        found.next().map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("answers are text")
    }

    pub fn json(&self) -> Value {
        let text = self.text();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
    }

    /// The JSON of an answer with this status.
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        self.json()
    }

    /// The code of an error with this status. Every error has the same shape.
    pub fn refused(&self, status: u16) -> String {
        let json = self.expect(status);
        let error = &json["error"];
        assert!(
            error["message"]
                .as_str()
                .is_some_and(|text| !text.is_empty())
        );
        error["code"].as_str().expect("a code").to_string()
    }

    /// What it says is wrong.
    pub fn message(&self) -> String {
        let json = self.json();
        json["error"]["message"]
            .as_str()
            .expect("a message")
            .to_string()
    }
}

impl Line {
    pub fn open(address: SocketAddr) -> Line {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Line {
            stream,
            ahead: Vec::new(),
        }
    }

    /// Leaves as little room as possible for what the server sends and nobody reads.
    pub fn narrow(&self) {
        rustix::net::sockopt::set_socket_recv_buffer_size(&self.stream, 2_048).unwrap();
    }

    /// What is refused by a connection that has gone is nothing to its sender.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    pub fn ask(&mut self, method: &str, path: &str, headers: &str, body: &[u8]) {
        let length = body.len();
        let mut bytes = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n{headers}\r\n"
        )
        .into_bytes();
        bytes.extend_from_slice(body);
        assert!(self.send(bytes), "the server takes it");
    }

    /// The next answer. `None`: the connection ended instead.
    pub fn try_answer(&mut self) -> Option<Answer> {
        let mut answer = self.try_head()?;
        if let Some(length) = answer.header("content-length") {
            let length = length.parse().expect("a number");
            answer.body = self.exactly(length)?;
        } else if answer.header("transfer-encoding").is_some() {
            while let Some(piece) = self.piece() {
                answer.body.extend(piece);
            }
        }
        Some(answer)
    }

    pub fn answer(&mut self) -> Answer {
        self.try_answer().expect("an answer")
    }

    fn try_head(&mut self) -> Option<Answer> {
        let head = self.until(b"\r\n\r\n")?;
        let head = String::from_utf8(head).expect("heads are text");
        let mut lines = head.lines();
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_string()));
        Some(Answer {
            status,
            headers: headers.collect(),
            body: Vec::new(),
        })
    }

    /// An answer whose body nobody reads, or that has none, whatever its head says.
    pub fn bare_head(&mut self) -> Answer {
        self.try_head().expect("a head")
    }

    /// The head of an answer that comes in pieces.
    pub fn head(&mut self) -> u16 {
        let head = self.until(b"\r\n\r\n").expect("a head");
        let head = String::from_utf8(head).expect("heads are text");
        assert!(head.contains("transfer-encoding: chunked"), "{head}");
        let status = head.split(' ').nth(1).expect("a status");
        status.parse().expect("a number")
    }

    /// The next piece. `None`: that was all.
    pub fn piece(&mut self) -> Option<Vec<u8>> {
        let length = self.until(b"\r\n")?;
        let length = String::from_utf8(length).expect("a length is text");
        let length = usize::from_str_radix(length.trim(), 16).expect("a length");
        let piece = self.exactly(length)?;
        self.exactly(2)?;
        (length > 0).then_some(piece)
    }

    /// Of what is no HTTP. `None`: the connection ended instead.
    pub fn first_byte(&mut self) -> Option<u8> {
        self.exactly(1).map(|bytes| bytes[0])
    }

    /// Whether the server ended the connection without another word.
    pub fn is_closed(&mut self) -> bool {
        self.ahead.is_empty() && !self.more()
    }

    /// The client has nothing more to say and listens on.
    pub fn stop_sending(&self) {
        // It may be closed from the other side already.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    fn until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        loop {
            let at = self.ahead.windows(end.len()).position(|bytes| bytes == end);
            if let Some(at) = at {
                let rest = self.ahead.split_off(at + end.len());
                return Some(std::mem::replace(&mut self.ahead, rest));
            }
            if !self.more() {
                return None;
            }
        }
    }

    fn exactly(&mut self, length: usize) -> Option<Vec<u8>> {
        while self.ahead.len() < length {
            if !self.more() {
                return None;
            }
        }
        let rest = self.ahead.split_off(length);
        Some(std::mem::replace(&mut self.ahead, rest))
    }

    /// Waits for more bytes. `false`: there will be none.
    fn more(&mut self) -> bool {
        let mut bytes = [0; 16 << 10];
        match self.stream.read(&mut bytes) {
            Ok(0) => false,
            Ok(count) => {
                self.ahead.extend_from_slice(&bytes[..count]);
                true
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("the server is silent: {error}"),
        }
    }
}
