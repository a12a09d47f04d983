//! Any text is a location or none; a host is one that ssh cannot take for an option.

#![no_main]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use farhaul_mover::location::Location;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match Location::parse(OsStr::from_bytes(bytes)) {
        Ok(Location::Here(path)) => assert_eq!(path.as_os_str().as_bytes(), bytes),
        Ok(Location::There(there)) => {
            assert!(!there.host.is_empty());
            assert!(!there.host.split('@').any(|part| part.is_empty() || part.starts_with('-')));
            assert!(!there.host.chars().any(|c| c.is_control() || c == ' '));
            assert!(bytes.ends_with(there.path.as_os_str().as_bytes()));
            assert!(bytes.contains(&b':'));
        }
        Ok(Location::Served(served)) => {
            let scheme = bytes.get(..10).is_some_and(|b| b.eq_ignore_ascii_case(b"farhaul://"));
            assert!(scheme);
            assert!(!served.host.is_empty() && served.port > 0);
            assert!(!served.path.is_absolute());
        }
        Ok(Location::Standard) => assert_eq!(bytes, b"-"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
