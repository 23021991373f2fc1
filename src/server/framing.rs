//! A strict parser of where requests begin and end on a connection.
//!
//! The HTTP library accepts lines that end without a carriage return, drops `Content-Length` beside `Transfer-Encoding`, and takes
//! every list of codings that ends with `chunked`. A proxy in front of the server may read the same bytes as other requests, and
//! then one client can smuggle a request into the connection of another. This module looks at the bytes before the library does and
//! finds the first that no strict reader would accept. It copies nothing but two header values, and skips bodies without looking
//! into them.
//!
//! It is never more lenient than the library: whatever passes here, both read with the same limits.

use memchr::memchr3;

/// The framing of the requests of one connection, byte by byte.
#[derive(Debug)]
pub struct Framing {
    state: State,
    head: Head,
}

/// The position at which the bytes stopped being an acceptable request.
#[derive(Debug, PartialEq, Eq)]
pub struct FramingViolation {
    /// The first byte that is not accepted.
    pub at: usize,
    /// Whether that byte belongs to a request line or a header, as opposed to a body.
    pub in_head: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before a request. An empty line is allowed here.
    RequestStart,
    EmptyLineFeed,
    RequestLine,
    RequestLineFeed,
    /// The first byte of a header, or of the empty line behind all of them.
    HeaderStart,
    HeaderName,
    HeaderValue,
    HeaderLineFeed,
    HeadEndLineFeed,
    /// Bytes of a body of known length that are still to come.
    Body(u64),
    ChunkSize {
        size: u64,
        digits: usize,
    },
    ChunkExtension {
        size: u64,
    },
    ChunkSizeLineFeed {
        size: u64,
    },
    ChunkData(u64),
    ChunkEndReturn,
    ChunkEndLineFeed,
    TrailerStart,
    Trailer,
    TrailerLineFeed,
    BodyEndLineFeed,
    Broken,
}

/// Framing of the body of the current request, as its headers declare it.
#[derive(Debug, Default)]
struct Head {
    name: Short,
    value: Short,
    is_value_kept: bool,
    content_length: Option<u64>,
    is_chunked: bool,
}

/// A name or value as far as it can matter: longer ones are neither of those that are looked for.
#[derive(Debug, Default)]
struct Short {
    bytes: [u8; Short::BYTES_MAX],
    len: usize,
}

impl Short {
    const BYTES_MAX: usize = 32;

    fn clear(&mut self) {
        self.len = 0;
    }

    fn push(&mut self, byte: u8) {
        if self.len < Short::BYTES_MAX {
            self.bytes[self.len] = byte;
        }
        self.len += 1;
    }

    /// `None`: it is too long to be anything that is looked for.
    fn get(&self) -> Option<&[u8]> {
        self.bytes.get(..self.len)
    }

    fn is(&self, word: &[u8]) -> bool {
        let bytes = self.get();
        bytes.is_some_and(|bytes| bytes.trim_ascii().eq_ignore_ascii_case(word))
    }
}

/// A byte that is not accepted.
struct Refused;

impl Framing {
    pub fn new() -> Framing {
        Framing {
            state: State::RequestStart,
            head: Head::default(),
        }
    }

    pub fn is_broken(&self) -> bool {
        self.state == State::Broken
    }

