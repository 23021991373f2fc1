//! Bytes on the wire: the one place that knows the HTTP library and its runtime.
//!
//! One thread, `http`, runs hyper. It turns bytes into requests and hands them over a queue to handler threads, which are
//! plain and synchronous; a request that is answered later costs no thread meanwhile. Slow, huge and broken requests end
//! here: everything has a limit and a time. So does the handshake of TLS, where that is spoken.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt::set_tcp_user_timeout;
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::rustls::server::Acceptor;
use tokio_rustls::server::TlsStream;

use super::error::ApiError;
use super::exchange::{Headers, Method, Request, Response};
use super::framing::Framing;
use super::handlers::{Admitted, Door, NotQueued};
use super::places::{Busy, Place, PlaceLimits, Places};
use super::routes::{self, Access, Route};
use super::shares::{HeldShare, Limit, ShareOwner};
use super::tls::Identity;
use super::unread_answers::{AnswerBudget, AnswerRooms};
use crate::clock::{Stopwatch, wall_time};
use crate::domain::lineage::LINEAGE_HEADER;
use crate::domain::peer::{Features, PROTOCOL_HEADER, Peer};
use crate::essential::{panic_text, spawn_essential};
use crate::metrics::{PanicCounts, PanicPlace};
use crate::wire::NO_ROUTE;
use crate::words;

/// What one client may cost.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub connections_max: usize,
    /// Of one address. All workers may be on one machine, or behind one.
    pub connections_per_address_max: usize,
    /// Of those that have not shown yet that they may come in.
    pub strangers_per_address_max: usize,
    pub body_bytes_max: usize,
    /// Of whoever has not shown yet that they may come in: a form to log in, an enrolment.
    pub stranger_bytes_max: usize,
    /// A piece of a log, or many results at once.
    pub worker_bytes_max: usize,
    /// Requests that wait for a handler: of workers, and of everybody else.
    pub queued_max: usize,
    /// Streams of events at a time.
    pub streams_max: usize,
    /// Of all bodies that are on their way or not dealt with yet.
    pub bodies_bytes_max: usize,
    /// Of all long answers that are not read yet.
    pub answers_bytes_max: usize,
    /// Until a request's headers are there; also how long an idle connection is kept, and what the handshake of TLS may take.
    pub header_timeout: Duration,
    /// Between two pieces of a body, and for all of it.
    pub body_pause_max: Duration,
    pub body_timeout: Duration,
    /// How long a client may leave what it was sent unread before it is cut off.
    pub unread_max: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 8_192,
            connections_per_address_max: 6_144,
            strangers_per_address_max: 1_024,
            body_bytes_max: 1 << 20,
            stranger_bytes_max: 16 << 10,
            worker_bytes_max: 16 << 20,
            queued_max: 4_096,
            streams_max: 512,
            bodies_bytes_max: 256 << 20,
            answers_bytes_max: 256 << 20,
            header_timeout: Duration::from_secs(10),
            body_pause_max: Duration::from_secs(10),
            body_timeout: Duration::from_secs(60),
            unread_max: Duration::from_secs(30),
        }
    }
}

/// Connections that wait to be accepted: a burst of workers that come back must not meet retries of one second.
const BACKLOG: u32 = 4096;
const HEADERS_MAX: usize = 64;
const HEADER_BYTES_MAX: usize = 16 << 10;
const PATH_BYTES_MAX: usize = 8 << 10;
/// Where the library stops to read, which it does roughly.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Said with every answer, whatever it is: a browser that was led to show one as something else obeys them too.
const ALWAYS: &[(&str, &str)] = &[
    ("content-security-policy", CONTENT_SECURITY_POLICY),
    ("cross-origin-resource-policy", "same-origin"),
    // Not `no-referrer`: with that, browsers do not say of a form where it comes from.
    ("referrer-policy", "same-origin"),
    ("x-content-type-options", "nosniff"),
];

/// Scripts and styles are files of ours, nothing else is loaded or run, and no text ever becomes code.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; worker-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types stepward";

/// For a year, and not for names below this one, which may be other machines.
const ONLY_BY_TLS: &str = "max-age=31536000";

/// Room that a long body gets with its first piece. More than a worker sends of a log at a time.
const BODY_BYTES_AT_ONCE: usize = 512 << 10;

/// A request on its way to a handler.
pub struct Exchange {
    pub request: Request,
    pub route: &'static Route,
    pub answer: Answer,
    /// Held until the request is dealt with.
    _room: HeldRoom,
}

/// Where the answer goes. Dropping it without one is an error of ours, and the client is told so.
pub struct Answer {
    sender: oneshot::Sender<Outgoing>,
    /// Limits for a long answer that is not read. `None`: there are none, because a worker must hear of what it was given.
    budget: Option<AnswerBudget>,
}

