//! Fuzzes the conversion of files of other rate limiters.

use tollgate_config::import::{Converted, EnvoyOptions, envoy, limitador};
use tollgate_config::{Problems, Severity, parse};

use crate::Target;

pub(super) const TARGET: Target = Target {
    name: "convert",
    holds: "every conversion is a valid policy; every problem names the file that was read, never the generated policy; a \
            file always converts to the same policy",
    run,
};

fn run(bytes: &[u8]) {
    let files = [("a.yaml".to_owned(), bytes.to_vec())];
    let converted = envoy(&files, EnvoyOptions::default());
    match &converted {
        Ok(converted) => is_valid(converted),
        Err(all) => {
            assert!(!all.is_empty());
            all.iter().for_each(names_the_file);
        }
    }
    let text = |converted: &Converted| converted.policy.clone();
    let again = envoy(&files, EnvoyOptions::default());
    assert_eq!(
        again.as_ref().ok().map(text),
        converted.as_ref().ok().map(text)
    );
    match limitador("a.yaml", bytes) {
        Ok(converted) => is_valid(&converted),
        Err(problems) => names_the_file(&problems),
    }
}

fn is_valid(converted: &Converted) {
    if let Err(problems) = parse("converted", converted.policy.as_bytes()) {
        panic!("{problems}\n{}", converted.policy);
    }
    assert!(converted.notes.iter().all(|notes| !notes.is_empty()));
    converted.notes.iter().for_each(|notes| {
        assert_eq!(notes.count(Severity::Error), 0, "{notes}");
    });
}

fn names_the_file(problems: &Problems) {
    assert_eq!(problems.name(), "a.yaml", "{problems}");
    assert!(problems.count(Severity::Error) > 0);
}
