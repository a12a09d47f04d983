//! The first lines of a controller and of an agent are read whatever they are, and what is shown of
//! them is fit for a terminal.

#![no_main]

use std::io::{self, Cursor};

use farhaul_remote::bootstrap::{GREETING_PREFIX, Greeting, Hello, Start};
use farhaul_remote::{agent, look_for_greeting};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let input = Cursor::new(bytes.to_vec());
    let served = agent::serve(input, io::sink(), |hello: Hello| {
        let text = serde_json::to_string(&hello).expect("plain data");
        let again: Hello = serde_json::from_str(&text).expect("what was written");
        assert_eq!(
            (again.key, again.session, again.plain),
            (hello.key, hello.session, hello.plain)
        );
        let _ = hello.check();
        Err::<(Greeting, ()), _>("no".to_owned())
    });
    fit(&served.expect_err("it is always refused").to_string());
    if let Ok(start) = serde_json::from_slice::<Start>(bytes) {
        let text = serde_json::to_string(&start).expect("plain data");
        assert_eq!(serde_json::from_str::<Start>(&text).expect("what was written"), start);
    }
    for prefix in ["", GREETING_PREFIX] {
        let said = [prefix.as_bytes(), bytes].concat();
        match look_for_greeting(&mut &said[..], "host") {
            Ok(greeting) => {
                let (udp, tcp) = greeting.candidates(&[]);
                assert!(udp.len() <= 32 && tcp.len() <= 32);
            }
            Err(error) => fit(&error.to_string()),
        }
    }
});

fn fit(text: &str) {
    assert!(!text.chars().any(char::is_control), "{text:?}");
    assert!(text.len() < 2000);
}
