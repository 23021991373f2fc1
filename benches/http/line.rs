//! One connection to the server: HTTP/1.1 by hand, since the load must cost less than what it measures.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll;
use serde::de::DeserializeOwned;

const TIMEOUT: Duration = Duration::from_secs(60);

pub struct Line {
    address: SocketAddr,
    stream: Option<TcpStream>,
    /// Who is told when there is something to read, and under which number.
    watch: Option<(Arc<OwnedFd>, u64)>,
    /// What was asked and is not answered.
    request: Vec<u8>,
    received: Vec<u8>,
}

pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json<T: DeserializeOwned>(&self) -> T {
        let text = || String::from_utf8_lossy(&self.body);
        assert!(self.status / 100 == 2, "{}: {}", self.status, text());
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", text()))
    }
}

impl Line {
    pub fn new(address: SocketAddr) -> Line {
        Line {
            address,
            stream: None,
            watch: None,
            request: Vec::new(),
            received: Vec::new(),
        }
    }

    pub fn watched(address: SocketAddr, epoll: &Arc<OwnedFd>, number: u64) -> Line {
        Line {
            watch: Some((epoll.clone(), number)),
            ..Line::new(address)
        }
    }

    pub fn is_busy(&self) -> bool {
        !self.request.is_empty()
    }

    /// Asks for something as a browser does, and says how many bytes its body came in.
    pub fn weigh(&mut self, path: &str) -> usize {
        assert!(!self.is_busy(), "one call at a time");
        write!(
            self.request,
            "GET {path} HTTP/1.1\r\nhost: localhost\r\naccept-encoding: gzip, deflate, br\r\n\r\n"
        )
        .unwrap();
        self.send_request();
        loop {
            if let Some(answer) = self.receive() {
                assert_eq!(answer.status, 200, "{path}");
                return answer.body.len();
            }
        }
    }

    /// Asks and waits for the answer.
    pub fn call(&mut self, method: &str, path: &str, body: &[u8]) -> Answer {
        self.send(method, path, body);
        loop {
            if let Some(answer) = self.receive() {
                return answer;
            }
        }
    }

    pub fn send(&mut self, method: &str, path: &str, body: &[u8]) {
        assert!(!self.is_busy(), "one call at a time");
        let kind = match method {
            "PUT" => "application/octet-stream",
            _ => "application/json",
        };
        let length = body.len();
        write!(
            self.request,
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n"
        )
        .unwrap();
        self.request.extend_from_slice(body);
        self.send_request();
    }

    fn send_request(&mut self) {
        if self.stream.is_none() {
            let stream = TcpStream::connect_timeout(&self.address, TIMEOUT).unwrap();
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            if let Some((epoll, number)) = &self.watch {
                let data = epoll::EventData::new_u64(*number);
                epoll::add(epoll, &stream, data, epoll::EventFlags::IN).unwrap();
            }
            self.stream = Some(stream);
        }
        let stream = self.stream.as_mut().unwrap();
        match stream.write_all(&self.request) {
            Ok(()) => {}
            Err(error) if is_closed(error.kind()) => self.closed(),
            Err(error) => panic!("a request cannot be sent: {error}"),
        }
    }

    /// Reads what there is, or waits for it. `None`: the answer is not whole yet, or there was no question.
    pub fn receive(&mut self) -> Option<Answer> {
        let stream = self.stream.as_mut()?;
        let mut piece = [0; 64 << 10];
        match stream.read(&mut piece) {
            Ok(0) => self.closed(),
            Err(error) if is_closed(error.kind()) => self.closed(),
            Ok(length) => self.received.extend_from_slice(&piece[..length]),
            Err(error) => panic!("no answer: {error}"),
        }
        let answer = parse(&self.received)?;
        self.received.clear();
        self.request.clear();
        Some(answer)
    }

    /// The server closes what is idle for long. A request that met just that is sent again.
    fn closed(&mut self) {
        assert!(self.received.is_empty(), "an answer broke off");
        self.stream = None;
        if self.is_busy() {
            self.send_request();
        }
    }
}

fn is_closed(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

/// `None`: not whole yet.
fn parse(received: &[u8]) -> Option<Answer> {
    let head_length = memchr::memmem::find(received, b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&received[..head_length]).unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap();
    let length = lines.find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.unwrap().parse().unwrap();
    let body = &received[head_length..];
    (body.len() >= length).then(|| Answer {
        status: status.parse().unwrap(),
        body: body.to_vec(),
    })
}
