//! Commands of farhaul's own that advice has; `…` stands for what is copied.

/// Over TCP alone.
pub(super) fn over_tcp() -> String {
    "farhaul cp --transport tcp …".into()
}

/// With packets of so many bytes.
pub(super) fn with_mss(bytes: u16) -> String {
    format!("farhaul cp --mss {bytes} …")
}

/// On the other host.
pub(super) fn respond() -> String {
    "farhaul doctor --respond :PORT --secret-file FILE".into()
}

/// One of each, for who checks that they exist.
#[doc(hidden)]
pub fn own_commands() -> Vec<String> {
    vec![over_tcp(), with_mss(1400), respond()]
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_rule_has_a_command_that_is_not_here() {
        let rules = include_str!("rules.rs");
        let literal = ["\"", "farhaul"].concat();
        assert!(!rules.contains(&format!("{literal} cp")), "a command is written out there");
        assert!(!rules.contains(&format!("{literal} doctor")), "a command is written out there");
    }
}
