//! Reading a receipt: as a stream, so that one of a million files costs no memory.

use std::fmt;
use std::io::Read;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::FORMAT;

/// A file of a receipt, as it is written there.
#[derive(Clone, Debug, Deserialize)]
pub struct Entry {
    pub path: String,
    pub path_hex: Option<String>,
    pub size: u64,
    pub digest: Option<String>,
    pub hash: Option<String>,
    #[serde(default)]
    pub outcome: String,
}

/// What a receipt says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Everything was copied.
    pub complete: bool,
}

/// Reads a receipt and hands each of its files on; what `take` says against one ends it.
///
/// # Errors
///
/// It is no receipt, it is cut, or `take` refused a file.
pub fn read(
    input: impl Read,
    mut take: impl FnMut(Entry) -> Result<(), String>,
) -> Result<About, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_reader(input);
    let about = Whole(&mut take).deserialize(&mut json)?;
    json.end()?;
    Ok(about)
}

type Take<'a> = &'a mut dyn FnMut(Entry) -> Result<(), String>;

struct Whole<'a>(Take<'a>);

impl<'de> DeserializeSeed<'de> for Whole<'_> {
    type Value = About;

    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<About, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = About;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a receipt of farhaul cp")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<About, A::Error> {
        let (mut format, mut files, mut complete) = (None, false, None);
        while let Some(name) = members.next_key::<String>()? {
            match name.as_str() {
                "farhaul_receipt" => {
                    let found: u32 = members.next_value()?;
                    if found != FORMAT {
                        let text = format!(
                            "it is of form {found}, this farhaul knows {FORMAT}: take one of the \
                             version that wrote it"
                        );
                        return Err(A::Error::custom(text));
                    }
                    format = Some(found);
                }
                "files" => {
                    members.next_value_seed(Files(&mut *self.0))?;
                    files = true;
                }
                "complete" => complete = Some(members.next_value()?),
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        match (format, files, complete) {
            (Some(_), true, Some(complete)) => Ok(About { complete }),
            _ => Err(A::Error::custom("farhaul_receipt, files or complete is missing")),
        }
    }
}

struct Files<'a>(Take<'a>);

impl<'de> DeserializeSeed<'de> for Files<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Files<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of files")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut files: A) -> Result<(), A::Error> {
        while let Some(entry) = files.next_element()? {
            (self.0)(entry).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Result<(Vec<String>, About), String> {
        let mut paths = Vec::new();
        let about = read(text.as_bytes(), |entry| {
            paths.push(entry.path);
            if paths.len() > 2 { Err("too many".into()) } else { Ok(()) }
        });
        about.map(|about| (paths, about)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_receipt_is_read_in_any_layout() {
        let text = r#"{"complete":true,"new":[{}],"files":[
            {"path":"a","size":1,"digest":null,"outcome":"moved","more":{}},{"size":2,"path":"b"}
            ],"farhaul_receipt":1}"#;
        let (found, about) = paths(text).unwrap();
        assert_eq!((found, about.complete), (vec!["a".to_owned(), "b".to_owned()], true));
    }

    #[test]
    fn what_is_no_receipt_is_told() {
        let file = r#"{"path":"a","size":1}"#;
        for (text, told) in [
            ("", "EOF"),
            ("[]", "a receipt of farhaul cp"),
            ("{}", "missing"),
            (r#"{"farhaul_receipt":2,"files":[],"complete":true}"#, "of form 2"),
            (r#"{"farhaul_receipt":1,"files":[{}],"complete":true}"#, "path"),
            (r#"{"farhaul_receipt":1,"files":[],"complete":true} x"#, "trailing"),
            (&format!(r#"{{"farhaul_receipt":1,"files":[{file}"#), "EOF"),
            (&format!(r#"{{"farhaul_receipt":1,"files":[{file},{file},{file}]}}"#), "too many"),
        ] {
            let error = paths(text).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
