//! What goes over the socket between caller and supervisor: short packets with descriptors, and memory files for
//! what is long.
//!
//! Both ends are the same executable, so the form needs no version. Numbers are 8 bytes, texts a length and bytes.
//! Everything that is read is checked: a supervisor may have died half-way.

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Longest packet. Settings and the answers of the supervisor fit; jobs and outcomes go into memory files.
const PACKET: usize = 64 * 1024;
/// Most descriptors in a packet.
const DESCRIPTORS: usize = 8;

/// Why a step of the supervisor failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What was tried.
    pub step: String,
    /// The kernel's number, 0 if there is none.
    pub code: i32,
    /// In words.
    pub reason: String,
}

/// Names the step at which something failed.
pub trait Step<T> {
    /// The failure of `step`.
    fn step(self, step: impl Into<String>) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, step: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|error| {
            let error: io::Error = error.into();
            Failure { step: step.into(), code: error.raw_os_error().unwrap_or(0), reason: error.to_string() }
        })
    }
}

/// Writes values one after another.
#[derive(Debug, Default)]
pub struct Encoder(pub Vec<u8>);

impl Encoder {
    /// Adds a number.
    pub fn number(&mut self, number: u64) -> &mut Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    /// Adds bytes with their length.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// Adds a failure.
    pub fn failure(&mut self, failure: &Failure) -> &mut Self {
        self.bytes(failure.step.as_bytes());
        self.number(u64::from(failure.code.unsigned_abs()));
        self.bytes(failure.reason.as_bytes())
    }
}

/// Reads what an [`Encoder`] wrote.
#[derive(Debug)]
pub struct Decoder<'a>(pub &'a [u8]);

impl<'a> Decoder<'a> {
    /// The next number.
    pub fn number(&mut self) -> io::Result<u64> {
        let (number, rest) = self.0.split_first_chunk::<8>().ok_or_else(cut_short)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*number))
    }

    /// The next bytes.
    pub fn bytes(&mut self) -> io::Result<&'a [u8]> {
        let length = usize::try_from(self.number()?).map_err(|_| cut_short())?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or_else(cut_short)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// The next text.
    pub fn text(&mut self) -> io::Result<String> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    /// The next failure.
    pub fn failure(&mut self) -> io::Result<Failure> {
        let step = self.text()?;
        let code = i32::try_from(self.number()?).unwrap_or(0);
        Ok(Failure { step, code, reason: self.text()? })
    }

    /// As many items as a number says that comes first.
    pub fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> io::Result<T>) -> io::Result<Vec<T>> {
        let mut items = Vec::new();
        for _ in 0..self.number()? {
            items.push(item(self)?);
        }
        Ok(items)
    }
}

fn cut_short() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a message is cut short")
}

/// Sends one packet.
pub fn send(socket: BorrowedFd<'_>, packet: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let too_many = || io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for a packet");
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(too_many());
    }
    // without NOSIGNAL a supervisor that is gone would end the caller by SIGPIPE
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(socket, &[IoSlice::new(packet)], &mut control, SendFlags::NOSIGNAL)
    })?;
    Ok(())
}

/// Receives one packet; `None` when the other end is closed.
pub fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut packet = vec![0; PACKET];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut packet)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received.flags.contains(ReturnFlags::TRUNC) || received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(cut_short());
    }
    packet.truncate(received.bytes);
    // packets are never empty, so that an empty one is the end
    Ok((!packet.is_empty()).then_some((packet, descriptors)))
}

/// What a pipe holds that nobody writes to any more.
pub fn drain(pipe: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut content = vec![0; PACKET];
    match rustix::io::retry_on_intr(|| rustix::io::read(pipe, &mut content[..])) {
        Ok(length) => content.truncate(length),
        Err(rustix::io::Errno::AGAIN) => content.clear(),
        Err(error) => return Err(error.into()),
    }
    Ok(content)
}

/// A file in memory that holds `content` and can never change again.
///
/// Sealed, so that a program that gets it as standard input or as its own executable cannot alter what others read.
pub fn sealed(name: &str, content: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // kernels before 6.3 do not know EXEC, and need it not
    let file =
        rustix::fs::memfd_create(name, flags | MemfdFlags::EXEC).or_else(|_| rustix::fs::memfd_create(name, flags))?;
    let mut written = 0;
    while written < content.len() {
        // at an offset, so that the file's position stays at its start
        written += rustix::io::pwrite(&file, &content[written..], written as u64)?;
    }
    rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file)
}

/// All of a file, which may not be longer than `most` bytes.
pub fn content(file: impl AsFd, most: u64) -> io::Result<Vec<u8>> {
    let length = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
    let length = usize::try_from(length.min(most)).map_err(|_| cut_short())?;
    let mut content = vec![0; length];
    let mut read = 0;
    while read < length {
        match rustix::io::pread(&file, &mut content[read..], read as u64)? {
            0 => break,
            more => read += more,
        }
    }
    content.truncate(read);
    Ok(content)
}
