//! Requests that are written once and then only patched: the digits that differ are overwritten in
//! place, so making the next request costs the load next to nothing.

/// The bytes of a request, and where its digits are.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    bytes: Vec<u8>,
    holes: Vec<Hole>,
}

#[derive(Clone, Copy, Debug)]
struct Hole {
    at: usize,
    digits: usize,
    /// A number is written modulo this.
    below: usize,
}

impl Template {
    /// Every run of `#` in `text` becomes the number asked for, modulo the next of `belows`.
    pub(crate) fn new(text: &str, belows: &[usize]) -> Self {
        let mut belows = belows.iter().copied();
        let mut holes: Vec<Hole> = Vec::new();
        for (at, _) in text.match_indices('#') {
            match holes.last_mut() {
                Some(hole) if hole.at + hole.digits == at => hole.digits += 1,
                _ => holes.push(Hole {
                    at,
                    digits: 1,
                    below: belows.next().unwrap_or(usize::MAX),
                }),
            }
        }
        Self {
            bytes: text.into(),
            holes,
        }
    }

    /// A POST of this JSON; its length does not depend on the number.
    pub(crate) fn post(path: &str, body: &str, belows: &[usize]) -> Self {
        let len = body.len();
        Self::new(
            &format!(
                "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                 content-length: {len}\r\n\r\n{body}"
            ),
            belows,
        )
    }

    /// A GET with these header lines.
    pub(crate) fn get(path: &str, headers: &[&str], belows: &[usize]) -> Self {
        let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        Self::new(
            &format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n"),
            belows,
        )
    }

    /// The request with this number in it.
    pub(crate) fn with(&mut self, number: usize) -> &[u8] {
        for hole in &self.holes {
            let mut rest = number % hole.below;
            for byte in self.bytes[hole.at..hole.at + hole.digits].iter_mut().rev() {
                *byte = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_fills_every_hole_and_leaves_nothing_of_the_one_before() {
        let mut template = Template::new("/p####?k######!", &[10, 100_000]);
        assert_eq!(template.with(99_999), b"/p0009?k099999!");
        assert_eq!(template.with(12), b"/p0002?k000012!");
    }

    #[test]
    fn a_post_says_how_long_its_body_is() {
        let mut template = Template::post("/v1/check", r#"{"key":"k######"}"#, &[100_000]);
        let request = String::from_utf8(template.with(7).to_vec()).unwrap();
        assert!(request.starts_with("POST /v1/check HTTP/1.1\r\n"));
        assert!(request.contains("content-length: 17\r\n"));
        assert!(request.ends_with("\r\n\r\n{\"key\":\"k000007\"}"));
    }

    #[test]
    fn a_get_ends_with_an_empty_line() {
        let mut template = Template::get("/v1/auth", &["x-rider-id: k######"], &[100_000]);
        let request = String::from_utf8(template.with(7).to_vec()).unwrap();
        assert!(request.ends_with("\r\nx-rider-id: k000007\r\n\r\n"));
    }
}
