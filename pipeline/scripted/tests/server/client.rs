//! A client that shows what really came over the wire.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

/// One connection.
pub struct Client {
    reader: BufReader<TcpStream>,
}

/// A reply as far as it came.
#[derive(Debug)]
pub struct Got {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The body ended before its length, or before its last chunk.
    pub is_cut: bool,
}

impl Got {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {}", self.text()))
    }

    /// Content of the first choice.
    pub fn content(&self) -> Value {
        self.json()["choices"][0]["message"]["content"].clone()
    }

    pub fn finish_reason(&self) -> Value {
        self.json()["choices"][0]["finish_reason"].clone()
    }

    /// The events of a stream, without `[DONE]`.
    pub fn events(&self) -> Vec<Value> {
        let text = self.text();
        let data = text.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
        data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
    }
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        Self { reader: BufReader::new(stream) }
    }

    pub fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        self.reader.get_mut().write_all(&[head.as_bytes(), body].concat()).unwrap();
    }

    /// Sends bytes as they are.
    pub fn send_raw(&mut self, text: &str) {
        self.reader.get_mut().write_all(text.as_bytes()).unwrap();
    }

    /// The reply; `None` where the connection ended without one.
    pub fn receive(&mut self) -> Option<Got> {
        let mut line = String::new();
        self.reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let status = line.split_whitespace().nth(1)?.parse().unwrap();
        let mut got = Got { status, headers: Vec::new(), body: Vec::new(), is_cut: false };
        loop {
            line.clear();
            self.reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            got.headers.push((name.to_owned(), value.to_owned()));
        }
        match got.header("content-length").map(|length| length.parse::<u64>().unwrap()) {
            Some(length) => {
                let _ = self.reader.by_ref().take(length).read_to_end(&mut got.body);
                got.is_cut = (got.body.len() as u64) < length;
            }
            None => got.is_cut = !self.chunks(&mut got.body),
        }
        Some(got)
    }

    /// Reads chunks; says whether the last one came.
    fn chunks(&mut self, body: &mut Vec<u8>) -> bool {
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).unwrap_or(0) == 0 {
                return false;
            }
            let size = u64::from_str_radix(line.trim(), 16).unwrap();
            let before = body.len() as u64;
            let _ = self.reader.by_ref().take(size).read_to_end(body);
            if (body.len() as u64) < before + size || self.reader.read_line(&mut line).unwrap_or(0) == 0 {
                return false;
            }
            if size == 0 {
                return true;
            }
        }
    }

    pub fn ask(&mut self, body: &Value) -> Option<Got> {
        self.send("POST", "/v1/chat/completions", &[("content-type", "application/json")], body.to_string().as_bytes());
        self.receive()
    }
}

/// Asks over a connection of its own.
pub fn ask(address: SocketAddr, body: &Value) -> Option<Got> {
    Client::new(address).ask(body)
}

/// Gets a path.
pub fn get(address: SocketAddr, path: &str) -> Got {
    let mut client = Client::new(address);
    client.send("GET", path, &[], b"");
    client.receive().unwrap()
}

/// A request with one message.
pub fn question(text: &str) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": 200, "seed": 1})
}
