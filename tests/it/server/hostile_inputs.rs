//! One table of what nobody who means well sends. Whatever it is: the server answers as it is written here, within its time, with
//! no fault of its own; nothing is made or lost by it; and the next one is served.

use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

const SHORT: Duration = Duration::from_millis(300);
const TOKEN: &str = "a-token-that-nobody-guesses-0123456789";
const HELLO: &str = "/api/tasks/hello/jobs";

/// Whom it is sent to.
#[derive(Clone, Copy, PartialEq)]
enum To {
    /// A server on this machine, with a step that runs and a worker that has it.
    Open,
    /// One that wants a token.
    Guarded,
}

struct Input {
    name: String,
    to: To,
    sent: Vec<u8>,
    /// What may be answered; 0: it is hung up without a word.
    answers: &'static [u16],
    /// Stands in the answer.
    says: &'static str,
    /// It is written down that this was said, and nothing else.
    is_recorded: bool,
}

/// What a house has, row by row.
type Rows = Vec<(&'static str, i64)>;

fn rows(house: &ServerHouse) -> Rows {
    let tables = [
        "job",
        "step",
        "event",
        "worker",
        "session",
        "former_attempt",
        "outbox",
        "idempotency",
        "schedule",
        "definition",
    ];
    let sql = rusqlite::Connection::open(house.database()).unwrap();
    let mut rows: Rows = (tables.iter())
        .map(|table| {
            let count = format!("SELECT count(*) FROM {table}");
            (*table, sql.query_row(&count, [], |row| row.get(0)).unwrap())
        })
        .collect();
    let running = "SELECT count(*) FROM step WHERE state = 'running'";
    rows.push((
        "running",
        sql.query_row(running, [], |row| row.get(0)).unwrap(),
    ));
    rows
}

/// Panics of threads that are the server's.
fn panics() -> usize {
    static WATCH: Once = Once::new();
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    WATCH.call_once(|| {
        let former = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |told| {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or_default();
            let servers = [
                "http",
                "workers-",
                "people-",
                "checks-",
                "searches-",
                "waiting-",
                "assignments",
                "event-streams",
                "writer",
                "answers",
                "sweeper",
            ];
            if servers.iter().any(|begin| name.starts_with(begin)) {
                PANICS.fetch_add(1, Ordering::SeqCst);
            }
            former(told);
        }));
    });
    PANICS.load(Ordering::SeqCst)
}

/// What is sent, as a request that ends its connection.
fn request(method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n"
    );
    [head.as_bytes(), body].concat()
}

struct Table(Vec<Input>);

impl Table {
    fn raw(&mut self, name: &str, sent: impl AsRef<[u8]>, answers: &'static [u16]) {
        self.0.push(Input {
            name: name.to_string(),
            to: To::Open,
            sent: sent.as_ref().to_vec(),
            answers,
            says: "",
            is_recorded: false,
        });
    }

    fn get(&mut self, name: &str, path: &str, answers: &'static [u16]) {
        self.raw(name, request("GET", path, "", b""), answers);
    }

    fn post(&mut self, name: &str, path: &str, body: impl AsRef<[u8]>, answers: &'static [u16]) {
        let headers = "content-type: application/json\r\n";
        self.raw(name, request("POST", path, headers, body.as_ref()), answers);
    }

    /// Something that is submitted.
    fn submit(&mut self, name: &str, body: impl AsRef<[u8]>, answers: &'static [u16]) {
        self.post(name, HELLO, body, answers);
    }

    /// To the server that wants a token.
    fn guarded(&mut self, name: &str, method: &str, path: &str, headers: &str) {
        self.raw(name, request(method, path, headers, b""), &[401]);
        self.0.last_mut().unwrap().to = To::Guarded;
    }

    /// A workflow file that somebody has looked at.
    fn workflow(&mut self, name: &str, text: &str, says: &'static str) {
        let body = json!({ "files": [{ "path": "a.yaml", "text": text }] });
        self.post(name, "/api/validate", body.to_string(), &[200]);
        self.0.last_mut().unwrap().says = says;
    }

