//! The settings, each defined once.

use std::time::Duration;

use farhaul::Law;

use super::layers::{Layers, Origin, Setting};
use super::value::{
    self, Kind, Locals, Memory, PortRange, Preserve, RateLimit, Reachable, Streams, Transport,
    Verify,
};
use crate::exit::Usage;

/// What is known of a setting without its value.
pub struct Info {
    /// Its name in files; `--` and the name is its flag.
    pub name: &'static str,
    /// What may be written.
    pub form: &'static str,
    /// As it is written.
    pub default: &'static str,
    /// What it does, in one line.
    pub help: &'static str,
    /// What is wrong with this text as its value.
    pub check: fn(&str) -> Result<(), String>,
}

impl Info {
    /// Its variable of the environment.
    pub fn variable(&self) -> String {
        format!("{}{}", crate::places::PREFIX, self.name.to_uppercase().replace('-', "_"))
    }
}

/// A setting as it is in force.
pub struct Shown {
    /// What is known of it anyway.
    pub info: &'static Info,
    /// Its value as it is written.
    pub value: String,
    /// Where that comes from.
    pub origin: Origin,
}

macro_rules! settings {
    ($($field:ident $name:literal: $type:ty = $kind:expr, $default:literal, $help:literal;)*) => {
        /// The settings of `farhaul cp` in force for one host.
        #[derive(Clone, Debug)]
        pub struct Settings {
            $(#[doc = $help] pub $field: Setting<$type>,)*
        }

        /// What was set by flags; none of what was not.
        #[derive(Clone, Debug, Default)]
        pub struct FlagLayer {
            $(#[doc = $help] pub $field: Option<$type>,)*
        }

        /// All settings, in the order in which they are shown.
        pub const CATALOGUE: &[Info] = &[$(Info {
            name: $name,
            form: { const KIND: Kind<$type> = $kind; KIND.form },
            default: $default,
            help: $help,
            check: |text| { const KIND: Kind<$type> = $kind; (KIND.parse)(text).map(drop) },
        },)*];

        impl Settings {
            pub(super) fn of(flags: &FlagLayer, layers: &Layers<'_>) -> Result<Settings, Usage> {
                let mut infos = CATALOGUE.iter();
                $(let $field = layers.find(flags.$field.as_ref(), infos.next(), &$kind)?;)*
                Ok(Settings { $($field,)* })
            }

            /// Each of them as text.
            pub fn shown(&self) -> Vec<Shown> {
                let values = [$(
                    ((const { $kind }.show)(&self.$field.value), self.$field.origin.clone()),
                )*];
                let shown = |(info, (value, origin))| Shown { info, value, origin };
                CATALOGUE.iter().zip(values).map(shown).collect()
            }
        }
    };
}

settings! {
    cc "cc": Law = value::LAW, "bbr",
        "Congestion control law of the sending side; farhaul cc list lists them";
    rate "rate": RateLimit = value::RATE, "none",
        "Send at most so fast, all connections together, headers included";
    streams "streams": Streams = value::STREAMS, "auto",
        "Connections that carry data side by side";
    transport "transport": Transport = value::TRANSPORT, "auto",
        "What data travels over: UDT over UDP (udp is the same), TCP, or UDT where it passes";
    ssh "ssh": String = value::WORDS, "ssh",
        "Command, with options, that starts the other side's farhaul";
    remote_farhaul "remote-farhaul": String = value::WORDS, "farhaul",
        "Path of farhaul on the other side";
    verify "verify": Verify = value::VERIFY, "full",
        "Compare the digests of files, or do not";
    trust_partial "trust-partial": bool = value::SWITCH, "false",
        "Take what is synced of partial files as it is, and do not read it again; then it is not verified";
    plain "plain": bool = value::SWITCH, "false",
        "Allow, and ask for, data that is not encrypted";
    outage "outage": Duration = value::TIME, "60s",
        "Keep trying for so long when the network is away";
    preserve "preserve": Preserve = value::PRESERVE, "mode,times,sparse",
        "What beside the contents of files is kept";
    mss "mss": u32 = value::MSS, "1500",
        "Maximum segment size, bytes: the MTU of the path";
    receive_memory "receive-memory": Memory = value::MEMORY, "auto",
        "Memory of a connection for received data that waits to be read";
    send_memory "send-memory": Memory = value::MEMORY, "auto",
        "Memory of a connection for data that is not acknowledged yet";
    bind "bind": Locals = value::LOCALS, "any",
        "Local addresses or interfaces that connections go out from";
    listen_ports "listen-ports": PortRange = value::PORTS, "any",
        "Ports that the other side may listen at";
    advertise "advertise": Reachable = value::REACHABLE, "auto",
        "Addresses at which others reach this host, as behind NAT, when it is the other side";
    progress "progress": bool = value::SWITCH, "true",
        "Show how far it is";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::DEFAULT_LAW;

    #[test]
    fn every_default_is_a_value_and_written_as_such() {
        let layers = Layers::default();
        let settings = Settings::of(&FlagLayer::default(), &layers).expect("the defaults");
        for Shown { info, value, origin } in settings.shown() {
            assert_eq!((value.as_str(), origin), (info.default, Origin::Default), "{}", info.name);
            assert!((info.check)(info.default).is_ok());
        }
        assert_eq!(settings.cc.value.name(), DEFAULT_LAW);
        assert_eq!(settings.outage.value, Duration::from_secs(60));
    }

    /// As the arguments of a command hand them over.
    #[derive(clap::Parser)]
    struct Flags {
        #[arg(long, value_parser = value::RATE.parse)]
        rate: Option<RateLimit>,
        #[arg(long, value_parser = value::LOCALS.parse)]
        bind: Option<Locals>,
        #[arg(long, value_parser = value::STREAMS.parse)]
        streams: Option<Streams>,
    }

    #[test]
    fn parsed_arguments_are_a_layer() {
        let parse = |args: &[&str]| <Flags as clap::Parser>::try_parse_from(args);
        let flags = parse(&["x", "--rate", "none", "--bind", "eth0,::1"]).expect("arguments");
        let layer = FlagLayer {
            rate: flags.rate,
            bind: flags.bind,
            streams: flags.streams,
            ..FlagLayer::default()
        };
        let settings = Settings::of(&layer, &Layers::default()).expect("settings");
        assert_eq!((settings.rate.value, settings.rate.origin), (None, Origin::Flag));
        assert_eq!((settings.bind.value.len(), settings.bind.origin), (2, Origin::Flag));
        assert_eq!(settings.streams.origin, Origin::Default);
        assert!(parse(&["x", "--rate"]).is_err() && parse(&["x", "--streams", "99"]).is_err());
    }

    #[test]
    fn names_are_alike() {
        for info in CATALOGUE {
            let fits = |c: char| c.is_ascii_lowercase() || c == '-';
            assert!(info.name.chars().all(fits), "{}", info.name);
        }
        assert_eq!(CATALOGUE[4].variable(), "FARHAUL_SSH");
        assert_eq!(CATALOGUE[5].variable(), "FARHAUL_REMOTE_FARHAUL");
    }
}
