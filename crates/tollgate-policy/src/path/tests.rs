//! Tests that all spellings of a path have one normal form.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use super::*;

/// The generator of Steele, Lea and Flood: good enough for test cases, and reproducible.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

const ALL_RULES: [PathRules; 4] = [
    rules(false, false),
    rules(true, false),
    rules(false, true),
    rules(true, true),
];

const fn rules(ignore_case: bool, keep_trailing_slash: bool) -> PathRules {
    PathRules {
        ignore_case,
        keep_trailing_slash,
    }
}

fn normal(path: &str) -> String {
    PathRules::default().normalise(path).unwrap().into_owned()
}

#[test]
fn every_spelling_has_one_form() {
    for (sent, form) in [
        ("/", "/"),
        ("", ""),
        ("*", "*"),
        ("*?x", "*"),
        ("?x", ""),
        ("/a/b", "/a/b"),
        ("/a/", "/a"),
        ("//a///b//", "/a/b"),
        ("/%6cogin", "/login"),
        ("/%6Cogin", "/login"),
        ("/%4c", "/L"),
        ("/a/./b/.", "/a/b"),
        ("/a/../b", "/b"),
        ("/a/%2e%2E/b", "/b"),
        ("/a/.%2e/b", "/b"),
        ("/a//../b", "/b"),
        ("/../../a", "/a"),
        ("/..", "/"),
        ("/a/..", "/"),
        ("/...", "/..."),
        ("/.a/..b", "/.a/..b"),
        ("/a;b", "/a"),
        ("/a;b=c;d/e;f", "/a/e"),
        ("/;x/a", "/a"),
        ("/;x", "/"),
        ("/a%3bb", "/a%3Bb"),
        ("/a%20b", "/a%20b"),
        ("/%c3%a9", "/%C3%A9"),
        ("/é", "/%C3%A9"),
        ("/a%40b%21", "/a@b!"),
        ("/a\"<>[]^`{|}", "/a%22%3C%3E%5B%5D%5E%60%7B%7C%7D"),
        ("/%25%36%63", "/%256c"),
        ("/a?b=/../c", "/a"),
        ("http://host/x", "/x"),
        ("HTTPS://host:443//x/?y", "/x"),
        ("http://host", "/"),
        ("http://host?x", "/"),
        ("x/y", "/x/y"),
        ("./*", "/*"),
        ("http:/x", "/http:/x"),
        ("/http://x", "/http:/x"),
    ] {
        assert_eq!(normal(sent), form, "{sent}");
    }
}

#[test]
fn what_servers_read_in_different_ways_is_a_fault() {
    use PathFault::{Ambiguous, Control, Encoding, TooLong};
    let long = "/".repeat(LONGEST + 1);
    let longer_escaped = format!("/{}", "é".repeat(2000));
    for (sent, fault) in [
        ("/a\\b", Ambiguous),
        ("/a%5Cb", Ambiguous),
        ("/a%5cb", Ambiguous),
        ("/a%2fb", Ambiguous),
        ("/a%2Fb", Ambiguous),
        ("/a#b", Ambiguous),
        ("/a b", Ambiguous),
        ("/a/..;/b", Ambiguous),
        ("/a/..;x=y", Ambiguous),
        ("/a/%2e%2e;/b", Ambiguous),
        ("/a/.;/b", Ambiguous),
        ("/a;%2f", Ambiguous),
        ("http://a\\b/c", Ambiguous),
        ("http://a#/c", Ambiguous),
        ("http://a\n/c", Control),
        ("/a\0", Control),
        ("/a\n", Control),
        ("/a%00", Control),
        ("/a%0a;", Control),
        ("/a;%0a", Control),
        ("/a%7F", Control),
        ("/a\x7f", Control),
        ("/a%", Encoding),
        ("/a%4", Encoding),
        ("/a%4/b", Encoding),
        ("/a%zz", Encoding),
        ("/a%+1", Encoding),
        ("/a%é", Encoding),
        (&long, TooLong),
        (&longer_escaped, TooLong),
    ] {
        for rules in ALL_RULES {
            assert_eq!(rules.normalise(sent), Err(fault), "{sent}");
        }
        assert!(!fault.to_string().is_empty() && !fault.hint().is_empty());
    }
}

#[test]
fn case_is_dropped_only_if_it_does_not_count() {
    let folded = rules(true, false);
    for (sent, form) in [
        ("/LogIn", "/login"),
        ("/%4Cogin", "/login"),
        ("/CAF\u{c9}", "/caf%C3%A9"),
        ("/caf%c3%89", "/caf%C3%A9"),
        ("/caf%C3%A9", "/caf%C3%A9"),
        ("/\u{212a}", "/k"),
        ("/%E2%84%AA", "/k"),
        ("/%FF%C3", "/%FF%C3"),
    ] {
        assert_eq!(folded.normalise(sent).unwrap(), form, "{sent}");
    }
    assert_eq!(normal("/LogIn"), "/LogIn");
}

#[test]
fn every_character_has_a_form_that_is_its_own() {
    for rules in ALL_RULES {
        for c in (' '..=char::MAX).step_by(7).chain('!'..='\u{2fff}') {
            let path = format!("/a{c}b");
            let Ok(form) = rules.normalise(&path) else {
                assert!(matches!(c, ' ' | '#' | '%' | '\\' | '\x7f'), "{c:?}");
                continue;
            };
            assert_eq!(rules.normalise(&form).unwrap(), form, "{c:?}");
            let escaped: String = c.to_string().bytes().map(|b| format!("%{b:02x}")).collect();
            if !matches!(c, '/' | ';' | '?' | '%') {
                let other = rules
                    .normalise(&format!("/a{escaped}b"))
                    .unwrap()
                    .into_owned();
                assert_eq!(other, form, "{c:?}");
            }
        }
    }
}

