//! Tests of pattern matching.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use super::super::path::tests::Random;
use super::*;

fn path(text: &str) -> PathPattern {
    PathPattern::new(text).unwrap()
}

/// A naive implementation of `*`.
fn like(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', rest @ ..] => (0..=text.len()).any(|at| like(rest, &text[at..])),
        [first, rest @ ..] => text.first() == Some(first) && like(rest, &text[1..]),
    }
}

/// A naive implementation of path patterns.
fn path_like(pattern: &[&str], path: &[&str]) -> bool {
    match pattern {
        [] => path.is_empty(),
        ["**", rest @ ..] => (0..=path.len()).any(|at| path_like(rest, &path[at..])),
        [first, rest @ ..] => path.split_first().is_some_and(|(segment, behind)| {
            let one = first.starts_with('{') || like(first.as_bytes(), segment.as_bytes());
            one && path_like(rest, behind)
        }),
    }
}

#[test]
fn a_star_is_any_run() {
    for (pattern, yes, no) in [
        ("abc", "abc", "abcd"),
        ("", "", "a"),
        ("*", "", ""),
        ("a*", "a", "ba"),
        ("*a", "bca", "ab"),
        ("a*a", "aa", "a"),
        ("a*b*c", "a--b--c", "a--c--b"),
        ("*.example.com", "x.example.com", "example.com"),
        ("*ab*ab*", "xababx", "xabx"),
        ("*aab*", "aaab", "aaa"),
        ("A", "A", "a"),
    ] {
        let read = TextPattern::new(pattern);
        assert!(read.matches(yes.as_bytes()), "{pattern} {yes}");
        assert!(
            pattern == "*" || !read.matches(no.as_bytes()),
            "{pattern} {no}"
        );
        assert_eq!(read.as_str(), pattern);
        assert_eq!(read.exact().is_some(), !pattern.contains('*'));
        assert_eq!(read.is_any(), pattern == "*");
    }
}

#[test]
fn texts_match_as_the_meaning_says() {
    let mut random = Random(1);
    let mut hits = 0;
    for _ in 0..100_000 {
        let pattern: String = (0..random.below(7))
            .map(|_| random.pick(&["a", "b", "*", "ab"]))
            .collect();
        let text: String = (0..random.below(9))
            .map(|_| random.pick(&["a", "b"]))
            .collect();
        let expected = like(pattern.as_bytes(), text.as_bytes());
        hits += usize::from(expected);
        assert_eq!(
            TextPattern::new(&pattern).matches(text.as_bytes()),
            expected,
            "{pattern} {text}"
        );
    }
    assert!(hits > 10_000);
}

#[test]
fn a_text_made_to_be_slow_is_not() {
    let pattern = TextPattern::new(&format!("*{}b*", "a".repeat(1000)).repeat(20));
    let text = "a".repeat(1_000_000);
    assert!(!pattern.matches(text.as_bytes()));
    let deep = format!("{}/b", "/**/a".repeat(100));
    let long = "/a".repeat(4000);
    assert!(!path(&deep).matches(&long));
}

#[test]
fn segments_match_as_documented() {
    for (pattern, yes, no) in [
        ("/", &["/"][..], &["/a", "", "*"][..]),
        ("/a/b", &["/a/b"], &["/a", "/a/b/c", "/a/c", "/a/b/", "a/b"]),
        (
            "/api/rides/{ride}/cancel",
            &["/api/rides/7/cancel"],
            &["/api/rides/cancel", "/api/rides//cancel"],
        ),
        (
            "/files/*.pdf",
            &["/files/a.pdf", "/files/.pdf"],
            &["/files/a.pdf/b", "/files/a.txt", "/a.pdf"],
        ),
        ("/v*/x", &["/v1/x", "/v/x"], &["/w/x", "/v1/y/x"]),
        ("/*", &["/a"], &["/", "/a/b"]),
        ("/a/*", &["/a/b"], &["/a", "/a/", "/a/b/c"]),
        (
            "/admin/**",
            &["/admin", "/admin/", "/admin/a", "/admin/a/b"],
            &["/", "/administrator", "/x/admin"],
        ),
        ("/**", &["/", "/a", "/a/b/", "/a/b/c"], &["", "*"]),
        ("/**/x", &["/x", "/a/x", "/a/b/x", "/x/x"], &["/", "/x/a"]),
        (
            "/a/**/b/**/c",
            &["/a/b/c", "/a/b/b/c/c", "/a/x/b/y/c"],
            &["/a/c/b", "/a/b", "/b/c"],
        ),
        ("/**/**", &["/", "/a/b"], &[""]),
        ("/a/", &["/a", "/a/"], &["/a/b", "/"]),
        ("/café", &["/caf%C3%A9"], &["/caf"]),
    ] {
        let read = path(pattern);
        assert_eq!(read.as_str(), pattern);
        for y in yes {
            assert!(read.matches(y), "{pattern} {y}");
        }
        for n in no {
            assert!(!read.matches(n), "{pattern} {n}");
        }
    }
}

