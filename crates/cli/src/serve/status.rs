//! How a server does: `/metrics` for Prometheus, `/health` for what restarts it, `/` for people.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;

use super::families::{ACTIVE, BUILD, FAMILIES, FILES, RECEIVED, SENT, SESSIONS, STARTED};
use super::http::{Answer, Site};
use super::metrics::Metrics;
use crate::units::{show_size, show_time};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What is told of a server.
#[derive(Debug)]
pub struct Status {
    metrics: Arc<Metrics>,
    started: Instant,
    failing: AtomicBool,
}

/// What `/health` says.
#[derive(Serialize)]
struct Health {
    /// `ok`, or `failing`: it does not listen everywhere it should.
    status: &'static str,
    version: &'static str,
    uptime_s: u64,
    active_sessions: u64,
}

impl Status {
    /// Of a server that begins now. The metrics are to be asked for with [`Status::metrics`].
    pub fn begin() -> Self {
        let metrics = Arc::new(Metrics::new(FAMILIES));
        metrics.value(&BUILD, &[VERSION]).set(1);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        metrics.value(&STARTED, &[]).set(now.unwrap_or(Duration::ZERO).as_secs());
        Status { metrics, started: Instant::now(), failing: AtomicBool::new(false) }
    }

    /// From now on it is not well: a listener has ended.
    pub fn fail(&self) {
        self.failing.store(true, Ordering::Relaxed);
    }

    /// Where to count.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    fn health(&self) -> Health {
        Health {
            status: if self.failing.load(Ordering::Relaxed) { "failing" } else { "ok" },
            version: VERSION,
            uptime_s: self.started.elapsed().as_secs(),
            active_sessions: self.metrics.sum(&ACTIVE),
        }
    }

    /// All numbers and texts in it are the program's own.
    fn page(&self) -> String {
        let Health { version, active_sessions, .. } = self.health();
        let sum = |family| self.metrics.sum(family);
        let rows = [
            ("Up for", show_time(Duration::from_secs(self.started.elapsed().as_secs()))),
            ("Sessions now", active_sessions.to_string()),
            ("Sessions ended", sum(&SESSIONS).to_string()),
            ("Files moved", sum(&FILES).to_string()),
            ("Received", show_size(sum(&RECEIVED))),
            ("Sent", show_size(sum(&SENT))),
        ];
        let rows: String =
            rows.iter().map(|(name, value)| format!("<tr><th>{name}<td>{value}\n")).collect();
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>farhaul</title>\n\
             <style>body{{font:16px sans-serif;margin:2em}}th{{text-align:left;padding-right:2em}}\
             </style>\n<h1>farhaul {version}</h1>\n<table>\n{rows}</table>\n\
             <p><a href=\"/metrics\">metrics</a> <a href=\"/health\">health</a>\n</html>\n"
        )
    }
}

impl Site for Status {
    fn get(&self, path: &str) -> Option<Answer> {
        const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        let answer = |kind, body| Some(Answer { kind, body, failing: false });
        match path {
            "/" => answer("text/html; charset=utf-8", self.page()),
            "/metrics" => answer(METRICS, self.metrics.text()),
            "/health" => {
                let body = serde_json::to_string(&self.health()).ok()? + "\n";
                let failing = self.failing.load(Ordering::Relaxed);
                Some(Answer { kind: "application/json", body, failing })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_told() {
        let status = Status::begin();
        let body = |path| status.get(path).map(|answer| answer.body).unwrap_or_default();
        let held = status.metrics().value(&ACTIVE, &["alice", "data"]).hold();
        status.metrics().value(&RECEIVED, &["alice", "data"]).add(2_000_000);
        let health: serde_json::Value = serde_json::from_str(&body("/health")).expect("JSON");
        assert_eq!((&health["status"], &health["active_sessions"]), (&"ok".into(), &1.into()));
        assert_eq!(health["version"], VERSION);
        let metrics = body("/metrics");
        let line = "farhaul_received_bytes_total{client=\"alice\",export=\"data\"} 2000000\n";
        assert!(metrics.contains(line) && metrics.ends_with("# EOF\n"), "{metrics}");
        assert!(metrics.contains(&format!("farhaul_build_info{{version=\"{VERSION}\"}} 1\n")));
        assert!(body("/").contains("<tr><th>Received<td>2.00 MB\n"), "{}", body("/"));
        assert!(status.get("/health").is_some_and(|answer| !answer.failing));
        status.fail();
        assert!(status.get("/health").is_some_and(|answer| answer.failing));
        assert!(body("/health").contains("\"failing\""));
        drop(held);
        assert!(body("/").contains("<tr><th>Sessions now<td>0\n"));
        assert!(status.get("/other").is_none());
    }
}