struct Outgoing {
    response: Response,
    stream: Option<mpsc::Receiver<Piece>>,
}

/// Of an answer that comes in pieces. An error breaks it off, so that the client cannot take it for whole.
type Piece = Result<Bytes, io::Error>;

impl Answer {
    /// Whether the request may be carried out, although its caller may not have read earlier answers yet.
    pub fn check_budget(&self) -> Result<(), ApiError> {
        self.budget.as_ref().map_or(Ok(()), AnswerBudget::check)
    }

    pub fn give(self, response: Response) {
        let response = match &self.budget {
            Some(budget) => budget.count(response),
            None => response,
        };
        // Nobody is there any more: whatever was given is asked for again.
        let _ = self.sender.send(Outgoing {
            response,
            stream: None,
        });
    }

    /// Answers with a body that comes in pieces, so many of which may lie in front of a slow reader. `None`: nobody is there
    /// any more.
    pub fn stream(self, response: Response, pieces_max: usize) -> Option<StreamWriter> {
        let (sender, receiver) = mpsc::channel(pieces_max);
        let outgoing = Outgoing {
            response,
            stream: Some(receiver),
        };
        self.sender.send(outgoing).ok()?;
        Some(StreamWriter { sender })
    }

    /// The client went away, or does not wait any more.
    pub fn is_gone(&self) -> bool {
        self.sender.is_closed()
    }
}

/// The writing end of an answer without end.
pub struct StreamWriter {
    sender: mpsc::Sender<Piece>,
}

impl StreamWriter {
    /// `false`: the client is gone, or reads so slowly that it is let go.
    pub fn write(&self, piece: Bytes) -> bool {
        self.sender.try_send(Ok(piece)).is_ok()
    }

    /// Waits until there is room. `false`: the client is gone.
    pub fn write_patiently(&self, piece: Bytes) -> bool {
        self.sender.blocking_send(Ok(piece)).is_ok()
    }

    /// Ends the answer in a way that no client takes for its end.
    pub fn break_off(self) {
        let broken = io::Error::other("broken off");
        // A client that is gone needs no telling.
        let _ = self.sender.blocking_send(Err(broken));
    }

    /// How many pieces it takes without being let go.
    pub fn room(&self) -> usize {
        self.sender.capacity()
    }

    pub fn is_gone(&self) -> bool {
        self.sender.is_closed()
    }
}

/// The listening side of the server.
pub struct Front {
    pub address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone)]
struct Desk {
    door: Arc<Door>,
    limits: Limits,
    rooms: Rooms,
    /// Memory for long answers that are not read yet.
    answers: AnswerRooms,
    /// Handshakes go one after the other, see `greet`.
    greeting: Arc<Semaphore>,
    /// `None`: it speaks plain HTTP.
    identity: Option<Arc<Identity>>,
    stopping: watch::Receiver<bool>,
}

/// Bytes of bodies that may still come. Each kind of sender has a share that nobody else can take: above all, whoever is not let in
/// cannot take that of workers.
#[derive(Clone)]
struct Rooms {
    workers: ByteRoom,
    people: ByteRoom,
    hooks: ByteRoom,
    strangers: ByteRoom,
}

/// Memory that callers share.
#[derive(Clone)]
struct ByteRoom {
    /// All of it, taken or not.
    bytes: usize,
    free: Arc<Semaphore>,
}

impl ByteRoom {
    fn new(bytes: usize) -> ByteRoom {
        ByteRoom {
            bytes,
            free: Arc::new(Semaphore::new(bytes)),
        }
    }
}

/// What the body of one request takes of the room for all of them, and of its caller's share. It is given back when it is dropped.
struct HeldRoom {
    taken: Option<OwnedSemaphorePermit>,
    share: Option<HeldShare>,
}

impl Rooms {
    fn new(bytes_max: usize) -> Rooms {
        let share = |part: usize| ByteRoom::new(bytes_max / part);
        Rooms {
            workers: share(2),
            people: share(4),
            hooks: share(8),
            strangers: share(8),
        }
    }

    fn of(&self, access: Access) -> &ByteRoom {
        match access {
            Access::Workers => &self.workers,
            Access::People(_) | Access::Pages(_) => &self.people,
            Access::Signed => &self.hooks,
            Access::Everyone | Access::Public | Access::Enrolment => &self.strangers,
        }
    }
}

impl Front {
    pub fn start(
        socket: TcpSocket,
        door: Arc<Door>,
        identity: Option<Arc<Identity>>,
        limits: Limits,
    ) -> io::Result<Front> {
        let limits = limits.within(connections_at_hand());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let listener = runtime.block_on(async { socket.listen(BACKLOG) })?;
        let address = listener.local_addr()?;
        let (stop, stopping) = watch::channel(false);
        let desk = Desk {
            door,
            limits,
            rooms: Rooms::new(limits.bodies_bytes_max),
            answers: AnswerRooms::new(limits.answers_bytes_max),
            greeting: Arc::new(Semaphore::new(1)),
            identity,
            stopping,
        };
        let thread = spawn_essential("http", move || run(&runtime, listener, &desk))?;
        Ok(Front {
            address,
            stop,
            thread: Some(thread),
        })
    }

