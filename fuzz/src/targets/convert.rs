//! Files of other rate limiters.

use tollgate_config::import::{Converted, envoy, limitador};
use tollgate_config::{Problems, Severity, parse};

use crate::Target;

pub(super) const TARGET: Target = Target {
    name: "convert",
    holds: "whatever is converted can be used; what cannot be is told of the file that was read, never of a policy that nobody wrote; a \
            file is always converted to the same",
    run,
    words: &[
        "domain: a\n",
        "descriptors:\n",
        "  - key: b\n",
        "    value: c\n",
        "    rate_limit:\n",
        "      unit: second\n",
        "      requests_per_unit: 5\n",
        "      unlimited: true\n",
        "    shadow_mode: true\n",
        "    detailed_metric: true\n",
        "unit: week\n",
        "- namespace: a\n",
        "  max_value: 5\n",
        "  seconds: 60\n",
        "  conditions: []\n",
        "  variables: [user]\n",
        "  name: n\n",
        "descriptors[0].a == 'b'",
        "  - \"a == 'b'\"\n",
        "[",
        "]",
        "{",
        "}",
        ": ",
        "- ",
        "\n",
        "\"",
        "'",
        "#",
        "*",
        "\\",
        "replaces:\n",
        "share_threshold: true\n",
    ],
};

fn run(bytes: &[u8]) {
    let files = [("a.yaml".to_owned(), bytes.to_vec())];
    let converted = envoy(&files);
    match &converted {
        Ok(converted) => can_be_used(converted),
        Err(all) => {
            assert!(!all.is_empty());
            all.iter().for_each(of_the_file);
        }
    }
    let text = |converted: &Converted| converted.policy.clone();
    let again = envoy(&files);
    assert_eq!(
        again.as_ref().ok().map(text),
        converted.as_ref().ok().map(text)
    );
    match limitador("a.yaml", bytes) {
        Ok(converted) => can_be_used(&converted),
        Err(problems) => of_the_file(&problems),
    }
}

fn can_be_used(converted: &Converted) {
    if let Err(problems) = parse("converted", converted.policy.as_bytes()) {
        panic!("{problems}\n{}", converted.policy);
    }
    assert!(converted.notes.iter().all(|notes| !notes.is_empty()));
    converted.notes.iter().for_each(|notes| {
        assert_eq!(notes.count(Severity::Error), 0, "{notes}");
    });
}

fn of_the_file(problems: &Problems) {
    assert_eq!(problems.name(), "a.yaml", "{problems}");
    assert!(problems.count(Severity::Error) > 0);
}
