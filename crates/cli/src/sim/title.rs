//! What several runs are called.

use farhaul_lab::sweep::Measured;

/// What the runs' titles have in common; may be empty.
pub fn of(measured: &[Measured]) -> String {
    let titles: Vec<&str> = measured.iter().map(|run| run.report.title.as_str()).collect();
    common(&titles)
}

/// The title that all have; of those with variables in them the words at both ends that are the same,
/// and `…` for the rest.
fn common(titles: &[&str]) -> String {
    let Some((first, others)) = titles.split_first() else { return String::new() };
    if others.iter().all(|title| title == first) {
        return (*first).to_owned();
    }
    let first: Vec<&str> = first.split_whitespace().collect();
    let (mut begin, mut end, mut shortest) = (first.len(), first.len(), first.len());
    for title in others {
        let words: Vec<&str> = title.split_whitespace().collect();
        shortest = shortest.min(words.len());
        begin = begin.min(alike(first.iter(), words.iter()));
        end = end.min(alike(first.iter().rev(), words.iter().rev()));
    }
    let end = end.min(shortest - begin);
    if begin + end == 0 {
        return String::new();
    }
    [&first[..begin], &["…"], &first[first.len() - end..]].concat().join(" ")
}

/// How many words are the same before two are not.
fn alike<'a>(
    one: impl Iterator<Item = &'a &'a str>,
    other: impl Iterator<Item = &'a &'a str>,
) -> usize {
    one.zip(other).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_what_all_runs_have_in_common() {
        let cases: [(&[&str], &str); 7] = [
            (&[], ""),
            (&["One flow, 1 M"], "One flow, 1 M"),
            (&["One  flow", "One  flow"], "One  flow"),
            (&["One flow, 1M, 1ms", "One flow, 9M, 5ms", "One flow, 9M, 1ms"], "One flow, …"),
            (&["from 1 to 2 nodes", "from 1 to 3 nodes", "from 2 to 2 nodes"], "from … nodes"),
            (&["a a a", "a a"], "a a …"),
            (&["udt", "tcp"], ""),
        ];
        for (titles, expected) in cases {
            assert_eq!(common(titles), expected, "{titles:?}");
        }
    }
}
