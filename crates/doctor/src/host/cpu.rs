//! The processor.

use serde::{Deserialize, Serialize};

use crate::Root;

/// Instructions that ciphers, checksums and copies are fast by.
const USEFUL: [&str; 10] = [
    "aes",
    "vaes",
    "pclmulqdq",
    "vpclmulqdq",
    "avx",
    "avx2",
    "avx512f",
    "sha_ni",
    "pmull",
    "asimd",
];
const CPUS: &str = "/sys/devices/system/cpu";

/// A processor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cpu {
    /// As it calls itself.
    pub model: String,
    /// Logical processors that are on.
    pub count: u32,
    /// The frequency governors, each once; none on machines without, as virtual ones.
    pub governors: Vec<String>,
    /// Which driver sets frequencies; under `intel_pstate` and `amd-pstate-epp` the governor
    /// `powersave` follows the load.
    pub frequency_driver: String,
    /// The slowest present frequency, MHz.
    pub slowest_mhz: Option<u32>,
    /// The highest frequency, MHz.
    pub max_mhz: Option<u32>,
    /// How many processes want to run, averaged over a minute.
    pub load: Option<f64>,
    /// The instructions it has of those that help.
    pub flags: Vec<String>,
    /// A virtual machine's.
    pub virtual_machine: bool,
}

pub(super) fn read(root: &Root) -> Cpu {
    let info = root.read("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let mut values = info.lines().filter_map(|line| line.split_once(':'));
        values.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
    };
    let count = info.lines().filter(|line| line.starts_with("processor")).count() as u32;
    let flags = field("flags").or_else(|| field("Features")).unwrap_or_default();
    let has = |flag: &str| flags.split_whitespace().any(|has| has == flag);
    let mut governors = each(root, "scaling_governor");
    governors.sort();
    governors.dedup();
    let mhz =
        |name| each(root, name).into_iter().filter_map(|khz| Some(khz.parse::<u32>().ok()? / 1000));
    let first = format!("{CPUS}/cpu0/cpufreq/scaling_driver");
    let load =
        root.read("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    Cpu {
        model: field("model name").or_else(|| field("Processor")).unwrap_or_default(),
        count,
        governors,
        frequency_driver: root.read(&first).unwrap_or_default(),
        slowest_mhz: mhz("scaling_cur_freq").min(),
        max_mhz: mhz("cpuinfo_max_freq").max(),
        load: load.filter(|load| load.is_finite() && *load >= 0.0),
        virtual_machine: has("hypervisor"),
        flags: USEFUL.into_iter().filter(|flag| has(flag)).map(str::to_owned).collect(),
    }
}

/// A file of the frequency settings of each processor.
fn each(root: &Root, file: &str) -> Vec<String> {
    let is_cpu = |name: &String| {
        let number = name.strip_prefix("cpu").unwrap_or("");
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let cpus = root.list(CPUS).into_iter().filter(is_cpu);
    cpus.filter_map(|cpu| root.read(&format!("{CPUS}/{cpu}/cpufreq/{file}"))).collect()
}