    /// Reads on. After a violation nothing more can be said about the connection.
    pub fn read(&mut self, bytes: &[u8]) -> Option<FramingViolation> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            at += match self.skipped(rest) {
                0 => {
                    let in_head = self.state.is_head();
                    match self.step(rest[0]) {
                        Ok(next) => self.state = next,
                        Err(Refused) => {
                            self.state = State::Broken;
                            return Some(FramingViolation { at, in_head });
                        }
                    }
                    1
                }
                skipped => skipped,
            };
        }
        None
    }

    /// Consumes body bytes, which have no framing in them, and returns their number.
    fn skipped(&mut self, rest: &[u8]) -> usize {
        match &mut self.state {
            State::Body(left) | State::ChunkData(left) => {
                let bytes = usize::try_from(*left).map_or(rest.len(), |left| left.min(rest.len()));
                *left -= bytes as u64;
                if *left == 0 {
                    self.state = match self.state {
                        State::Body(_) => State::RequestStart,
                        _ => State::ChunkEndReturn,
                    };
                }
                bytes
            }
            State::HeaderValue if self.head.is_value_kept => 0,
            State::RequestLine
            | State::HeaderValue
            | State::Trailer
            | State::ChunkExtension { .. } => memchr3(b'\r', b'\n', 0, rest).unwrap_or(rest.len()),
            _ => 0,
        }
    }

    fn step(&mut self, byte: u8) -> Result<State, Refused> {
        let line_feed = |next: State| match byte {
            b'\n' => Ok(next),
            _ => Err(Refused),
        };
        match self.state {
            State::RequestStart => match byte {
                b'\r' => Ok(State::EmptyLineFeed),
                b'\n' | 0 => Err(Refused),
                _ => Ok(State::RequestLine),
            },
            State::EmptyLineFeed => line_feed(State::RequestStart),
            State::RequestLine => match byte {
                b'\r' => Ok(State::RequestLineFeed),
                b'\n' | 0 => Err(Refused),
                _ => Ok(State::RequestLine),
            },
            State::RequestLineFeed => {
                self.head = Head::default();
                line_feed(State::HeaderStart)
            }
            State::HeaderStart => match byte {
                b'\r' => Ok(State::HeadEndLineFeed),
                // A line that begins with a blank would continue the header before it.
                b' ' | b'\t' | b'\n' | b':' | 0 => Err(Refused),
                _ => {
                    self.head.name.clear();
                    self.head.name.push(byte);
                    Ok(State::HeaderName)
                }
            },
            State::HeaderName => match byte {
                b':' => {
                    self.head.begin_value();
                    Ok(State::HeaderValue)
                }
                b' ' | b'\t' | b'\r' | b'\n' | 0 => Err(Refused),
                _ => {
                    self.head.name.push(byte);
                    Ok(State::HeaderName)
                }
            },
            State::HeaderValue => match byte {
                b'\r' => Ok(State::HeaderLineFeed),
                b'\n' | 0 => Err(Refused),
                _ => {
                    self.head.value.push(byte);
                    Ok(State::HeaderValue)
                }
            },
            State::HeaderLineFeed => {
                let next = line_feed(State::HeaderStart)?;
                self.head.end_value()?;
                Ok(next)
            }
            State::HeadEndLineFeed => {
                let body = self.head.body()?;
                line_feed(body)
            }
            State::ChunkSize { size, digits } => match byte {
                b';' if digits > 0 => Ok(State::ChunkExtension { size }),
                b'\r' if digits > 0 => Ok(State::ChunkSizeLineFeed { size }),
                _ => {
                    // No body of ours is near 2^60 bytes long, so nothing overflows.
                    const DIGITS_MAX: usize = 15;
                    let digit = char::from(byte).to_digit(16).ok_or(Refused)?;
                    if digits == DIGITS_MAX {
                        return Err(Refused);
                    }
                    Ok(State::ChunkSize {
                        size: size * 16 + u64::from(digit),
                        digits: digits + 1,
                    })
                }
            },
            State::ChunkExtension { size } => match byte {
                b'\r' => Ok(State::ChunkSizeLineFeed { size }),
                _ => Err(Refused),
            },
            State::ChunkSizeLineFeed { size: 0 } => line_feed(State::TrailerStart),
            State::ChunkSizeLineFeed { size } => line_feed(State::ChunkData(size)),
            State::ChunkEndReturn => match byte {
                b'\r' => Ok(State::ChunkEndLineFeed),
                _ => Err(Refused),
            },
            State::ChunkEndLineFeed => line_feed(State::ChunkSize { size: 0, digits: 0 }),
            State::TrailerStart => match byte {
                b'\r' => Ok(State::BodyEndLineFeed),
                b' ' | b'\t' | b'\n' | b':' | 0 => Err(Refused),
                _ => Ok(State::Trailer),
            },
            State::Trailer => match byte {
                b'\r' => Ok(State::TrailerLineFeed),
                _ => Err(Refused),
            },
            State::TrailerLineFeed => line_feed(State::TrailerStart),
            State::BodyEndLineFeed => line_feed(State::RequestStart),
            // Passed over by `skipped`, or never asked again.
            State::Body(_) | State::ChunkData(_) | State::Broken => Err(Refused),
        }
    }
}

impl State {
    fn is_head(self) -> bool {
        matches!(
            self,
            State::RequestStart
                | State::EmptyLineFeed
                | State::RequestLine
                | State::RequestLineFeed
                | State::HeaderStart
                | State::HeaderName
                | State::HeaderValue
                | State::HeaderLineFeed
                | State::HeadEndLineFeed
        )
    }
}

impl Head {
    fn is_content_length(&self) -> bool {
        self.name.is(b"content-length")
    }

    fn is_transfer_encoding(&self) -> bool {
        self.name.is(b"transfer-encoding")
    }

    fn begin_value(&mut self) {
        self.value.clear();
        self.is_value_kept = self.is_content_length() || self.is_transfer_encoding();
    }

    fn end_value(&mut self) -> Result<(), Refused> {
        if self.is_content_length() {
            // A second one is refused even if it says the same: a reader in between may take either.
            let length = self.value.get().and_then(decimal).ok_or(Refused)?;
            return match self.content_length.replace(length) {
                None => Ok(()),
                Some(_) => Err(Refused),
            };
        }
        if self.is_transfer_encoding() {
            let is_first = !std::mem::replace(&mut self.is_chunked, true);
            return match is_first && self.value.is(b"chunked") {
                true => Ok(()),
                false => Err(Refused),
            };
        }
        Ok(())
    }

