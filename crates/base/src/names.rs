//! The name that somebody meant who wrote another.

/// Names longer than this are not compared.
const LONGEST: usize = 100;
/// More names than this are not listed.
const MOST_NAMES: usize = 40;

/// The one of `known` that `word` is likely to be a misspelling of.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > LONGEST {
        return None;
    }
    // Capitals are no other word.
    let small = word.to_lowercase();
    let distance = |name: &&str| strsim::damerau_levenshtein(&small, &name.to_lowercase());
    // To compare long words takes much time and memory.
    let comparable = |name: &&str| name.len() <= LONGEST;
    let nearest = known.filter(comparable).min_by_key(distance);
    // A word of which hardly a letter fits is not a misspelt one.
    nearest.filter(|name| distance(name) <= 1 + word.len() / 3 && distance(name) < word.len())
}

/// `did you mean 'X'?` if one of `known` is close to `word`, else the list of them.
pub fn suggestion<'a>(word: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    match nearest(word, known.clone()) {
        Some(name) => format!("did you mean '{name}'?"),
        None => {
            let mut names: Vec<&str> = Vec::new();
            for name in known {
                if names.len() > MOST_NAMES {
                    break;
                }
                if name.len() <= LONGEST && !names.contains(&name) {
                    names.push(name);
                }
            }
            let more = if names.len() > MOST_NAMES { ", …" } else { "" };
            names.truncate(MOST_NAMES);
            format!("there are {}{more}", names.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_or_all() {
        let known = ["rate", "delay", "queue"];
        assert_eq!(suggestion("dealy", known.into_iter()), "did you mean 'delay'?");
        assert_eq!(suggestion("RATE", known.into_iter()), "did you mean 'rate'?");
        assert_eq!(suggestion("colour", known.into_iter()), "there are rate, delay, queue");
    }
}
