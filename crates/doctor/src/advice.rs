//! What a transfer would be limited by, and what would help most.
//!
//! A transfer is as fast as the slowest of its stages ([`Stage`]). Each piece of advice is tried on the
//! reports: the rate expected after it, over the rate before, is its gain. Rates are estimates: those
//! of stages that were measured are as good as the measurement, others rest on what such hosts were
//! seen to do (`docs/performance.md`).

mod commands;
mod remedy;
mod rules;
mod stage;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::{HostReport, PathReport};
#[doc(hidden)]
pub use commands::own_commands;
use remedy::Remedy;
pub use rules::SOCKET_BUFFER;
pub use stage::{Side, Stage, StageKind};
use stage::{Situation, expected, softly, stages};

/// What helps with a gain of less is no limit of this transfer.
const WORTH_IT: f64 = 1.05;

/// What there is to say of a transfer from the local host to its peer; without a peer, to itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// Bits per second that a transfer of large files should reach; `None`: no stage is known.
    pub expected: Option<f64>,
    /// What limits it, or that no path is known, in a sentence; empty: unknown.
    pub bottleneck: String,
    /// All stages of which a rate is known, the slowest first.
    pub stages: Vec<Stage>,
    /// What to do, what helps most first.
    pub advice: Vec<Advice>,
}

/// What could be done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// How much it matters.
    pub severity: Severity,
    /// Where it is to be done; `None`: with the command that transfers.
    pub host: Option<Side>,
    /// What was found.
    pub found: String,
    /// Why that matters.
    pub why: String,
    /// The command that mends it; `None`: no command does.
    pub command: Option<String>,
    /// The expected rate with this over that without, all advice before it followed; 1 where the gain was not
    /// measured; `None`: without it there is none.
    pub gain: Option<f64>,
    /// Bits per second expected then; `None`: no stage is known.
    pub expected: Option<f64>,
}

/// How much something matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Without it, nothing gets through.
    Blocks,
    /// It makes this transfer faster.
    Limits,
    /// It takes load off a host, or would limit a faster transfer.
    Helps,
    /// Good to know.
    Note,
}

/// What limits a transfer from `local` to `peer` over `path` (*forward* is from local to peer), and
/// what would help. Without `peer` the local host is taken for both.
pub fn advise(
    local: &HostReport,
    peer: Option<&HostReport>,
    path: Option<&PathReport>,
) -> Diagnosis {
    let mut situation = Situation::new(local.clone(), peer.cloned(), path.cloned());
    let mut stages = stages(&situation);
    stages.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    let (before, bottleneck) = match situation.no_answer() {
        true => (None, "Nothing has answered, so that nothing is known of the path".to_owned()),
        false => {
            let slowest = stages.first().map(|stage| stage.sentence());
            (expected(&stages), slowest.unwrap_or_default())
        }
    };
    let mut left = rules::all(&situation);
    let mut advice = Vec::new();
    while !left.is_empty() {
        let best = best(&situation, &left);
        let remedy = left.remove(best);
        advice.extend(apply(&mut situation, remedy));
    }
    // What blocks comes first whatever else it depends on; the rest is in the order of its gain.
    advice.sort_by_key(|advice| advice.severity);
    Diagnosis { expected: before, bottleneck, stages, advice }
}

/// Which of the remedies helps most now. Stages that are nearly as slow as the slowest count, too: of
/// two equal limits neither helps alone.
fn best(situation: &Situation, left: &[Remedy]) -> usize {
    let mut best = (0, (usize::MAX, 0.0));
    for (index, remedy) in left.iter().enumerate() {
        let mut mended = situation.clone();
        (remedy.mend)(&mut mended);
        let score = softly(&stage::stages(&mended));
        let better = score.0 < best.1.0 || (score.0 == best.1.0 && score.1 > best.1.1 * 1.000_001);
        if index == 0 || better {
            best = (index, score);
        }
    }
    best.0
}

/// Follows the remedy, unless it is a hint: what that gains is not measured, so that nothing is promised of it
/// beyond the limit that was named. `None`: there is nothing to say of it.
fn apply(situation: &mut Situation, remedy: Remedy) -> Option<Advice> {
    let before = stages(situation);
    let mut mended = situation.clone();
    (remedy.mend)(&mut mended);
    let after = stages(&mended);
    if !remedy.hint {
        *situation = mended;
    }
    let (blocked, opened) = (softly(&before), softly(&after));
    let then = expected(if remedy.hint { &before } else { &after });
    let rates = expected(&before).zip(then);
    let gain =
        rates.map(|(before, after)| if before > 0.0 { after / before } else { f64::INFINITY });
    let severity = if opened.0 < blocked.0 {
        Severity::Blocks
    } else if gain.is_some_and(|gain| gain.is_finite() && gain >= WORTH_IT) {
        Severity::Limits
    } else if opened.1 > blocked.1 * 1.01 {
        remedy.severity.min(Severity::Helps)
    } else {
        remedy.severity
    };
    if remedy.only_as_limit && severity > Severity::Limits {
        return None;
    }
    Some(Advice {
        severity,
        host: remedy.host,
        found: remedy.found,
        why: remedy.why,
        command: remedy.command,
        gain: if severity == Severity::Blocks {
            None
        } else {
            Some(gain.filter(|g| g.is_finite()).unwrap_or(1.0))
        },
        expected: then,
    })
}
