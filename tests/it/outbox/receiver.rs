//! Somebody who is told things over HTTP: it writes down what it got, and answers what it was told to.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);

/// One request.
#[derive(Debug, Clone)]
pub struct Got {
    pub head: String,
    pub body: Vec<u8>,
}

impl Got {
    pub fn header(&self, name: &str) -> Option<String> {
        let lines = self.head.lines().skip(1);
        let mut headers = lines.filter_map(|line| line.split_once(": "));
        let found = headers.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.to_string())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the body is JSON")
    }
}

#[derive(Default)]
struct State {
    got: Vec<Got>,
    /// What comes next; after that, 200.
    answers: VecDeque<String>,
    /// No answer while it is so.
    is_silent: bool,
}

pub struct Receiver {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Receiver {
    pub fn start() -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<Mutex<State>>::default();
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = shared.clone();
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        Receiver { address, state }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// What it answers next, such as `503 Busy`, with more headers and a body if there are any.
    pub fn answer(&self, status: &str) {
        let mut state = self.state.lock().unwrap();
        state.answers.push_back(status.to_string());
    }

    pub fn be_silent(&self, is_silent: bool) {
        self.state.lock().unwrap().is_silent = is_silent;
    }

    pub fn got(&self) -> Vec<Got> {
        self.state.lock().unwrap().got.clone()
    }

    /// As soon as there are so many.
    pub fn await_got(&self, count: usize) -> Vec<Got> {
        let begun = Instant::now();
        loop {
            let got = self.got();
            if got.len() >= count {
                return got;
            }
            assert!(begun.elapsed() < PATIENCE, "in vain: {count} messages");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A connection that breaks is its sender's affair.
fn serve(stream: TcpStream, shared: &Mutex<State>) {
    let Ok(mut answers) = stream.try_clone() else {
        return;
    };
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    loop {
        let mut line = String::new();
        match reader.read_line(&mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) if line == "\r\n" => break,
            Ok(_) => head.push_str(&line),
        }
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.parse().expect("a number"))
    });
    let mut body = vec![0; length.unwrap_or(0)];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let answer = {
        let mut state = shared.lock().unwrap();
        state.got.push(Got { head, body });
        state.answers.pop_front()
    };
    while shared.lock().unwrap().is_silent {
        std::thread::sleep(Duration::from_millis(5));
    }
    let status = answer.unwrap_or_else(|| "200 OK".to_string());
    let (status, said) = status.split_once("\r\n\r\n").unwrap_or((&status, "told"));
    let length = said.len();
    let text =
        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{said}");
    let _ = answers.write_all(text.as_bytes());
}
