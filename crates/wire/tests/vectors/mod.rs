//! The vectors of `udt4-packets.json`.

#![allow(clippy::unwrap_used, reason = "a broken file fails the test that loads it")]

use serde_json::Value;

/// One captured datagram.
pub struct Vector {
    pub name: String,
    pub bytes: Vec<u8>,
    pub fields: Value,
}

/// All vectors, in file order.
pub fn load() -> Vec<Vector> {
    let file: Value = serde_json::from_str(include_str!("../udt4-packets.json")).unwrap();
    let vectors: Vec<Vector> = file["vectors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|vector| Vector {
            name: vector["name"].as_str().unwrap().to_owned(),
            bytes: from_hex(vector["hex"].as_str().unwrap()),
            fields: vector["fields"].clone(),
        })
        .collect();
    assert_eq!(vectors.len(), 36);
    vectors
}

fn from_hex(hex: &str) -> Vec<u8> {
    assert!(hex.len().is_multiple_of(2));
    let digit = |c: u8| char::from(c).to_digit(16).unwrap() as u8;
    hex.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}
