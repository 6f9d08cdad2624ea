//! `tollgate reset`: deletes the usage of one key on a running server.

use std::io::Write;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::cli::Reset;
use crate::explain::ask;
use crate::fault::Stop;

/// Sends the request and prints what was forgotten.
pub(crate) fn run(asked: &Reset, out: &mut impl Write) -> Result<ExitCode, Stop> {
    let token = ask::token(asked.token_file.as_deref())?;
    let mut path = format!("/v1/keys/{}", encoded(&asked.limit));
    for part in &asked.key {
        path.push('/');
        path.push_str(&encoded(part));
    }
    let request = ("DELETE", &*path);
    let reset = ask::server(&asked.server, token.as_deref(), request, &json!({}))?;
    let units = reset.get("units_here").and_then(Value::as_u64);
    let text = match asked.json {
        true => reset.to_string(),
        false => format!(
            "the limit {} has forgotten this key; the server had counted {} of it",
            asked.limit,
            units.unwrap_or(0)
        ),
    };
    writeln!(out, "{text}").map_err(Stop::Write)?;
    Ok(ExitCode::SUCCESS)
}

/// A segment of a path: everything but letters, digits, `-`, `.`, `_` and `~` as `%XX`.
fn encoded(text: &str) -> String {
    let mut segment = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                segment.push(char::from(byte));
            }
            byte => segment.push_str(&format!("%{byte:02X}")),
        }
    }
    segment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_key_is_one_segment() {
        assert_eq!(encoded("a/b c%é~-_."), "a%2Fb%20c%25%C3%A9~-_.");
    }
}
