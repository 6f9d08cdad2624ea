//! Decides whether one condition covers another, as far as their text shows.

use tollgate_policy::address::CidrSet;
use tollgate_policy::pattern::{PathPattern, TextPattern};
use tollgate_policy::{Match, ValueTest};

/// Does this match every request?
pub(crate) fn is_everything(matches: &Match) -> bool {
    let Match {
        methods,
        paths,
        hosts,
        headers,
        query,
        addresses,
        domain,
        descriptor,
        entries,
    } = matches;
    methods.is_empty()
        && (paths.is_empty() || paths.iter().any(|path| path.as_str() == "/**"))
        && (hosts.is_empty() || hosts.iter().any(|host| host.as_str() == "*"))
        && headers.is_empty()
        && query.is_empty()
        && (addresses.is_empty() || is_every_address(addresses))
        && domain.as_ref().is_none_or(|domain| domain.as_str() == "*")
        && descriptor.is_empty()
        && entries.is_empty()
}

fn is_every_address(addresses: &CidrSet) -> bool {
    let all = addresses.networks().iter();
    all.filter(|network| network.bits() == 0).count() > 0
}

/// Does `wide` match every request that `narrow` matches? True only if that is certain.
pub(crate) fn covers(wide: &Match, narrow: &Match) -> bool {
    let texts = |wide: &[TextPattern], narrow: &[TextPattern]| {
        let covered = |n: &TextPattern| wide.iter().any(|w| w == n || w.as_str() == "*");
        wide.is_empty() || (!narrow.is_empty() && narrow.iter().all(covered))
    };
    let methods = |m: &String| wide.methods.contains(m);
    let paths = |n: &PathPattern| {
        wide.paths
            .iter()
            .any(|w| path_covers(w.as_str(), n.as_str()))
    };
    let networks = |n: &tollgate_policy::address::Cidr| {
        let mut all = wide.addresses.networks().iter();
        all.any(|w| w.bits() <= n.bits() && w.contains(n.address()))
    };
    let narrow_networks = narrow.addresses.networks();
    (wide.methods.is_empty() || (!narrow.methods.is_empty() && narrow.methods.iter().all(methods)))
        && (wide.paths.is_empty()
            || (!narrow.paths.is_empty() && narrow.paths.iter().all(paths))
            || wide.paths.iter().any(|w| w.as_str() == "/**"))
        && texts(&wide.hosts, &narrow.hosts)
        && tests_cover(&wide.headers, &narrow.headers)
        && tests_cover(&wide.query, &narrow.query)
        && tests_cover(&wide.descriptor, &narrow.descriptor)
        && (wide.entries.is_empty() || wide.entries == narrow.entries)
        && (wide.addresses.is_empty()
            || (!narrow_networks.is_empty() && narrow_networks.iter().all(networks)))
        && match (&wide.domain, &narrow.domain) {
            (None, _) => true,
            (Some(wide), narrow) => narrow.as_ref() == Some(wide),
        }
}

/// `/a/**` covers `/a`, `/a/b` and `/a/{c}/**`; otherwise only the same pattern does for certain.
fn path_covers(wide: &str, narrow: &str) -> bool {
    if wide == narrow {
        return true;
    }
    let Some(stem) = wide.strip_suffix("/**") else {
        return false;
    };
    let plain = !stem.contains(['*', '{']);
    let rest = narrow.strip_prefix(stem);
    plain && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn tests_cover(wide: &[(String, ValueTest)], narrow: &[(String, ValueTest)]) -> bool {
    wide.iter().all(|(name, test)| {
        narrow.iter().any(|(other, narrow)| {
            let present = *test == ValueTest::Present && matches!(narrow, ValueTest::Like(_));
            other == name && (test == narrow || present)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(texts: &[&str]) -> Match {
        Match {
            paths: texts.iter().map(|t| PathPattern::new(t).unwrap()).collect(),
            ..Match::default()
        }
    }

    #[test]
    fn a_subtree_covers_what_is_in_it() {
        let all = Match::default();
        for (wide, narrow, yes) in [
            ("/a/**", "/a/b", true),
            ("/a/**", "/a", true),
            ("/a/**", "/a/{x}/**", true),
            ("/**", "/a", true),
            ("/a/**", "/ab", false),
            ("/a", "/a/**", false),
            ("/*/**", "/a/b", false),
        ] {
            assert_eq!(
                covers(&paths(&[wide]), &paths(&[narrow])),
                yes,
                "{wide} {narrow}"
            );
            assert!(covers(&all, &paths(&[narrow])));
        }
        assert!(!covers(&paths(&["/a"]), &all));
        assert!(covers(&paths(&["/**"]), &all));
        assert!(is_everything(&all) && is_everything(&paths(&["/**", "/a"])));
    }

    #[test]
    fn a_condition_more_is_narrower() {
        let mut narrow = paths(&["/a"]);
        let wide = narrow.clone();
        narrow.headers.push(("x".into(), ValueTest::Absent));
        assert!(covers(&wide, &narrow));
        assert!(!covers(&narrow, &wide));
    }
}
