//! Starting and stopping.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::oneshot;

use crate::connection::serve;
use crate::counts::Stats;
use crate::script::Script;
use crate::service::Service;

/// Connections that may wait to be accepted: a client may open a thousand at once.
const BACKLOG: u32 = 4096;

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Options that cannot hold together.
    #[error("{0}")]
    Options(String),
    /// The file of rules.
    #[error("cannot read the rules `{}`", path.display())]
    RulesUnread {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A rule that is none.
    #[error("{0}: {1}; write one JSON object a line, such as {{\"contains\": \"sum\", \"answer\": \"4\"}}")]
    Rule(String, String),
    /// The address.
    #[error("cannot listen on `{address}`")]
    Listen {
        /// Where to listen.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// No thread or no runtime.
    #[error("cannot start the server's thread")]
    Thread(#[source] std::io::Error),
}

/// A server that runs on a thread of its own for as long as this value lives.
pub struct Server {
    address: SocketAddr,
    service: Arc<Service>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server on a free port of this machine's loopback.
    ///
    /// # Errors
    /// Options that do not hold together, rules that cannot be read, or no free port.
    pub fn start(script: impl Into<Script>) -> Result<Self, StartError> {
        Self::start_at(script, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    /// Starts a server at an address.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_at(script: impl Into<Script>, address: SocketAddr) -> Result<Self, StartError> {
        let service = Arc::new(Service::new(script.into())?);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Thread)?;
        let listener = {
            let _inside = runtime.enter();
            listen(address).map_err(|source| StartError::Listen { address, source })?
        };
        let address = listener.local_addr().map_err(|source| StartError::Listen { address, source })?;
        let (stop, stopped) = oneshot::channel();
        let shared = Arc::clone(&service);
        let thread = std::thread::Builder::new()
            .name("scripted-server".to_owned())
            .spawn(move || {
                runtime.block_on(accept(listener, shared, stopped));
                runtime.shutdown_background();
            })
            .map_err(StartError::Thread)?;
        Ok(Self { address, service, stop: Some(stop), thread: Some(thread) })
    }

    /// `base_url` of the server, ending in `/v1`.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What happened so far.
    pub fn stats(&self) -> Stats {
        self.service.counts.stats()
    }

    /// Closes all connections and ends the thread; the counts stay readable.
    pub fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

async fn accept(listener: TcpListener, service: Arc<Service>, mut stopped: oneshot::Receiver<()>) {
    loop {
        let accepted = tokio::select! {
            _ = &mut stopped => return,
            accepted = listener.accept() => accepted,
        };
        if let Ok((stream, _)) = accepted {
            tokio::spawn(serve(stream, Arc::clone(&service)));
        } else {
            // out of files, most likely: those in use come back
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
}