#[test]
fn paths_match_as_the_meaning_says() {
    let mut random = Random(2);
    let mut hits = 0;
    for _ in 0..100_000 {
        let wanted: Vec<&str> = (0..random.below(6))
            .map(|_| random.pick(&["a", "b", "**", "*", "a*", "{x}"]))
            .collect();
        let own: Vec<&str> = (0..random.below(7))
            .map(|_| random.pick(&["a", "b", "ab"]))
            .collect();
        let Ok(pattern) = PathPattern::new(&format!("/{}", wanted.join("/"))) else {
            continue; // two captures with one name
        };
        let text = format!("/{}", own.join("/"));
        let expected = path_like(&wanted, &own);
        hits += usize::from(expected);
        assert_eq!(pattern.matches(&text), expected, "{wanted:?} {text}");
        let captured = pattern.capture("x", &text);
        assert_eq!(captured.is_some(), expected && wanted.contains(&"{x}"));
    }
    assert!(hits > 10_000);
}

#[test]
fn captures_are_what_stands_in_their_place() {
    let pattern = path("/api/{who}/rides/{ride}");
    assert_eq!(pattern.captures().collect::<Vec<_>>(), ["who", "ride"]);
    assert_eq!(pattern.capture("who", "/api/ann/rides/7"), Some("ann"));
    assert_eq!(pattern.capture("ride", "/api/ann/rides/7"), Some("7"));
    assert_eq!(pattern.capture("ride", "/api/ann/rides"), None);
    assert_eq!(pattern.capture("other", "/api/ann/rides/7"), None);
    assert_eq!(path("/**/{x}/end").capture("x", "/a/end/b/end"), Some("b"));
    assert_eq!(path("/{x}/**/end").capture("x", "/a/b/end"), Some("a"));
}

#[test]
fn a_slash_at_the_end_is_what_the_rules_say() {
    let keep = PathRules {
        keep_trailing_slash: true,
        ..PathRules::default()
    };
    let kept = path("/a/").with_rules(keep);
    assert!(kept.matches("/a/") && !kept.matches("/a"));
    let without = path("/a").with_rules(keep);
    assert!(without.matches("/a") && !without.matches("/a/"));
    let dropped = path("/a/").with_rules(PathRules::default());
    assert!(dropped.matches("/a"));
    assert!(path("/a/{x}/").with_rules(keep).matches("/a/b/"));
    assert!(path("/").with_rules(keep).matches("/"));
}

#[test]
fn patterns_in_lower_case_keep_the_names_of_captures() {
    let low = path("/API/{Ride}/V*/CAFÉ/%C3%89").lowercased();
    assert!(low.matches("/api/7/v1/caf%C3%A9/%C3%A9"));
    assert_eq!(low.capture("Ride", "/api/7/v1/caf%C3%A9/%C3%A9"), Some("7"));
    assert_eq!(low.as_str(), "/API/{Ride}/V*/CAFÉ/%C3%89");
    let ignore = PathRules {
        ignore_case: true,
        ..PathRules::default()
    };
    assert_eq!(path("/A/").with_rules(ignore), path("/A/").lowercased());
}

#[test]
fn patterns_that_no_path_can_match_are_refused() {
    use PatternError as E;
    let meant = |text: &str| E::NotNormal {
        meant: Some(text.into()),
    };
    let never = E::NotNormal { meant: None };
    for (text, error) in [
        ("", E::NoSlash),
        ("a/b", E::NoSlash),
        ("*", E::NoSlash),
        ("/{a", E::Brace),
        ("/a}", E::Brace),
        ("/}a{", E::Brace),
        ("/{{a}}", E::Brace),
        ("/{a/b}", E::Brace),
        ("/{}", E::CaptureName),
        ("/{1}", E::CaptureName),
        ("/{a b}", E::CaptureName),
        ("/v{a}", E::PartialCapture),
        ("/{a}{b}", E::PartialCapture),
        ("/{a}/{a}", E::SameCapture),
        ("/a**", E::Globstar),
        ("/***", E::Globstar),
        ("/a//b", meant("/a/b")),
        ("//", meant("/")),
        ("/a/../b", meant("/b")),
        ("/a/%2e%2E/b", meant("/b")),
        ("/a/./b", meant("/a/b")),
        ("/a/%41", meant("/a/A")),
        ("/{x}/%6cogin/*", meant("/{x}/login/*")),
        ("/a;b", meant("/a")),
        ("/%c3%a9", meant("/%C3%A9")),
        ("/a?b", never.clone()),
        ("/a b", never.clone()),
        ("/a%2Fb", never.clone()),
        ("/a\\b", never.clone()),
        ("/a#b", never.clone()),
        ("/%zz", never),
    ] {
        let found = PathPattern::new(text);
        assert_eq!(found, Err(error.clone()), "{text}");
        assert!(!error.to_string().is_empty() && !error.hint().is_empty());
        if let E::NotNormal { meant: Some(meant) } = &error {
            assert!(PathPattern::new(meant).is_ok(), "{meant}");
            assert!(error.hint().contains(meant.as_str()));
        }
    }
}