    /// Takes no new connections; what has been asked is still answered.
    pub fn close(&self) {
        self.stop.send_replace(true);
    }

    /// Closes, and ends when all is answered, at the latest after `STOP_MAX`.
    pub fn stop(&mut self) {
        self.close();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the http thread met a bug while it stopped");
        }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Limits {
    /// With fewer connections the shares of each address are as much smaller.
    fn within(self, connections_max: usize) -> Limits {
        let all = self.connections_max.min(connections_max);
        let share = |of: usize| (of * all / self.connections_max.max(1)).max(1);
        Limits {
            connections_max: all,
            connections_per_address_max: share(self.connections_per_address_max),
            strangers_per_address_max: share(self.strangers_per_address_max),
            ..self
        }
    }
}

/// As many connections as there are descriptors, with some left for logs and the database: without those nobody is served.
fn connections_at_hand() -> usize {
    const KEPT_BACK: u64 = 256;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit - KEPT_BACK.min(limit / 2)).unwrap_or(usize::MAX)
}

/// How long requests that are under way may take once the server stops.
const STOP_MAX: Duration = Duration::from_secs(10);

/// Takes the address. Clients are refused until the socket listens.
pub fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

fn run(runtime: &Runtime, listener: TcpListener, desk: &Desk) {
    let limits = &desk.limits;
    let places = Arc::new(Places::new(PlaceLimits {
        all_max: limits.connections_max,
        per_address_max: limits.connections_per_address_max,
        strangers_max: limits.strangers_per_address_max,
    }));
    // Every connection has an end of it: when none is left, it is closed.
    let (present, mut nobody) = mpsc::channel::<Infallible>(1);
    runtime.block_on(async {
        accept(&listener, desk, &places, &present).await;
        // Whoever comes now is refused at once, instead of waiting for nobody.
        drop((listener, present));
        // Whoever is still connected after that is cut off.
        let _ = timeout(STOP_MAX, nobody.recv()).await;
    });
}