    fn saying(&mut self, says: &'static str) {
        self.0.last_mut().unwrap().says = says;
    }
}

/// Without a token, or with one that is none.
#[rustfmt::skip]
fn of_strangers(table: &mut Table) {
    for (name, method, path) in [
        ("no token, a list", "GET", "/api/jobs"),
        ("no token, a submission", "POST", HELLO),
        ("no token, a poll", "POST", "/api/worker/poll"),
        ("no token, a log of a step", "PUT", "/api/worker/steps/1/attempts/1/log"),
        ("no token, an address that does not exist", "GET", "/api/nothing"),
        ("no token, an address that ends as a free one", "GET", "/api/jobs/healthz"),
        ("no token, an address that begins as a free one", "GET", "/healthz/../api/jobs"),
        ("no token, a method that does not exist", "BREW", "/api/jobs"),
        ("a token in the query", "GET", "/api/jobs?token=a-token-that-nobody-guesses-0123456789"),
    ] {
        table.guarded(name, method, path, "");
    }
    // What is odd names nothing, before anybody asks who wants it.
    table
        .0
        .iter_mut()
        .filter(|input| input.name.contains("begins as"))
        .for_each(|input| input.answers = &[404]);
    let stream = "accept: text/event-stream\r\n";
    table.guarded("no token, a stream", "GET", "/api/events", stream);
    for (name, value) in [
        ("a token without a letter", format!("Bearer {}", &TOKEN[1..])),
        ("a token with a letter more", format!("Bearer {TOKEN}x")),
        ("a token in another case", format!("Bearer {}", TOKEN.to_uppercase())),
        ("a token without its scheme", TOKEN.to_string()),
        ("a token as a password", "Basic YTphLXRva2Vu".to_string()),
        ("an empty token", "Bearer ".to_string()),
    ] {
        table.guarded(
            name,
            "GET",
            "/api/jobs",
            &format!("authorization: {value}\r\n"),
        );
    }
    let forwarded =
        "x-forwarded-for: 127.0.0.1\r\nx-real-ip: 127.0.0.1\r\nforwarded: for=127.0.0.1\r\n";
    table.guarded("a claim to come from here", "GET", "/api/jobs", forwarded);
    let original = "x-original-url: /healthz\r\nx-rewrite-url: /healthz\r\n";
    table.guarded(
        "a claim to ask for something free",
        "GET",
        "/api/jobs",
        original,
    );
    table.guarded(
        "a cookie that somebody made up",
        "POST",
        HELLO,
        "cookie: stepward_session=a.1.2.3\r\n",
    );
}

/// Browsers that were led here.
#[rustfmt::skip]
fn of_browsers(table: &mut Table) {
    let with_host =
        |host: &str| format!("GET /api/jobs HTTP/1.1\r\n{host}connection: close\r\n\r\n");
    table.raw(
        "a host that is not ours",
        with_host("host: evil.example\r\n"),
        &[421],
    );
    table.raw(
        "a host that begins as ours",
        with_host("host: localhost.evil.example\r\n"),
        &[421],
    );
    table.raw(
        "two hosts",
        with_host("host: localhost\r\nhost: evil.example\r\n"),
        &[400],
    );
    table.raw(
        "a host with a path in it",
        with_host("host: localhost/@evil.example\r\n"),
        &[400, 421],
    );
    for (name, headers) in [
        ("a form of another site", "origin: https://evil.example\r\ncontent-type: text/plain\r\n"),
        ("a request of a page from nowhere", "origin: null\r\n"),
        ("a fetch of another site", "sec-fetch-site: cross-site\r\nsec-fetch-mode: no-cors\r\n"),
    ] {
        table.raw(name, request("POST", HELLO, headers, b"{}"), &[403]);
    }
    let text = request("POST", HELLO, "content-type: text/plain\r\n", b"{}");
    table.raw("JSON that calls itself text", text, &[415]);
    let form = request(
        "POST",
        "/tasks/hello/run",
        "content-type: application/x-www-form-urlencoded\r\n",
        b"page=x&once=y",
    );
    table.raw("a form that no page of ours made", form, &[403]);
    let asked = request(
        "OPTIONS",
        HELLO,
        "origin: https://evil.example\r\naccess-control-request-method: POST\r\n",
        b"",
    );
    table.raw("a browser that asks for another site", asked, &[403, 405]);
}

