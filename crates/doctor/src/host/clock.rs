//! Whether the clock is kept right.

use serde::{Deserialize, Serialize};

use crate::Root;

/// The clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Clock {
    /// Whether some service keeps it right; `None`: nobody says.
    pub synchronised: Option<bool>,
    /// Who said so.
    pub told_by: String,
    /// What it counts by, such as `tsc`.
    pub source: String,
}

pub(super) fn read(root: &Root) -> Clock {
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let (synchronised, told_by) = synchronised(root).unzip();
    Clock {
        synchronised,
        told_by: told_by.unwrap_or_default().to_owned(),
        source: root.read(source).unwrap_or_default(),
    }
}

fn synchronised(root: &Root) -> Option<(bool, &'static str)> {
    // Only a service that runs and has succeeded makes this file.
    if root.exists("/run/systemd/timesync/synchronized") {
        return Some((true, "systemd-timesyncd"));
    }
    if let Some(text) = root.run("chronyc", &["-n", "tracking"]) {
        let leap = text.lines().find_map(|line| line.strip_prefix("Leap status"))?;
        let leap = leap.trim_start_matches([' ', ':']).trim();
        return Some((!leap.eq_ignore_ascii_case("not synchronised"), "chrony"));
    }
    let text = root.run("timedatectl", &["show"])?;
    let value = text.lines().find_map(|line| line.strip_prefix("NTPSynchronized="))?;
    match value.trim() {
        "yes" => Some((true, "timedatectl")),
        "no" => Some((false, "timedatectl")),
        _ => None,
    }
}
