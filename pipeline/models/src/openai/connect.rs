//! The HTTP client and its address.

use std::net::IpAddr;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client, Url};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::{ModelConfig, Timing};
use crate::error::ModelError;
use crate::secret::Secret;

const AGENT: &str = concat!("pipeline/", env!("CARGO_PKG_VERSION"));
const IDLE_CONNECTION: Duration = Duration::from_secs(90);
const KEEP_ALIVE: Duration = Duration::from_mins(1);
/// Files that the rest of the program may have open.
const OTHER_FILES: u64 = 512;

/// The key named by the configuration.
pub(super) fn secret(
    config: &ModelConfig,
    name: &str,
    environment: &dyn Fn(&str) -> Option<Secret>,
) -> Result<Option<Secret>, ModelError> {
    let Some(variable) = &config.api_key_env else {
        return Ok(None);
    };
    match environment(variable) {
        Some(secret) if !secret.expose().is_empty() => Ok(Some(secret)),
        _ => Err(ModelError::config(
            name,
            format!("environment variable `{variable}`, named by `api_key_env`, is not set"),
        )),
    }
}

/// A client with a connection for each request in flight, and no time limit on a whole request: a long
/// generation is no failure. Silence is limited where the reply is read.
pub(super) fn client(
    address: &Url,
    secret: Option<&Secret>,
    in_flight: usize,
    name: &str,
    timing: &Timing,
) -> Result<Client, ModelError> {
    let mut headers = HeaderMap::new();
    if let Some(secret) = secret {
        let mut value = HeaderValue::from_str(&format!("Bearer {}", secret.expose()))
            .map_err(|_| ModelError::config(name, "the key holds characters that cannot be sent"))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    let mut builder = Client::builder()
        .user_agent(AGENT)
        .default_headers(headers)
        .http1_only()
        .pool_max_idle_per_host(in_flight)
        .pool_idle_timeout(IDLE_CONNECTION)
        .tcp_nodelay(true)
        .tcp_keepalive(KEEP_ALIVE)
        .connect_timeout(timing.connect)
        .redirect(reqwest::redirect::Policy::none());
    if is_loopback(address) {
        builder = builder.no_proxy();
    }
    if address.scheme() == "http" && is_loopback(address) {
        // Without encryption no certificates are needed, and a bare machine may have none.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| ModelError::config(name, format!("no HTTP client: {}", chain(&error))))
}

/// The address that requests go to.
pub(super) fn completions(mut base: Url) -> Url {
    const END: &str = "/chat/completions";
    let path = base.path().trim_end_matches('/').to_owned();
    if !path.ends_with(END) {
        base.set_path(&format!("{path}{END}"));
    }
    base
}

/// Lets the process have a connection for each request in flight, as far as the system allows.
pub(super) fn allow_connections(in_flight: u32) {
    let wanted = u64::from(in_flight) + OTHER_FILES;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        let current = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
        // Where it is refused, the connections beyond the limit fail and are tried again.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: limit.maximum });
    }
}

/// An error with its causes: the outer one alone says little.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

fn is_loopback(address: &Url) -> bool {
    let host = address.host_str().unwrap_or_default();
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || host.ends_with(".localhost") || ip.is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn requests_go_below_the_base_address() {
        for base in ["http://h:1/v1", "http://h:1/v1/", "http://h:1/v1/chat/completions"] {
            assert_eq!(completions(url(base)).as_str(), "http://h:1/v1/chat/completions");
        }
        assert_eq!(completions(url("http://h/v1?v=2")).as_str(), "http://h/v1/chat/completions?v=2");
    }

    #[test]
    fn this_machine_is_known_by_all_its_names() {
        for text in ["http://localhost/v1", "http://127.0.0.1:8080", "http://127.9.9.9", "http://[::1]:80/v1"] {
            assert!(is_loopback(&url(text)), "{text}");
        }
        for text in ["http://localhost.example.org", "http://10.0.0.1", "https://example.org"] {
            assert!(!is_loopback(&url(text)), "{text}");
        }
    }
}