/// What is no request, or two in one.
#[rustfmt::skip]
fn of_bytes(table: &mut Table) {
    let post = format!("POST {HELLO} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    for (name, rest) in [
        ("two lengths", "content-length: 2\r\ncontent-length: 3\r\n\r\n{} "),
        ("a length below nothing", "content-length: -2\r\n\r\n{}"),
        ("a length that is no number", "content-length: 0x2\r\n\r\n{}"),
        ("a length without end", "content-length: 99999999999999999999\r\n\r\n{}"),
        ("chunks that are not the last word", "transfer-encoding: chunked, identity\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
        ("a space before the colon", "transfer-encoding : chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
        ("a header that goes on in the next line", "x-a: b\r\n c: d\r\ncontent-length: 2\r\n\r\n{}"),
        ("a header without a name", ": x\r\ncontent-length: 2\r\n\r\n{}"),
        ("a NUL in a header", "x-a: b\0c\r\ncontent-length: 2\r\n\r\n{}"),
        ("a lone CR in a header", "x-a: b\rc\r\ncontent-length: 2\r\n\r\n{}"),
    ] {
        table.raw(name, format!("{post}{rest}"), &[0, 400]);
    }
    // So much would be too much when it came; it does not come.
    let world = format!("{post}transfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n{{}}");
    table.raw("a chunk as large as the world", world, &[400, 408, 413]);
    table.raw(
        "a method of 10,000 letters",
        format!("{} / HTTP/1.1\r\n\r\n", "X".repeat(10_000)),
        &[0, 400, 405, 414, 421, 431],
    );
    table.raw("no host", "GET /api/jobs HTTP/1.1\r\n\r\n", &[400]);
    table.raw("HTTP/0.9", "GET /api/jobs\r\n\r\n", &[0, 400]);
    table.raw(
        "HTTP/2 without having asked",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        &[0, 400, 505],
    );
    table.raw(
        "HTTP/9.9",
        "GET /api/jobs HTTP/9.9\r\nhost: localhost\r\n\r\n",
        &[0, 400, 505],
    );
    table.raw(
        "a greeting of TLS",
        [
            0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03,
        ],
        &[0, 400],
    );
    table.raw("nothing but line ends", "\r\n".repeat(1_000), &[0, 400]);
    table.raw(
        "bytes of chance",
        (0..4_096u32)
            .map(|n| (n * 193 + 7) as u8)
            .collect::<Vec<u8>>(),
        &[0, 400],
    );
    table.raw(
        "no text in an address",
        b"GET /api/jobs/\xff\xfe HTTP/1.1\r\nhost: localhost\r\n\r\n",
        &[0, 400, 404],
    );
    table.raw(
        "another machine's address",
        request("GET", "http://evil.example/api/jobs", "", b""),
        &[200, 400, 404, 421],
    );
    table.raw(
        "a way through",
        "CONNECT evil.example:443 HTTP/1.1\r\nhost: evil.example:443\r\n\r\n",
        &[0, 400, 404, 405, 421],
    );
    let long = format!("x-long: {}\r\n", "x".repeat(100_000));
    table.raw(
        "a header of 100,000 bytes",
        request("GET", "/api/jobs", &long, b""),
        &[431],
    );
    let long = format!("x-long: {}\r\n", "x".repeat(17_000));
    table.raw(
        "a header of 17,000 bytes",
        request("GET", "/api/jobs", &long, b""),
        &[431],
    );
    let many: String = (0..1_000).map(|n| format!("x-{n}: {n}\r\n")).collect();
    table.raw(
        "a thousand headers",
        request("GET", "/api/jobs", &many, b""),
        &[431],
    );
    table.get(
        "an address of 10,000 bytes",
        &format!("/{}", "x".repeat(10_000)),
        &[414],
    );
    table.get(
        "an address of a million bytes",
        &format!("/{}", "x".repeat(1 << 20)),
        &[414, 431],
    );
    table.raw(
        "a body of ten gigabytes, announced",
        format!("{post}content-length: 10737418240\r\n\r\n"),
        &[413],
    );
    table.raw(
        "a body that does not come",
        format!("{post}content-length: 10\r\n\r\n{{"),
        &[408],
    );
    table.raw(
        "a head that does not come",
        "GET /api/jobs HTTP/1.1\r\nhost: loc",
        &[0, 408],
    );
    let zipped = request(
        "POST",
        HELLO,
        "content-encoding: gzip\r\ncontent-type: application/json\r\n",
        b"\x1f\x8b\x08\x00",
    );
    table.raw("a body that is squeezed", zipped, &[415]);
    table.submit(
        "a body of a megabyte and more",
        vec![b' '; (1 << 20) + 1],
        &[413],
    );
    let two = "idempotency-key: a\r\nidempotency-key: b\r\n";
    table.raw(
        "two keys of one submission",
        request("POST", HELLO, two, b""),
        &[400],
    );
    let long = format!("idempotency-key: {}\r\n", "k".repeat(257));
    table.raw(
        "a key that is too long",
        request("POST", HELLO, &long, b""),
        &[422],
    );
    table.raw(
        "an empty key",
        request("POST", HELLO, "idempotency-key: \r\n", b""),
        &[422],
    );
    table.raw(
        "a key that is no text",
        request("POST", HELLO, "idempotency-key: \u{fc}\r\n", b""),
        &[400],
    );
    table.raw(
        "an override of the method",
        request(
            "GET",
            "/api/workers/1",
            "x-http-method-override: DELETE\r\n",
            b"",
        ),
        &[200],
    );
}

/// Bodies that are no JSON, or say what nobody may say.
#[rustfmt::skip]
fn of_bodies(table: &mut Table) {
    let deep = |open: &str, close: &str| {
        let (open, close) = (open.repeat(100_000), close.repeat(100_000));
        format!("{{\"input\": {{\"a\": {open}{close}}}}}")
    };
    let utf_16: Vec<u8> = "{}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (name, body) in [
        ("brackets without end", "[".repeat(100_000).into_bytes()),
        ("brackets, 100,000 deep", deep("[", "]").into_bytes()),
        ("objects, 100,000 deep", deep("{\"a\":", "}").into_bytes()),
        ("the same key twice", b"{\"priority\": 1, \"priority\": 2}".to_vec()),
        ("the same input twice", b"{\"input\": {\"name\": \"a\", \"name\": \"b\"}}".to_vec()),
        ("no number", b"{\"input\": {\"n\": NaN}}".to_vec()),
        ("a number beyond all", b"{\"input\": {\"n\": 1e999}}".to_vec()),
        ("a number with a zero in front", b"{\"input\": {\"n\": 00}}".to_vec()),
        ("a comma too many", b"{\"input\": {\"n\": 1,}}".to_vec()),
        ("a mark of byte order", b"\xef\xbb\xbf{}".to_vec()),
        ("UTF-16", utf_16),
        ("half a pair", b"{\"input\": {\"name\": \"\\ud800\"}}".to_vec()),
        ("no UTF-8", b"{\"input\": {\"name\": \"\xff\"}}".to_vec()),
        ("a NUL as a long form", b"{\"input\": {\"\xc0\x80\": 1}}".to_vec()),
        ("two bodies in one", b"{} {}".to_vec()),
        ("a list", b"[]".to_vec()),
        ("nothing", b"null".to_vec()),
        ("a mistyped word", b"{\"timout\": 5}".to_vec()),
        ("what only the server says", b"{\"state\": \"completed\", \"id\": 1, \"owner\": \"admin\"}".to_vec()),
        ("an input that is a list", b"{\"input\": [1]}".to_vec()),
        ("an input that the task does not know", b"{\"input\": {\"LD_PRELOAD\": \"/tmp/x.so\"}}".to_vec()),
        ("half a priority", b"{\"priority\": 1.5}".to_vec()),
        ("a priority beyond all", b"{\"priority\": 99999999999}".to_vec()),
        ("a time that is none", b"{\"not_before\": \"tomorrow\"}".to_vec()),
        ("a label with a NUL", b"{\"labels\": {\"a\": \"\\u0000\"}}".to_vec()),
        ("a label without a name", b"{\"labels\": {\"\": \"x\"}}".to_vec()),
    ] {
        table.submit(name, body, &[400, 422]);
    }
    let many: serde_json::Map<String, Value> =
        (0..65).map(|n| (format!("l{n}"), json!("x"))).collect();
    table.submit("65 labels", json!({ "labels": many }).to_string(), &[422]);
}

/// Names and numbers in addresses.
#[rustfmt::skip]
fn of_addresses(table: &mut Table) {
    for (name, path) in [
        ("a path upwards", "/api/jobs/.."),
        ("a path upwards, written otherwise", "/api/jobs/%2e%2e%2f%2e%2e%2fetc%2fpasswd"),
        ("a path upwards, written twice otherwise", "/api/jobs/%252e%252e%252f"),
        ("two slashes", "//api/jobs"),
        ("another case", "/API/jobs"),
        ("a slash that is written otherwise", "/api%2fjobs"),
        ("an ending that looks harmless", "/api/jobs;.css"),
        ("an id with a NUL", "/api/jobs/1%00"),
        ("an id with SQL", "/api/jobs/1;drop%20table%20job"),
        ("an id that is always true", "/api/jobs/1'or'1'='1"),
        ("an id of twenty digits", "/api/jobs/99999999999999999999"),
        ("an id below nothing", "/api/jobs/-1"),
        ("an id in another system", "/api/jobs/0x1"),
        ("a task by a path", "/api/tasks/..%2f..%2fetc%2fpasswd"),
        ("a worker by a path", "/api/workers/%2Fetc%2Fpasswd"),
        ("a file of the server by a page", "/files?name=%2Fetc%2Fpasswd"),
        ("a file of the program by its assets", "/assets/x/..%2f..%2fCargo.toml"),
    ] {
        table.get(name, path, &[404]);
    }
    for (name, path) in [
        ("a page of a million", "/api/jobs?limit=1000000"),
        ("a page of nothing", "/api/jobs?limit=0"),
        ("a page below nothing", "/api/events?limit=-1"),
        ("a query that nobody knows", "/api/jobs?sort=id;drop%20table%20job"),
        ("a search for a word that does not exist", "/api/jobs?q=owner:admin"),
        ("a log from before its beginning", "/api/jobs/1/steps/greet/logs?from=-1"),
        ("a log by a file's name", "/api/jobs/1/steps/greet/logs?file=../../stepward.db"),
        ("an attempt beyond all", "/api/jobs/1/steps/greet/logs?attempt=99999999999"),
    ] {
        table.get(name, path, &[400, 404, 422]);
    }
    table.get("a query that is no text", "/api/jobs?q=%ff%fe", &[400]);
    table.get(
        "a log that is asked for with a slow pattern",
        "/api/jobs/1/steps/greet/logs?grep=(a%2B)%2B%24",
        &[200, 404, 422],
    );
    table.get(
        "a line beyond the end of all logs",
        "/api/jobs/1/steps/greet/logs?from=18446744073709551615",
        &[200, 404, 422],
    );
    table.get(
        "fifty percent signs",
        &format!("/api/jobs?q={}", "%25".repeat(50)),
        &[200, 422],
    );
}

/// Words of workers about what is not theirs, or is not so.
#[rustfmt::skip]
fn of_workers(table: &mut Table, ann: &HttpWorker, greet: &Value) {
    let reports = "/api/worker/reports";
    let done = json!({ "finished": { "outcome": "completed", "exit_code": 0 } });
    let of = |session: &str, attempt: Value| {
        let attempt = json!({ "step_id": greet["step_id"], "attempt": attempt });
        json!({ "session": session, "items": [item(&attempt, "finished", done.clone())] })
            .to_string()
    };
    for (name, session, attempt, says) in [
        ("a result for a later attempt", ann.session.as_str(), json!(2), "abort"),
        ("a result for no attempt", ann.session.as_str(), json!(0), "abort"),
        ("a result for less than none", ann.session.as_str(), json!(-1), "refused"),
        ("a result for more than all", ann.session.as_str(), json!(9_223_372_036_854_775_808_u64), "refused"),
        ("an attempt as text", ann.session.as_str(), json!("1"), "refused"),
        ("an attempt with a point", ann.session.as_str(), json!(1.5), "refused"),
        ("an attempt that is nothing", ann.session.as_str(), Value::Null, "refused"),
        ("a result for another's step", "bob 1", json!(1), "abort"),
        ("a result by nobody", "nobody", json!(1), "abort"),
    ] {
        table.post(name, reports, of(session, attempt), &[200]);
        table.saying(says);
        let input = table.0.last_mut().unwrap();
        input.is_recorded = ["a result for no attempt", "a result for another's step"].contains(&name);
    }
    let strange = json!({ "session": ann.session, "items": [item(greet, "exploded", json!({}))] });
    table.post(
        "news that do not exist",
        reports,
        strange.to_string(),
        &[200],
    );
    table.saying("refused");
    let beat = |held: Value| json!({ "session": ann.session, "seq": 7, "held": held }).to_string();
    let many: Vec<Value> = (0..10_001)
        .map(|id| json!({ "step_id": id, "attempt": 1, "phase": "running" }))
        .collect();
    table.post(
        "a heartbeat with 10,001 steps",
        "/api/worker/heartbeat",
        beat(json!(many)),
        &[422],
    );
    table.post(
        "a heartbeat without its steps",
        "/api/worker/heartbeat",
        beat(Value::Null),
        &[422],
    );
    let poll = json!({ "session": "nobody", "free_slots": 1, "held": [], "wait_ms": 0 });
    table.post(
        "a poll by nobody",
        "/api/worker/poll",
        poll.to_string(),
        &[410],
    );
    let poll = json!({ "session": ann.session, "free_slots": 4_294_967_296_u64, "held": [], "wait_ms": 0 });
    table.post(
        "a poll for four thousand million slots",
        "/api/worker/poll",
        poll.to_string(),
        &[422],
    );
    let mut session = |name: &str, key: &str, value: Value| {
        let mut request = session_request("eve", "eve 1", &[], 1);
        request[key] = value;
        table.post(name, "/api/worker/sessions", request.to_string(), &[422]);
    };
    session("a worker without a name", "name", json!(""));
    session(
        "a worker with a line end in its name",
        "name",
        json!("eve\nadmin"),
    );
    session(
        "a worker whose name is read from right to left",
        "name",
        json!("eve\u{202e}nimda"),
    );
    session("a worker with a tag that is two", "tags", json!(["a b"]));
    session("a worker with a million slots", "slots", json!(1_000_000));
    session("a worker whose results are no list", "spooled", json!({}));
    session("a session with a NUL", "session", json!("\0"));
    let log = format!("/api/worker/steps/{}/attempts/1/log", greet["step_id"]);
    let session = ann.session.replace(' ', "%20");
    let put = |query: &str| request("PUT", &format!("{log}?{query}"), "", b"1 o hello\n");
    table.raw(
        "a log before its beginning",
        put(&format!("session={session}&offset=-1")),
        &[422],
    );
    table.raw(
        "a log with a gap",
        put(&format!("session={session}&offset=9223372036854775807")),
        &[200, 409, 422],
    );
    table.raw(
        "a log of another's step",
        put("session=bob%201&offset=0"),
        &[404, 409, 410],
    );
    table.raw(
        "a log without a place",
        put(&format!("session={session}")),
        &[422],
    );
}

/// What people do twice, or too early.
#[rustfmt::skip]
fn of_people(table: &mut Table) {
    for (name, path, body, answers) in [
        ("a retry of what still runs", "/api/jobs/1/retry", "{}", &[409][..]),
        ("an approval of what asks for none", "/api/jobs/1/steps/greet/approve", "{}", &[409, 422][..]),
        ("an approval of a step that is not there", "/api/jobs/1/steps/nobody/approve", "{}", &[404][..]),
        ("a cancel with a word too many", "/api/jobs/1/cancel", "{\"force\": true}", &[422][..]),
        ("a cancel of what does not exist", "/api/jobs/77/cancel", "{}", &[404][..]),
        ("a schedule that does not exist", "/api/schedules/77/fire", "{}", &[404][..]),
        ("a message to nobody", "/api/notify/nobody/test", "{}", &[404][..]),
        ("a webhook that does not exist", "/hooks/nobody", "{}", &[401, 404][..]),
    ] {
        table.post(name, path, body, answers);
    }
    table.raw(
        "a worker that has work, deleted",
        request("DELETE", "/api/workers/1", "", b""),
        &[409],
    );
}

/// Workflow files that are looked at and never run.
#[rustfmt::skip]
fn of_workflows(table: &mut Table) {
    let invalid = "\"valid\":false";
    let flow = |step: &str| format!("tasks:\n  t:\n    flow:\n      s: {{ {step} }}\n");
    for (name, text) in [
        ("a billion laughs", "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\ntasks: { t: { flow: { s: { script: *c } } } }".to_string()),
        ("an alias of itself", "a: &a [*a]".to_string()),
        ("a tag of another language", "tasks: !!python/object:os.system [id]".to_string()),
        ("a tab for spaces", "tasks:\n\tt: {}".to_string()),
        ("brackets without end, in YAML", format!("tasks: {}", "[".repeat(100_000))),
        ("a task without steps", "tasks: { t: { flow: {} } }".to_string()),
        ("a step that waits for itself", flow("script: x, depends_on: s")),
        ("a step that waits for nobody", flow("script: x, depends_on: nobody")),
        ("a name that is a path", "tasks: { ../../etc/passwd: { flow: { s: { script: x } } } }".to_string()),
        ("a name that is empty", "tasks: { '': { flow: { s: { script: x } } } }".to_string()),
        ("a name of 129 letters", format!("tasks: {{ {}: {{ flow: {{ s: {{ script: x }} }} }} }}", "a".repeat(129))),
        ("a name with a line end", "tasks: { \"a\nb\": { flow: { s: { script: x } } } }".to_string()),
        ("an unknown word in a step", flow("script: x, timout: 5")),
        ("a timeout of nothing", flow("script: x, timeout: 0")),
        ("a timeout below nothing", flow("script: x, timeout: -1")),
        ("a tag of 65 letters", flow(&format!("script: x, tags: [{}]", "a".repeat(65)))),
        ("a variable that is no name", flow("script: x, env: { 'A=B': y }")),
        ("a variable with a NUL", flow("script: x, env: { A: \"y\\0z\" }")),
        ("a variable of ours", flow("script: x, env: { STEPWARD_TOKEN: y }")),
        ("an image that is an option", flow("type: docker, image: --privileged, script: x")),
        ("an image of two words", flow("type: docker, image: 'a b', script: x")),
        ("a script with an input in it, unquoted", "tasks: { t: { input: { a: { type: string } }, flow: { s: { script: 'echo {{ input.a }}' } } } }".to_string()),
        ("a day that never comes", "tasks: { t: { flow: { s: { script: x } } } }\nschedules: { n: { task: t, cron: '0 0 30 2 *' } }".to_string()),
        ("a minute that does not exist", "tasks: { t: { flow: { s: { script: x } } } }\nschedules: { n: { task: t, cron: '60 * * * *' } }".to_string()),
    ] {
        table.workflow(name, &text, invalid);
    }
    let ring: String = (0..2_000)
        .map(|n| {
            format!(
                "      s{n}: {{ script: x, depends_on: s{} }}\n",
                (n + 1) % 2_000
            )
        })
        .collect();
    table.workflow(
        "a ring of 2,000 steps",
        &format!("tasks:\n  t:\n    flow:\n{ring}"),
        invalid,
    );
    let many: String = (0..10_001)
        .map(|n| format!("      s{n}: {{ script: x }}\n"))
        .collect();
    table.workflow(
        "10,001 steps",
        &format!("tasks:\n  t:\n    flow:\n{many}"),
        invalid,
    );
    table.post(
        "a file that is none",
        "/api/validate",
        "{\"files\": []}",
        &[422],
    );
    table.post(
        "a file with a way out",
        "/api/validate",
        json!({ "files": [{ "path": "../../../../etc/passwd", "text": "tasks: {}" }] }).to_string(),
        &[200, 422],
    );
}

#[test]
fn nothing_that_is_sent_makes_loses_or_breaks_anything() {
    let limits = Limits {
        header_timeout: SHORT,
        body_pause_max: SHORT,
        body_timeout: 3 * SHORT,
        ..Limits::default()
    };
    let open = ServerHouse::with(limits, |_| ());
    let guarded = ServerHouse::with(limits, |config| {
        let file = config.data_dir.parent().unwrap().join("token");
        std::fs::write(&file, TOKEN).unwrap();
        config.auth.token_file = Some(file);
    });
    for house in [&open, &guarded] {
        until("it is ready", || house.get("/readyz").status == 200);
    }
    open.submit("hello");
    let (ann, _bob) = (open.worker("ann", &[], 1), open.worker("bob", &[], 1));
    let greet = ann.begin();
    let mut table = Table(Vec::new());
    of_strangers(&mut table);
    of_browsers(&mut table);
    of_bytes(&mut table);
    of_bodies(&mut table);
    of_addresses(&mut table);
    of_workers(&mut table, &ann, &greet);
    of_people(&mut table);
    of_workflows(&mut table);
    let mut names: Vec<&str> = table.0.iter().map(|input| input.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), table.0.len(), "each has a name of its own");
    assert!(names.len() >= 60, "{}", names.len());
    let panicked = panics();
    let mut wrong = Vec::new();
    for input in &table.0 {
        let house = if input.to == To::Open {
            &open
        } else {
            &guarded
        };
        let before = rows(house);
        let mut line = house.line();
        line.send(&input.sent);
        // Every answer until it is hung up: one request gets one.
        let answers: Vec<Answer> = std::iter::from_fn(|| line.try_answer()).collect();
        let status = answers.first().map_or(0, |answer| answer.status);
        let said = answers.first().map_or(String::new(), Answer::text);
        let name = &input.name;
        if !input.answers.contains(&status) || !said.contains(input.says) || answers.len() > 1 {
            let said: String = said.chars().take(300).collect();
            wrong.push(format!(
                "{name}: {} answers, {status} {said}",
                answers.len()
            ));
        }
        let after = rows(house);
        let mut expected = before.clone();
        let event = expected.iter_mut().find(|(table, _)| *table == "event");
        event.unwrap().1 += i64::from(input.is_recorded);
        if expected != after {
            wrong.push(format!("{name}: {before:?} became {after:?}"));
        }
        if panics() != panicked {
            wrong.push(format!(
                "{name}: a thread of the server panicked, now or before"
            ));
        }
        let ready = house.get("/readyz");
        if ready.status != 200 {
            wrong.push(format!("{name}: it is not ready: {}", ready.text()));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        table.0.len(),
        wrong.join("\n")
    );
    // And the step that ran all the while is completed by its worker.
    assert_eq!(ann.complete(&greet), "accepted");
    assert_eq!(open.status(1), "completed");
}