#[test]
fn a_slash_at_the_end_counts_only_if_it_is_said_to() {
    let kept = rules(false, true);
    for (sent, form) in [
        ("/a/", "/a/"),
        ("/a", "/a"),
        ("/a//", "/a/"),
        ("/a/.", "/a/"),
        ("/a/b/..", "/a/"),
        ("/a/;x", "/a/"),
        ("/a/..", "/"),
        ("/", "/"),
        ("//", "/"),
    ] {
        assert_eq!(kept.normalise(sent).unwrap(), form, "{sent}");
    }
}

#[test]
fn a_path_in_its_form_is_borrowed() {
    for path in [
        "/",
        "/a",
        "/api/v1/rides/42",
        "/a%20b/%C3%A9",
        "/a.b/..c",
        "/A",
        "/a/",
        "http://h/x?y",
    ] {
        let form = PathRules::default().normalise(path).unwrap();
        assert!(matches!(form, Cow::Borrowed(_)), "{path}");
    }
    let form = rules(true, false).normalise("/%C3%A9").unwrap();
    assert!(matches!(form, Cow::Borrowed(_)));
}

/// Another spelling of a normal path.
fn respelled(random: &mut Random, path: &str, rules: PathRules) -> String {
    let mut out = String::new();
    if random.one_in(8) {
        out.push_str(random.pick(&["http://host", "https://user@host:80", "HTTP://[::1]"]));
    }
    let body = path.strip_suffix('/').unwrap_or(path);
    for segment in body.split('/').skip(1) {
        for _ in 0..random.below(3) {
            let noise = random.pick(&[
                "/",
                "/.",
                "/%2e",
                "/x/..",
                "/y;z/%2E.",
                "/a//.%2e",
                "/;p",
                "/a/b/../..",
            ]);
            out.push_str(noise);
        }
        out.push('/');
        let mut rest = segment.chars();
        while let Some(c) = rest.next() {
            if c == '%' {
                let digits: String = rest.by_ref().take(2).collect();
                out.push('%');
                out.push_str(&if random.one_in(2) {
                    digits.to_lowercase()
                } else {
                    digits
                });
                continue;
            }
            let c = match random.one_in(2) {
                true if rules.ignore_case => c.to_ascii_uppercase(),
                _ => c,
            };
            match random.below(4) {
                0 => out.push_str(&format!("%{:02x}", u32::from(c))),
                1 => out.push_str(&format!("%{:02X}", u32::from(c))),
                _ => out.push(c),
            }
        }
        if random.one_in(4) {
            out.push_str(random.pick(&[";", ";a=b", ";..", ";jsessionid=1;x"]));
        }
    }
    let ends_open = path.ends_with('/');
    if ends_open || !rules.keep_trailing_slash {
        let least = usize::from(ends_open);
        for _ in 0..least + random.below(2) {
            out.push_str(random.pick(&["/", "/.", "/;x", "//", "/q/.."]));
        }
    }
    if random.one_in(4) {
        out.push_str("?a=/../b");
    }
    out
}

#[test]
fn all_spellings_of_one_path_are_one_path() {
    let mut random = Random(8);
    let pieces = [
        "a",
        "login",
        "v1",
        "x-y_z~",
        "%20",
        "%C3%A9",
        "%FF",
        "1.pdf",
        ".well-known",
        "...",
        "a@b:c",
        "%3B",
        "%25",
    ];
    for rules in ALL_RULES {
        for _ in 0..3000 {
            let mut path = String::new();
            for _ in 0..random.below(5) {
                path.push('/');
                (0..1 + random.below(2)).for_each(|_| path.push_str(random.pick(&pieces)));
            }
            if path.is_empty() || (rules.keep_trailing_slash && random.one_in(3)) {
                path.push('/');
            }
            assert_eq!(rules.normalise(&path).as_deref(), Ok(path.as_str()));
            for _ in 0..10 {
                let other = respelled(&mut random, &path, rules);
                assert_eq!(
                    rules.normalise(&other).as_deref(),
                    Ok(path.as_str()),
                    "{other}"
                );
            }
        }
    }
}

#[test]
fn the_form_of_anything_is_its_own_form() {
    let mut random = Random(15);
    let pieces = [
        "/", "/", ".", "..", "%2e", ";", "a", "B", "%41", "%c3", "%A9", "é", "É", "\u{212a}", "*",
        "?", "://", "http", "%25", "%3b", "%", "2", "f", "\\", " ", "~", "İ", "%C4%B0",
    ];
    let mut accepted = 0;
    for _ in 0..100_000 {
        let path: String = (0..random.below(9)).map(|_| random.pick(&pieces)).collect();
        for rules in ALL_RULES {
            let Ok(form) = rules.normalise(&path) else {
                continue;
            };
            accepted += 1;
            let again = rules.normalise(&form);
            assert_eq!(again.as_deref(), Ok(form.as_ref()), "{path}");
            assert!(form.is_ascii());
            assert!(matches!(again, Ok(Cow::Borrowed(_))));
        }
    }
    assert!(accepted > 100_000);
}
