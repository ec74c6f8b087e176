//! HTTP/1.1 as far as a model server needs it, written out by hand: the faults are made of half sent bodies and closed
//! connections, which a server library would not let through.

use std::borrow::Cow;
use std::io;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

const MOST_HEAD: usize = 64 << 10;
const MOST_BODY: usize = 512 << 20;
const READ: usize = 16 << 10;

/// A request that was read to its end.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Path without query.
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
    pub(crate) content_type: String,
    pub(crate) body: Vec<u8>,
    pub(crate) closes: bool,
}

/// Bytes of a connection that are not yet read as a request.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
}

#[derive(Debug, Default)]
struct Head {
    request: Request,
    length: usize,
    is_chunked: bool,
    expects: bool,
}

impl Inbox {
    /// The next request; `None` at the end of the connection.
    pub(crate) async fn request(&mut self, stream: &mut TcpStream) -> io::Result<Option<Request>> {
        let (used, mut head) = loop {
            if let Some(found) = parse_head(&self.bytes)? {
                break found;
            }
            if self.bytes.len() > MOST_HEAD {
                return Err(bad("the head of the request is too long"));
            }
            if self.more(stream).await? == 0 {
                return Ok(None);
            }
        };
        self.bytes.drain(..used);
        if head.expects {
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        if head.is_chunked {
            head.request.body = self.chunked(stream).await?;
        } else {
            if head.length > MOST_BODY {
                return Err(bad("the body of the request is too long"));
            }
            head.request.body = self.take(stream, head.length).await?;
        }
        Ok(Some(head.request))
    }

    /// Ends when the other side closes the connection; what arrives meanwhile is kept.
    pub(crate) async fn gone(&mut self, stream: &TcpStream) {
        loop {
            if stream.readable().await.is_err() {
                return;
            }
            match stream.try_read_buf(&mut self.bytes) {
                Ok(0) => return,
                Ok(_) if self.bytes.len() > MOST_BODY => return,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }

    async fn more(&mut self, stream: &TcpStream) -> io::Result<usize> {
        self.bytes.reserve(READ);
        loop {
            stream.readable().await?;
            match stream.try_read_buf(&mut self.bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
        }
    }

    async fn take(&mut self, stream: &TcpStream, length: usize) -> io::Result<Vec<u8>> {
        while self.bytes.len() < length {
            if self.more(stream).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let rest = self.bytes.split_off(length);
        Ok(std::mem::replace(&mut self.bytes, rest))
    }

    async fn line(&mut self, stream: &TcpStream) -> io::Result<String> {
        loop {
            if let Some(end) = self.bytes.windows(2).position(|pair| pair == b"\r\n") {
                let line = self.take(stream, end + 2).await?;
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if self.bytes.len() > MOST_HEAD || self.more(stream).await? == 0 {
                return Err(bad("a chunk of the body is malformed"));
            }
        }
    }

    async fn chunked(&mut self, stream: &TcpStream) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line(stream).await?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).map_err(|_| bad("a chunk of the body has no length"))?;
            if size == 0 {
                while !self.line(stream).await?.is_empty() {}
                return Ok(body);
            }
            if body.len().saturating_add(size) > MOST_BODY {
                return Err(bad("the body of the request is too long"));
            }
            body.extend(self.take(stream, size).await?);
            self.line(stream).await?;
        }
    }
}

fn bad(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

fn parse_head(bytes: &[u8]) -> io::Result<Option<(usize, Head)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Request::new(&mut headers);
    let used = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(used)) => used,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
    };
    let mut head = Head::default();
    parsed.method.unwrap_or_default().clone_into(&mut head.request.method);
    let target = parsed.path.unwrap_or_default();
    target.split('?').next().unwrap_or_default().clone_into(&mut head.request.path);
    head.request.closes = parsed.version == Some(0);
    for header in parsed.headers.iter() {
        let value = String::from_utf8_lossy(header.value);
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("content-length") {
            head.length = value.trim().parse().map_err(|_| bad("`content-length` is no number"))?;
        } else if is("authorization") {
            head.request.authorization = Some(value.into_owned());
        } else if is("content-type") {
            head.request.content_type = value.into_owned();
        } else if is("transfer-encoding") {
            head.is_chunked = value.to_ascii_lowercase().contains("chunked");
        } else if is("expect") {
            head.expects = value.eq_ignore_ascii_case("100-continue");
        } else if is("connection") {
            head.request.closes |= value.eq_ignore_ascii_case("close");
        }
    }
    Ok(Some((used, head)))
}

/// What is sent back.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// Status, 200 and so on.
    pub status: u16,
    /// Headers beside type and length.
    pub headers: Vec<(Cow<'static, str>, String)>,
    /// `content-type`.
    pub content_type: Cow<'static, str>,
    /// The body.
    pub body: Body,
}

/// A body.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// Sent with its length.
    Whole(Vec<u8>),
    /// Events of a stream, each sent as a chunk.
    Events(Vec<Vec<u8>>),
}

impl Reply {
    /// JSON text with a status.
    pub fn json(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            content_type: Cow::Borrowed("application/json"),
            body: Body::Whole(body.into()),
        }
    }

    /// An error object.
    pub fn error(status: u16, kind: &str, code: &str, message: &str) -> Self {
        let object = serde_json::json!({"error": {"message": message, "type": kind, "code": code, "param": null}});
        Self::json(status, object.to_string())
    }

    /// The same with one more header.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((Cow::Borrowed(name), value.into()));
        self
    }

    /// The head as it goes over the wire.
    pub(crate) fn head(&self) -> Vec<u8> {
        let mut head =
            format!("HTTP/1.1 {} {}\r\ncontent-type: {}\r\n", self.status, phrase(self.status), self.content_type);
        for (name, value) in &self.headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        match &self.body {
            Body::Whole(body) => head.push_str(&format!("content-length: {}\r\n\r\n", body.len())),
            Body::Events(_) => head.push_str("transfer-encoding: chunked\r\n\r\n"),
        }
        head.into_bytes()
    }
}

/// One event as a chunk of the body.
pub(crate) fn chunk(event: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", event.len()).into_bytes();
    chunk.extend_from_slice(event);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

/// The end of a body in chunks.
pub(crate) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        529 => "Overloaded",
        _ => "Scripted",
    }
}
