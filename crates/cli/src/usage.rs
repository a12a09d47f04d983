//! What this process has used of the machine.

use std::fs;

use serde::Serialize;

/// Processor time, seconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Cpu {
    pub user_s: f64,
    pub system_s: f64,
}

impl Cpu {
    /// Of this process so far, to the kernel's tick of 10 ms. Zero where there is no /proc.
    pub fn now() -> Cpu {
        let Ok(stat) = fs::read_to_string("/proc/self/stat") else { return Cpu::default() };
        // The name, in parentheses, may contain anything; fields count from behind it.
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks = |index: usize| {
            let field = rest.split_whitespace().nth(index)?;
            field.parse::<f64>().ok()
        };
        const TICKS_PER_SECOND: f64 = 100.0;
        Cpu {
            user_s: ticks(11).unwrap_or(0.0) / TICKS_PER_SECOND,
            system_s: ticks(12).unwrap_or(0.0) / TICKS_PER_SECOND,
        }
    }

    /// What was used since `earlier`.
    pub fn since(self, earlier: Cpu) -> Cpu {
        Cpu { user_s: self.user_s - earlier.user_s, system_s: self.system_s - earlier.system_s }
    }
}

/// The most memory this process has had resident, bytes. Zero where there is no /proc.
pub fn peak_rss_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
