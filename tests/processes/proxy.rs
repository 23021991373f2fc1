//! A small proxy that loses, doubles and holds back what passes through it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Pass,
    /// It never arrives.
    LoseRequest,
    /// It is carried out, and nobody learns how it went.
    LoseAnswer,
    /// It arrives twice; the second answer comes back.
    Double,
    /// It is answered here: the server is not there.
    BadGateway,
    /// Neither it nor an answer: the connection stays open and nothing happens.
    Hang,
}

/// Told the path of a request and its number, says what becomes of it.
pub type Policy = dyn Fn(&str, u64) -> Fate + Send + Sync;

pub struct Proxy {
    pub url: String,
    desk: Arc<Desk>,
}

/// What the threads of a proxy share.
struct Desk {
    upstream: SocketAddr,
    policy: Mutex<Box<Policy>>,
    clients: Mutex<BTreeMap<SocketAddr, TcpStream>>,
    /// What became of each request so far, in order.
    fates: Mutex<Vec<(String, Fate)>>,
}

impl Proxy {
    /// Runs until the test process ends.
    pub fn start(
        server_url: &str,
        policy: impl Fn(&str, u64) -> Fate + Send + Sync + 'static,
    ) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let desk = Arc::new(Desk {
            upstream: server_url.strip_prefix("http://").unwrap().parse().unwrap(),
            policy: Mutex::new(Box::new(policy)),
            clients: Mutex::default(),
            fates: Mutex::default(),
        });
        let shared = desk.clone();
        std::thread::spawn(move || {
            while let Ok((client, address)) = listener.accept() {
                let desk = shared.clone();
                let second = client.try_clone().unwrap();
                desk.clients.lock().unwrap().insert(address, second);
                std::thread::spawn(move || {
                    serve(client, &desk);
                    // The client sees the end of the connection only when nobody holds it any more.
                    desk.clients.lock().unwrap().remove(&address);
                });
            }
        });
        Proxy { url, desk }
    }

    /// From now on these requests are lost and all others pass. What is under way is cut off, answers included.
    pub fn lose(&self, is_lost: impl Fn(&str) -> bool + Send + Sync + 'static) {
        *self.desk.policy.lock().unwrap() = Box::new(move |path, _| match is_lost(path) {
            true => Fate::LoseRequest,
            false => Fate::Pass,
        });
        for client in self.desk.clients.lock().unwrap().values() {
            // It may be gone already.
            let _ = client.shutdown(Shutdown::Both);
        }
    }

    /// How many requests with such a path met this fate.
    pub fn count(&self, words: &str, fate: Fate) -> usize {
        let fates = self.desk.fates.lock().unwrap();
        let such = |(path, met): &&(String, Fate)| path.contains(words) && *met == fate;
        fates.iter().filter(such).count()
    }
}

impl Desk {
    fn decide(&self, path: &str) -> Fate {
        let mut fates = self.fates.lock().unwrap();
        let fate = self.policy.lock().unwrap()(path, fates.len() as u64);
        fates.push((path.to_string(), fate));
        fate
    }
}

fn serve(mut client: TcpStream, desk: &Desk) {
    let upstream = desk.upstream;
    client.set_nodelay(true).unwrap();
    while let Some(request) = read_message(&mut client) {
        let head = String::from_utf8_lossy(&request);
        let path = head.split_whitespace().nth(1).unwrap_or_default();
        let answer = match desk.decide(path) {
            Fate::LoseRequest => return,
            Fate::BadGateway => {
                let page = "<h1>502 Bad Gateway</h1>";
                let length = page.len();
                let head = format!("HTTP/1.1 502 Bad Gateway\r\ncontent-length: {length}\r\n\r\n");
                Some((head + page).into_bytes())
            }
            Fate::Hang => {
                let mut rest = Vec::new();
                // Until the client gives up.
                let _ = client.read_to_end(&mut rest);
                return;
            }
            Fate::LoseAnswer => {
                ask(upstream, &request, &client);
                return;
            }
            Fate::Double => {
                ask(upstream, &request, &client);
                ask(upstream, &request, &client)
            }
            Fate::Pass => ask(upstream, &request, &client),
        };
        let Some(answer) = answer else { return };
        if client.write_all(&answer).is_err() {
            return;
        }
    }
}

/// One request, one answer, on a connection of its own. A client that goes away takes it along.
fn ask(upstream: SocketAddr, request: &[u8], client: &TcpStream) -> Option<Vec<u8>> {
    let mut server = TcpStream::connect(upstream).ok()?;
    server.set_nodelay(true).unwrap();
    server.write_all(request).ok()?;
    let (watched, server_side) = (client.try_clone().ok()?, server.try_clone().ok()?);
    let (done_tx, done_rx) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        use std::sync::mpsc::TryRecvError;
        let pause = std::time::Duration::from_millis(100);
        watched.set_read_timeout(Some(pause)).unwrap();
        let mut byte = [0];
        while done_rx.try_recv() == Err(TryRecvError::Empty) {
            if matches!(watched.peek(&mut byte), Ok(0)) {
                // It has been answered, or closed already.
                let _ = server_side.shutdown(Shutdown::Both);
                return;
            }
        }
    });
    let answer = read_message(&mut server);
    drop(done_tx);
    client.set_read_timeout(None).ok()?;
    answer
}

/// Head and body as they came. `None`: the other side is gone.
fn read_message(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut message = Vec::new();
    let mut piece = [0; 16 << 10];
    loop {
        if let Some(end) = message.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&message[..end]).to_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
            if message.len() >= end + 4 + length {
                return Some(message);
            }
        }
        match stream.read(&mut piece) {
            Ok(0) => return None,
            Ok(bytes) => message.extend_from_slice(&piece[..bytes]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
    }
}
