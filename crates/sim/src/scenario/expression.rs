//! Variables in values: `$rtt`, `$rtt / 2`, `$rate * 0.9`.

use farhaul_base::names::suggestion;

use super::reader::Variables;

/// The longest value, bytes.
const LONGEST: usize = 4096;

/// `text` with each `$name` replaced by the variable's value; if it then has the form
/// `QUANTITY * NUMBER` or `QUANTITY / NUMBER` (once or more, with spaces around the sign), the
/// quantity that this makes, in the same unit.
///
/// # Errors
/// A message, if a variable is unknown or what is to be multiplied is not a number.
pub(super) fn evaluate(text: &str, variables: &Variables) -> Result<String, String> {
    if !text.contains('$') {
        return Ok(text.to_owned());
    }
    let text = substitute(text, variables)?;
    if text.len() > LONGEST {
        return Err(format!("the value is longer than {LONGEST} bytes"));
    }
    let mut words = text.split_whitespace();
    let (Some(first), Some(_)) = (words.next(), text.split_whitespace().nth(1)) else {
        return Ok(text);
    };
    let rest: Vec<&str> = words.collect();
    if !rest.iter().step_by(2).all(|word| matches!(*word, "*" | "/")) {
        return Ok(text);
    }
    let (mut number, unit) =
        split_number(first).ok_or_else(|| format!("'{first}' in '{text}' is not a number"))?;
    for pair in rest.chunks(2) {
        let [sign, factor] = pair else { return Err(format!("'{text}' ends with a sign")) };
        let (factor, factor_unit) = split_number(factor)
            .ok_or_else(|| format!("'{factor}' in '{text}' is not a number"))?;
        if !factor_unit.is_empty() {
            return Err(format!("'{text}' multiplies or divides by a number with a unit"));
        }
        if *sign == "*" { number *= factor } else { number /= factor }
    }
    if !number.is_finite() {
        return Err(format!("'{text}' has no finite value"));
    }
    Ok(format!("{number}{unit}"))
}

fn substitute(text: &str, variables: &Variables) -> Result<String, String> {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        result.push_str(before);
        let end =
            after.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(after.len());
        let (name, behind) = after.split_at(end);
        let value = variables.get(name).ok_or_else(|| unknown(name, variables))?;
        result.push_str(value);
        rest = behind;
        // Of what is too long nothing more is needed.
        if result.len() > LONGEST {
            return Ok(result);
        }
    }
    result.push_str(rest);
    Ok(result)
}

fn unknown(name: &str, variables: &Variables) -> String {
    if variables.is_empty() {
        return format!("there is no variable '${name}'; give it a value under [set] or [sweep]");
    }
    format!("there is no variable '${name}'; {}", suggestion(name, variables.keys().map(|k| &**k)))
}

/// The number at the beginning of `text`, which may have a sign, and the unit behind it.
fn split_number(text: &str) -> Option<(f64, &str)> {
    let (number, unit) = farhaul_link::split_number(text.strip_prefix(['+', '-']).unwrap_or(text))?;
    Some((if text.starts_with('-') { -number } else { number }, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let pairs =
            [("rtt", "10ms"), ("rate", "1.5G"), ("n", "3"), ("loss", "1e-4"), ("cc", "udt")];
        let variables = pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let value = |text: &str| evaluate(text, &variables);
        assert_eq!(value("100M"), Ok("100M".into()));
        assert_eq!(value("$rtt"), Ok("10ms".into()));
        assert_eq!(value("$rtt / 2"), Ok("5ms".into()));
        assert_eq!(value("$rate * 0.5 / $n"), Ok("0.25G".into()));
        assert_eq!(value("$loss * 10"), Ok("0.001".into()));
        assert_eq!(value("-5 * $n"), Ok("-15".into()));
        assert_eq!(value("$rate * -1e1 / +2"), Ok("-7.5G".into()));
        assert_eq!(value("$cc:noisy"), Ok("udt:noisy".into()));
        assert_eq!(value("flow $n of many"), Ok("flow 3 of many".into()));
        assert_eq!(value("$rt").unwrap_err(), "there is no variable '$rt'; did you mean 'rtt'?");
        assert_eq!(value("$cc * 2").unwrap_err(), "'udt' in 'udt * 2' is not a number");
        for bad in ["$rtt /", "$rtt / 0", "$rtt * 2ms", "$n / x", "1.2.3k / $n", "$n * 1e999"] {
            assert!(value(bad).is_err(), "{bad}");
        }
    }
}