async fn accept(
    listener: &TcpListener,
    desk: &Desk,
    places: &Arc<Places>,
    present: &mpsc::Sender<Infallible>,
) {
    /// Out of descriptors: those in use are given back by and by.
    const PAUSE: Duration = Duration::from_millis(100);
    /// Connections that are accepted in a row.
    const HEARD_AFTER: usize = 16;
    let mut stopping = desk.stopping.clone();
    let mut came: usize = 0;
    loop {
        let accepted = tokio::select! {
            _ = stopping.changed() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok((stream, peer)) => (stream, peer.ip().to_canonical()),
            Err(error) => {
                log::warn!("a connection could not be accepted: {error}");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let (let_go, leave) = oneshot::channel();
        let let_go = move || {
            // It went by itself.
            let _ = let_go.send(());
        };
        // One too many: closed at once, which clients take for a reason to come back later.
        let Some(place) = places.take(peer, let_go) else {
            continue;
        };
        let caller = Caller { peer, place, leave };
        let (desk, present) = (desk.clone(), present.clone());
        tokio::spawn(async move {
            let panics = desk.door.panics.clone();
            // `None`: a bug outside of any request, for example in the handshake. It is logged and counted, and the connection ends.
            let _: Option<()> =
                catch_panic("a connection", converse(stream, caller, desk), &panics).await;
            drop(present);
        });
        // Who has come is heard before many others may take the place.
        came += 1;
        if came.is_multiple_of(HEARD_AFTER) {
            tokio::task::yield_now().await;
        }
    }
}

/// Who is at the other end of a connection.
struct Caller {
    peer: IpAddr,
    place: Arc<Place>,
    /// Somebody else needs the place.
    leave: oneshot::Receiver<()>,
}

async fn converse(stream: TcpStream, mut caller: Caller, desk: Desk) {
    // Small answers must not wait for more; whoever does not read must not hold a place, a thread or a log for ever.
    let unread_max_ms = u32::try_from(desk.limits.unread_max.as_millis()).unwrap_or(u32::MAX);
    if stream.set_nodelay(true).is_err() || set_tcp_user_timeout(&stream, unread_max_ms).is_err() {
        return;
    }
    let Some(identity) = &desk.identity else {
        return talk(stream, caller, desk).await;
    };
    let mut stopping = desk.stopping.clone();
    let greeted = timeout(
        desk.limits.header_timeout,
        greet(stream, identity, &desk.greeting),
    );
    let greeted = tokio::select! {
        greeted = greeted => greeted,
        _ = stopping.changed() => return,
        _ = &mut caller.leave => return,
    };
    // Whatever was wrong with the handshake, or if it took too long: there is nobody to speak to.
    if let Ok(Some(stream)) = greeted {
        talk(stream, caller, desk).await;
    }
}

/// The handshake of TLS. `None`: it came to nothing.
///
/// To sign takes the thread milliseconds, of a long RSA key. So who comes is signed for one after the other, and between two of them
/// those are heard who are there already.
async fn greet(
    mut stream: TcpStream,
    identity: &Identity,
    greeting: &Semaphore,
) -> Option<TlsStream<TcpStream>> {
    /// What every greeting of TLS begins with.
    const HANDSHAKE: u8 = 0x16;
    let mut first = [0];
    // Nobody speaks: closed again.
    if stream.peek(&mut first).await.ok()? == 0 {
        return None;
    }
    if first[0].is_ascii_uppercase() {
        refuse_plain(&mut stream).await;
        return None;
    }
    if first[0] != HANDSHAKE {
        return None;
    }
    let hello = LazyConfigAcceptor::new(Acceptor::default(), stream);
    let hello = hello.await.ok()?;
    let turn = greeting.acquire().await.ok()?;
    let answer = hello.into_stream(identity.config());
    tokio::task::yield_now().await;
    // Whoever says no more keeps nobody waiting.
    drop(turn);
    answer.await.ok()
}

/// Whoever speaks plain HTTP is told in words that they understand.
async fn refuse_plain(stream: &mut TcpStream) {
    let message = "this port speaks https: write https:// instead of http:// in the address";
    let response = Response::error(400, "https_only", message, Vec::new());
    let head = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: {}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        response.content_type,
        response.body.len()
    );
    let answer = [head.as_bytes(), &response.body].concat();
    let mut unread = vec![0; HEAD_BYTES_MAX];
    // What is left unread would make the kernel drop the answer. One who is gone needs none.
    let _ = stream.read(&mut unread).await;
    let _ = stream.write_all(&answer).await;
    let _ = stream.shutdown().await;
    // Until they have hung up too, or the time is over that every handshake has.
    while stream.read(&mut unread).await.is_ok_and(|bytes| bytes > 0) {}
}

async fn talk<Io>(stream: Io, caller: Caller, desk: Desk)
where
    Io: AsyncRead + AsyncWrite + Unpin,
{
    /// To say goodbye: TLS has a word for it, without which what was said last could have been cut off by anybody.
    const GOODBYE_MAX: Duration = Duration::from_secs(1);
    let Caller {
        peer,
        place,
        mut leave,
    } = caller;
    let mut stopping = desk.stopping.clone();
    let header_timeout = desk.limits.header_timeout;
    let service = service_fn(move |request| {
        let (desk, place) = (desk.clone(), place.clone());
        // A connection that can be taken apart at its end holds what can be moved.
        Box::pin(async move {
            let served = catch_panic(
                "a request",
                serve(request, peer, &place, &desk),
                &desk.door.panics,
            )
            .await;
            Ok::<_, Infallible>(served.unwrap_or_else(|| Outgoing::from(fault()).into_hyper(None)))
        })
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        // The library keeps its date until the clock is past it, so a clock that was set back would show the wrong one for years.
        .auto_date_header(false)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX);
    let stream = StrictStream::new(stream);
    let mut connection = builder.serve_connection(TokioIo::new(stream), service);
    let is_stopping = tokio::select! {
        // Whatever was wrong with the connection, it is over.
        _ = poll_fn(|context| connection.poll_without_shutdown(context)) => false,
        _ = &mut leave => false,
        _ = stopping.changed() => true,
    };
    if is_stopping {
        Pin::new(&mut connection).graceful_shutdown();
        tokio::select! {
            _ = poll_fn(|context| connection.poll_without_shutdown(context)) => {}
            _ = leave => {}
        }
    }
    let mut stream = connection.into_parts().io.into_inner();
    // One who has gone hears no goodbye.
    let _ = timeout(GOODBYE_MAX, stream.shutdown()).await;
}

/// A connection whose bytes are looked at before the library reads them, see `framing.rs`.
struct StrictStream<Io> {
    io: Io,
    framing: Framing,
    /// What the library is still to read instead of a head that is refused.
    refusal: &'static [u8],
}

/// No head may hold such a byte, so the library answers 400. It looks at a head that came in pieces only when it is complete.
const REFUSED_HEAD: &[u8] = b"\0\r\n\r\n";

impl<Io> StrictStream<Io> {
    fn new(io: Io) -> StrictStream<Io> {
        StrictStream {
            io,
            framing: Framing::new(),
            refusal: b"",
        }
    }

    /// Nothing that the client sends after a violation is read.
    fn read_refusal(&mut self, buffer: &mut ReadBuf<'_>) -> io::Result<()> {
        if self.refusal.is_empty() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let bytes = self.refusal.len().min(buffer.remaining());
        let (now, later) = self.refusal.split_at(bytes);
        buffer.put_slice(now);
        self.refusal = later;
        Ok(())
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for StrictStream<Io> {
    /// What comes before a violation is read as usual. A violation in a head becomes a head that the library answers with 400 in its
    /// turn, behind the answers to earlier requests, before it closes the connection. A violation in a body ends the body with an
    /// error, which is answered with 400 by whoever reads the body.
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.framing.is_broken() {
            return Poll::Ready(self.read_refusal(buffer));
        }
        let before = buffer.filled().len();
        std::task::ready!(Pin::new(&mut self.io).poll_read(context, buffer))?;
        if let Some(violation) = self.framing.read(&buffer.filled()[before..]) {
            buffer.set_filled(before + violation.at);
            if violation.in_head {
                self.refusal = REFUSED_HEAD;
            }
            if violation.at == 0 || violation.in_head {
                return Poll::Ready(self.read_refusal(buffer));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for StrictStream<Io> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

async fn serve(
    request: hyper::Request<Incoming>,
    peer: IpAddr,
    place: &Arc<Place>,
    desk: &Desk,
) -> hyper::Response<OutBody> {
    let is_named = request
        .headers()
        .get("host")
        .is_some_and(|host| !is_localhost(host.as_bytes()));
    let watch = Stopwatch::start();
    let mut route = None;
    let (outgoing, busy) = match read(request, peer, desk, &mut route).await {
        Ok(received) => {
            let busy = (received.route.access.is_checked()).then(|| place.busy());
            (hand_over(received, desk).await, busy)
        }
        Err(refused) => (refused.into(), None),
    };
    let status = outgoing.response.status;
    desk.door.meter.count(route, status, watch.secs());
    let mut response = outgoing.into_hyper(busy);
    if is_named && desk.identity.is_some() {
        let value = hyper::header::HeaderValue::from_static(ONLY_BY_TLS);
        response
            .headers_mut()
            .insert("strict-transport-security", value);
    }
    if route.is_some_and(|route| route.access.is_for_workers()) {
        let peer = Peer::of_this_version(Features::OF_SERVER);
        let epoch = desk.door.epoch();
        for (name, value) in [
            (PROTOCOL_HEADER, peer.to_string()),
            (LINEAGE_HEADER, epoch.to_string()),
        ] {
            let value = hyper::header::HeaderValue::try_from(value).expect("it is plain text");
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// A browser that learnt it for this name would reach nothing else on its own machine.
fn is_localhost(host: &[u8]) -> bool {
    const NAME: &[u8] = b"localhost";
    let (name, port) = host.split_at(host.len().min(NAME.len()));
    name.eq_ignore_ascii_case(NAME) && matches!(port.first(), None | Some(b':'))
}

async fn hand_over(received: Received, desk: &Desk) -> Outgoing {
    let (sender, receiver) = oneshot::channel();
    let Received {
        request,
        route,
        room,
    } = received;
    let door = &desk.door;
    let budget = match route.access {
        Access::Workers => None,
        access => Some(desk.answers.budget(
            !access.is_checked(),
            !request.method.is_safe(),
            door.share_owner(route, &request),
            &door.shares,
        )),
    };
    let exchange = Exchange {
        request,
        route,
        answer: Answer { sender, budget },
        _room: room,
    };
    match desk.door.put(exchange) {
        Ok(()) => {}
        Err(NotQueued::Full) => return busy().into(),
        Err(NotQueued::OverShare { owner, queued_max }) => {
            return desk.door.over_queue_share(owner, queued_max).into();
        }
        Err(NotQueued::Closed) => return stopping(),
    }
    match receiver.await {
        Ok(outgoing) => outgoing,
        Err(_) if *desk.stopping.borrow() => stopping(),
        Err(_) => fault().into(),
    }
}

fn fault() -> Response {
    let message = "internal error: the server hit a bug; see the server log";
    Response::error(500, "internal", message, Vec::new())
}

/// Awaits the future of one item, which `item` names in the log. Returns `None` if the future panicked; the panic is logged and
/// counted.
async fn catch_panic<T>(
    item: &str,
    future: impl Future<Output = T>,
    panics: &PanicCounts,
) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(
        |context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(poll) => poll.map(Some),
            Err(panic) => {
                panics.add(PanicPlace::Request);
                let cause = panic_text(&*panic);
                log::error!("{item} met a bug in the server and is skipped: {cause}");
                Poll::Ready(None)
            }
        },
    )
    .await
}

fn stopping() -> Outgoing {
    let message = "the server is stopping, try again";
    let response = Response::error(503, "stopping", message, Vec::new());
    response.header("retry-after", "1").into()
}

fn busy() -> Response {
    ApiError::busy().response()
}

/// A request that is there as a whole.
struct Received {
    request: Request,
    route: &'static Route,
    room: HeldRoom,
}

/// `asked`: the route, as soon as it is known, whether the caller may use it or not.
async fn read(
    request: hyper::Request<Incoming>,
    peer: IpAddr,
    desk: &Desk,
    asked: &mut Option<&'static Route>,
) -> Result<Received, Response> {
    let limits = &desk.limits;
    let refuse = |status, code, message: &str| Response::error(status, code, message, Vec::new());
    let (head, body) = request.into_parts();
    let method = match head.method {
        hyper::Method::GET => Method::Get,
        // The library keeps the body of its answer back.
        hyper::Method::HEAD => Method::Head,
        hyper::Method::POST => Method::Post,
        hyper::Method::PUT => Method::Put,
        hyper::Method::DELETE => Method::Delete,
        _ => Method::Other,
    };
    let uri = head.uri.path_and_query().map_or("", |whole| whole.as_str());
    if uri.len() > PATH_BYTES_MAX {
        let message = format!("the address is longer than {PATH_BYTES_MAX} bytes");
        return Err(refuse(414, "uri_too_long", &message));
    }
    let lines = head.headers.iter();
    let header_bytes: usize = lines
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum();
    if header_bytes > HEADER_BYTES_MAX {
        let message = format!("the headers are longer than {HEADER_BYTES_MAX} bytes");
        return Err(refuse(431, "headers_too_large", &message));
    }
    if head.headers.contains_key("content-encoding") {
        let message = "send the body as it is, without a content encoding";
        return Err(refuse(415, "unsupported_media_type", message));
    }
    let path = decode_path(head.uri.path());
    let path = path.ok_or_else(|| refuse(404, NO_ROUTE, "there is nothing at this address"))?;
    let query = decode_query(head.uri.query().unwrap_or_default());
    let query = query.ok_or_else(|| refuse(400, "bad_request", "the query is not text"))?;
    // What is there and cannot be read must not pass for absent.
    let text = |name: &str| {
        let mut values = head.headers.get_all(name).iter();
        match (values.next().map(|value| value.to_str()), values.next()) {
            (None, _) => Ok(None),
            (Some(Ok(value)), None) => Ok(Some(value.to_string())),
            (Some(_), more) => {
                let message = match more {
                    Some(_) => format!("the header {name} is there more than once"),
                    None => format!("the header {name} is not one line of plain text"),
                };
                Err(refuse(400, "bad_request", &message))
            }
        }
    };
    let mut headers = Headers {
        peer,
        authorization: text("authorization")?,
        content_type: text("content-type")?,
        idempotency_key: text("idempotency-key")?,
        accept: joined(&head.headers, "accept", ", "),
        accept_encoding: joined(&head.headers, "accept-encoding", ", "),
        last_event_id: text("last-event-id")?,
        host: text("host")?,
        fetch_site: text("sec-fetch-site")?,
        fetch_mode: text("sec-fetch-mode")?,
        origin: text("origin")?,
        referer: joined(&head.headers, "referer", ", "),
        cookie: joined(&head.headers, "cookie", "; "),
        lineage: text(LINEAGE_HEADER)?,
        protocol: text(PROTOCOL_HEADER)?,
        all: Vec::new(),
    };
    if headers.host.is_none() && head.version == hyper::Version::HTTP_11 {
        return Err(refuse(400, "bad_request", "the request names no host"));
    }
    // A whole address in the request line names a host as well. Which of two is meant, readers in between may decide differently.
    if let (Some(authority), Some(_)) = (head.uri.authority(), head.uri.scheme())
        && !(headers.host.as_deref())
            .is_some_and(|host| host.eq_ignore_ascii_case(authority.as_str()))
    {
        let message = "the address and the header host name different hosts";
        return Err(refuse(400, "bad_request", message));
    }
    let Admitted {
        route,
        params,
        caller,
        announced,
    } = match desk.door.admit(method, &path, uri, &headers) {
        Ok(admitted) => admitted,
        Err(refused) => {
            *asked = routes::find(method, &path).ok().map(|(route, _)| route);
            swallow(body, limits);
            return Err(refused);
        }
    };
    *asked = Some(route);
    let bytes_max = match route.access {
        Access::Workers => limits.worker_bytes_max,
        Access::Signed | Access::People(_) | Access::Pages(_) => limits.body_bytes_max,
        Access::Everyone | Access::Public | Access::Enrolment => limits.stranger_bytes_max,
    };
    if route.access == Access::Signed {
        headers.all = all_headers(&head.headers);
    }
    let owner = match route.access {
        Access::Everyone | Access::Workers => None,
        _ => desk.door.share_owner_of(&caller, peer),
    };
    let body = read_body(body, bytes_max, desk.rooms.of(route.access), owner, desk);
    let Ok(body) = timeout(limits.body_timeout, body).await else {
        return Err(refuse(408, "timeout", "the body took too long to arrive"));
    };
    let (body, room) = body?;
    let request = Request {
        method,
        query,
        headers,
        body,
        params,
        caller,
        announced,
    };
    Ok(Received {
        request,
        route,
        room,
    })
}

/// The body, and what it takes of the room.
async fn read_body(
    mut body: Incoming,
    bytes_max: usize,
    room: &ByteRoom,
    owner: Option<ShareOwner>,
    desk: &Desk,
) -> Result<(Bytes, HeldRoom), Response> {
    let (limits, shares) = (&desk.limits, &desk.door.shares);
    let too_large = || {
        let message = format!("the body is larger than {bytes_max} bytes");
        Response::error(413, "too_large", &message, Vec::new())
    };
    if body.size_hint().lower() > bytes_max as u64 {
        swallow(body, limits);
        return Err(too_large());
    }
    let announced = body.size_hint().lower() as usize;
    let mut whole = BytesMut::new();
    let mut held = HeldRoom {
        taken: None,
        share: shares.begin_body(owner),
    };
    loop {
        let frame = match timeout(limits.body_pause_max, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(None) => return Ok((whole.freeze(), held)),
            Ok(Some(Err(_))) => {
                let message = "the request body could not be read: the connection ended early, or a chunk is malformed";
                return Err(Response::error(400, "bad_request", message, Vec::new()));
            }
            Err(_) => {
                let message = "the body took too long to arrive";
                return Err(Response::error(408, "timeout", message, Vec::new()));
            }
        };
        let Ok(piece) = frame.into_data() else {
            continue;
        };
        if whole.len() + piece.len() > bytes_max {
            swallow(body, limits);
            return Err(too_large());
        }
        let more = piece.len();
        let grown = shares.grow(
            Limit::BodyBytes,
            &mut held.share,
            more,
            room.bytes,
            bytes_max,
        );
        if let Err(over_share) = grown {
            swallow(body, limits);
            return Err(over_share.response());
        }
        let Ok(taken) = room.free.clone().try_acquire_many_owned(more as u32) else {
            swallow(body, limits);
            return Err(busy());
        };
        match &mut held.taken {
            None => held.taken = Some(taken),
            Some(held) => held.merge(taken),
        }
        if whole.is_empty() && body.is_end_stream() {
            return Ok((piece, held));
        }
        if whole.is_empty() {
            // Growing step by step would copy a long body several times.
            whole.reserve(announced.min(BODY_BYTES_AT_ONCE));
        }
        whole.extend_from_slice(&piece);
    }
}

/// What may stand in several lines.
fn joined(headers: &hyper::HeaderMap, name: &str, between: &str) -> Option<String> {
    let lines = headers.get_all(name).iter();
    let lines: Vec<&str> = lines.filter_map(|line| line.to_str().ok()).collect();
    (!lines.is_empty()).then(|| lines.join(between))
}

/// What is no text is shown as far as it is.
fn all_headers(headers: &hyper::HeaderMap) -> Vec<(String, String)> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let lines = headers.iter();
    lines
        .map(|(name, value)| (name.as_str().to_string(), text(value.as_bytes())))
        .collect()
}

/// Takes in what comes after a refusal: a client that is still sending would meet a closed connection before the answer.
fn swallow(mut body: Incoming, limits: &Limits) {
    const BYTES_MAX: usize = 32 << 20;
    if body.is_end_stream() {
        return;
    }
    let Limits {
        body_pause_max,
        body_timeout,
        ..
    } = *limits;
    tokio::spawn(timeout(body_timeout, async move {
        let mut bytes = 0;
        while bytes < BYTES_MAX
            && let Ok(Some(Ok(frame))) = timeout(body_pause_max, body.frame()).await
        {
            bytes += frame.into_data().map_or(0, |piece| piece.len());
        }
    }));
}

/// Taken apart first: a slash that is written as `%2F` belongs to the name that it is in. `None`: an address that nothing of ours can have.
pub fn decode_path(path: &str) -> Option<Vec<String>> {
    let path = path.strip_prefix('/')?;
    if path.is_empty() {
        return Some(Vec::new());
    }
    let segments = path.split('/').map(|segment| {
        let segment = decode(segment, false)?;
        let is_odd = segment.is_empty() || segment == "." || segment == "..";
        (!is_odd && !segment.contains('\0')).then_some(segment)
    });
    segments.collect()
}

/// `None`: not text once it is decoded.
pub fn decode_query(query: &str) -> Option<Vec<(String, String)>> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let decoded = pairs.map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decode(key, true)?, decode(value, true)?))
    });
    decoded.collect()
}

/// `None`: not text once it is decoded.
fn decode(text: &str, plus_is_space: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let high = char::from(rest.next()?).to_digit(16)?;
                let low = char::from(rest.next()?).to_digit(16)?;
                (high * 16 + low) as u8
            }
            b'+' if plus_is_space => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

impl From<Response> for Outgoing {
    fn from(response: Response) -> Outgoing {
        Outgoing {
            response,
            stream: None,
        }
    }
}

impl Outgoing {
    /// `busy`: its connection is, until all of it is sent.
    fn into_hyper(self, busy: Option<Busy>) -> hyper::Response<OutBody> {
        let Response {
            status,
            content_type,
            headers,
            body,
        } = self.response;
        let mut builder = hyper::Response::builder()
            .status(status)
            .header("content-type", content_type)
            .header("date", words::http_date(wall_time()));
        for (name, value) in ALWAYS {
            builder = builder.header(*name, *value);
        }
        if !headers.iter().any(|(name, _)| *name == "cache-control") {
            builder = builder.header("cache-control", "no-store");
        }
        for (name, value) in headers {
            builder = builder.header(name, value);
        }
        let content = match self.stream {
            Some(pieces) => Content::Pieces(pieces),
            None => Content::Whole(Some(body)),
        };
        let body = OutBody {
            content,
            _busy: busy,
        };
        builder.body(body).unwrap_or_else(|error| {
            log::error!("an answer could not be written: {error}");
            let mut response = hyper::Response::new(OutBody {
                content: Content::Whole(None),
                _busy: None,
            });
            *response.status_mut() = hyper::StatusCode::INTERNAL_SERVER_ERROR;
            response
        })
    }
}

struct OutBody {
    content: Content,
    _busy: Option<Busy>,
}

/// What is sent: in one piece, or as it comes.
enum Content {
    Whole(Option<Bytes>),
    Pieces(mpsc::Receiver<Piece>),
}

impl Body for OutBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let piece = match &mut self.content {
            Content::Whole(body) => {
                let whole = body.take().filter(|body| !body.is_empty());
                Poll::Ready(whole.map(Ok))
            }
            Content::Pieces(pieces) => pieces.poll_recv(context),
        };
        piece.map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(body) => {
                SizeHint::with_exact(body.as_ref().map_or(0, |body| body.len() as u64))
            }
            Content::Pieces(_) => SizeHint::default(),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(body) => body.as_ref().is_none_or(Bytes::is_empty),
            Content::Pieces(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_panics_is_counted_and_its_connection_goes_on() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let panics = PanicCounts::default();
        let outcome = runtime.unwrap().block_on(async {
            let fails = catch_panic(
                "a request",
                async {
                    tokio::task::yield_now().await;
                    panic!("a bug");
                },
                &panics,
            );
            let failed: Option<()> = fails.await;
            (failed, catch_panic("a request", async { 7 }, &panics).await)
        });
        assert_eq!(outcome, (None, Some(7)));
        assert_eq!(panics.count(PanicPlace::Request), 1);
        assert_eq!(fault().status, 500);
    }

    #[test]
    fn addresses_are_taken_apart_before_they_are_decoded() {
        let segments = |path: &str| decode_path(path).map(|segments| segments.join("|"));
        assert_eq!(segments("/api/jobs/1"), Some("api|jobs|1".to_string()));
        assert_eq!(segments("/"), Some(String::new()));
        assert_eq!(segments("/a%20b"), Some("a b".to_string()));
        assert_eq!(segments("/api%2fjobs/1"), Some("api/jobs|1".to_string()));
        assert_eq!(segments("/a%2F..%2Fb"), Some("a/../b".to_string()));
        // Once is enough.
        assert_eq!(segments("/a%252Fb"), Some("a%2Fb".to_string()));
        for odd in [
            "//api/jobs",
            "/api/./jobs",
            "/api/../jobs",
            "/api/%2e%2e/jobs",
            "/api/jobs/1%00",
            "/api/jobs/",
            "/%ff",
            "/%4",
        ] {
            assert_eq!(segments(odd), None, "{odd}");
        }
    }

    #[test]
    fn queries_are_decoded_pair_by_pair() {
        assert_eq!(decode_query("q=%ff"), None);
        let pairs = decode_query("q=a+b%26c&&flag&x=1=2").unwrap();
        let pairs: Vec<(&str, &str)> =
            (pairs.iter().map(|(k, v)| (k.as_str(), v.as_str()))).collect();
        assert_eq!(pairs, [("q", "a b&c"), ("flag", ""), ("x", "1=2")]);
    }
}