    /// Returns the state after the head: the body, a chunk, or the next request.
    fn body(&self) -> Result<State, Refused> {
        match (self.is_chunked, self.content_length) {
            (true, Some(_)) => Err(Refused),
            (true, None) => Ok(State::ChunkSize { size: 0, digits: 0 }),
            (false, None | Some(0)) => Ok(State::RequestStart),
            (false, Some(length)) => Ok(State::Body(length)),
        }
    }
}

/// A whole number of digits alone: no sign, no list, no other base.
fn decimal(value: &[u8]) -> Option<u64> {
    let digits = value.trim_ascii();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The violation, whether the bytes come at once or one by one.
    fn violation(bytes: &str) -> Option<(usize, bool)> {
        let at_once = Framing::new().read(bytes.as_bytes());
        let mut framing = Framing::new();
        let mut found = None;
        for (at, byte) in bytes.bytes().enumerate() {
            if framing.read(&[byte]).is_some_and(|found| found.at == 0) {
                found = Some(at);
                break;
            }
        }
        assert_eq!(at_once.as_ref().map(|found| found.at), found, "{bytes:?}");
        at_once.map(|found| (found.at, found.in_head))
    }

    #[test]
    fn what_every_reader_takes_for_the_same_requests_passes() {
        for bytes in [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.0\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length:  3 \r\n\r\na\n\0POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\nGET /",
            "POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n3;a=\"b\"\r\nx\ny\r\n0A\r\n0123456789\r\n0\r\nA: b\r\n\r\nGET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nX-Content-Length: +5\r\nTransfer-Encodings: a, b\r\nEmpty:\r\n\r\n",
        ] {
            assert_eq!(violation(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn heads_that_two_readers_could_take_differently_are_refused() {
        for (before, rest) in [
            ("GET / HTTP/1.1", "\nHost: a\n\n"),
            ("GET / HTTP/1.1\r\nHost: a", "\n\r\n"),
            ("GET / HTTP/1.1\r\nHost: a\r\n", "\nGET"),
            ("GET / HTTP/1.1\r\nA: b\r", "c\r\n\r\n"),
            ("GET / HTTP/1.1\r\nA: b\r\n", " folded\r\n\r\n"),
            ("GET / HTTP/1.1\r\nA", " : b\r\n\r\n"),
            ("GET / HTTP/1.1\r\nA: b", "\0\r\n\r\n"),
            ("GET / HTTP/1.1\r\n", ": b\r\n\r\n"),
            ("POST / HTTP/1.1\r\nContent-Length: +5\r", "\n\r\n"),
            ("POST / HTTP/1.1\r\nContent-Length: 0x5\r", "\n\r\n"),
            ("POST / HTTP/1.1\r\nContent-Length: 5, 5\r", "\n\r\n"),
            ("POST / HTTP/1.1\r\nContent-Length: \r", "\n\r\n"),
            (
                "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r",
                "\n\r\n",
            ),
            (
                "POST / HTTP/1.1\r\nContent-Length: 00000000000000000000000000000005\r",
                "\n\r\n",
            ),
            (
                "POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5\r",
                "\n\r\n",
            ),
            (
                "POST / HTTP/1.1\r\nTransfer-Encoding: identity, chunked\r",
                "\n\r\n",
            ),
            (
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked, chunked\r",
                "\n\r\n",
            ),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: identity\r", "\n\r\n"),
            (
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r",
                "\n\r\n",
            ),
            (
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r",
                "\n0\r\n\r\n",
            ),
            (
                "POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r",
                "\n0\r\n\r\n",
            ),
            // The second of two requests that come at once.
            (
                "POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n\n\nGET / HTTP/1.1",
                "\n\n",
            ),
        ] {
            let bytes = format!("{before}{rest}");
            assert_eq!(violation(&bytes), Some((before.len(), true)), "{bytes:?}");
        }
    }

    #[test]
    fn chunks_that_two_readers_could_take_differently_are_refused() {
        let head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        for (before, rest) in [
            ("3", "\nabc\r\n"),
            ("", "\r\nabc"),
            ("", ";a\r\n"),
            ("", "+3\r\nabc"),
            ("0", "x3\r\nabc"),
            ("3", " \r\nabc"),
            ("3\r", "abc"),
            ("3;a", "\n\r\nabc"),
            ("3;a", "\0\r\nabc"),
            ("3\r\nabc", "\n0\r\n\r\n"),
            ("3\r\nabc", "d\r\n"),
            ("3\r\nabc\r", "0"),
            ("fffffffffffffff", "f\r\n"),
            ("0\r\n", "\n"),
            ("0\r\nA: b", "\n\r\n"),
            ("0\r\n", " folded\r\n"),
            ("0\r\n\r", "\r\n"),
        ] {
            let bytes = format!("{head}{before}{rest}");
            let expected = Some((head.len() + before.len(), false));
            assert_eq!(violation(&bytes), expected, "{bytes:?}");
        }
    }
}
