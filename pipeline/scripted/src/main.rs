//! The program `scripted-server`: the library's switches as flags.

use std::error::Error;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use clap::Parser;
use scripted_server::{Options, Server};
use tokio::signal::unix::{SignalKind, signal};

/// A scripted, faulty model server with the protocol of OpenAI, for tests of everything that asks a model.
///
/// Serves /v1/chat/completions, /v1/models, /v1/files, /v1/batches, /health, and its counts at /stats. Sums such as
/// `12 + 30` in the last message are worked out, other questions get a made-up text, JSON schemas an instance; rules
/// say something else. What happens is decided by the seed and by what is asked: the same test does the same again.
#[derive(Parser)]
#[command(name = "scripted-server", version)]
#[command(after_long_help = "Examples:
  scripted-server --port 8000 --delay 100ms
  scripted-server --delay lognormal:300ms,0.6 --every-fault 0.005 --fault hang=0 --seed 7
  scripted-server --requests-per-minute 600 --limit-headers open-ai --window fixed
  scripted-server --rules rules.jsonl --reasoning tags --schema ignore
  curl -s http://127.0.0.1:8000/stats")]
struct Arguments {
    /// Address to listen on
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut text = format!("error: {error}");
            let mut source = error.source();
            while let Some(cause) = source {
                text.push_str(&format!(": {cause}"));
                source = cause.source();
            }
            let _ = writeln!(std::io::stderr(), "{text}");
            ExitCode::from(2)
        }
    }
}

/// Serves until it is interrupted; the address goes to stdout, the counts at the end as well.
fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let mut server = Server::start_at(arguments.options, SocketAddr::new(arguments.host, arguments.port))?;
    let mut out = std::io::stdout();
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        // watched before the address is told: who knows it may send a signal
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        writeln!(out, "listening on {}", server.url())?;
        out.flush()?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        std::io::Result::Ok(())
    })?;
    server.stop();
    writeln!(out, "{}", serde_json::to_string(&server.stats())?)?;
    Ok(())
}
