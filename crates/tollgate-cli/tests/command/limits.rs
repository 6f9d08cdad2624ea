//! `tollgate limits`, `--version` and `--help`: outputs of the built binary.

use crate::run::{assert_prints, tollgate};

#[test]
fn every_algorithm_is_listed_with_its_bound_and_its_use() {
    assert_prints(
        &tollgate(&["limits"]),
        "
`at most` is the most that any window of length w can admit.

token-bucket    example  allow: 5/s, burst: 10
                at most  burst + w*rate
                use for  the default: clients that burst and then settle

gcra            example  algorithm: gcra, allow: 10/s, tolerance: 250ms
                at most  1 + (tolerance + w)*rate
                use for  cells that should come evenly, a little early at most

leaky-bucket    example  algorithm: leaky-bucket, allow: 3000/s, queue: 5000, max_wait: 2s
                at most  1 + w*rate start; the others wait
                use for  a backend that takes a constant rate: delay rather than refuse

fixed-window    example  algorithm: fixed-window, allow: 10/min
                at most  2*limit in the length of a window, half on each side of a boundary
                use for  quotas by the clock; up to twice the limit around a boundary

sliding-log     example  algorithm: sliding-log, allow: 100/min
                at most  limit in the length of a window, wherever it begins
                use for  small limits that must hold to the last request: eight bytes for each

sliding-window  example  algorithm: sliding-window, allow: 50/min
                at most  2*limit - 1 in the length of a window; limit if strict
                use for  the same in eight bytes for each key, as an estimate; or strict

burst-credits   example  algorithm: burst-credits, allow: 10/s, times: 10, for: 30s
                at most  the lesser of slack + w*times*rate and slack + (times-1)*rate*for + w*rate
                use for  a multiple of the rate for a while, earned back by idling

concurrency     example  algorithm: concurrency, allow: 20, ttl: 30s
                at most  limit at once, however long w is
                use for  slow requests: what counts is how many run, not how often they come
",
    );
}

#[test]
fn the_list_is_also_one_json_object_for_each_algorithm() {
    let ran = tollgate(&["limits", "--json"]);
    assert_eq!((ran.err.as_str(), ran.code), ("", Some(0)));
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines.len(), 8);
    assert_eq!(
        lines[0],
        r#"{"algorithm":"token-bucket","example":"allow: 5/s, burst: 10","at_most":"burst + w*rate","use_for":"the default: clients that burst and then settle"}"#
    );
}

#[test]
fn every_listed_example_can_be_tried() {
    for line in tollgate(&["limits"]).out.lines() {
        if let Some((_, example)) = line.split_once("example  ") {
            assert_eq!(tollgate(&["try", example]).code, Some(0), "{example}");
        }
    }
}

#[test]
fn the_version_is_the_one_of_the_workspace() {
    assert_prints(
        &tollgate(&["--version"]),
        &format!("tollgate {}\n", env!("CARGO_PKG_VERSION")),
    );
}

#[test]
fn help_shows_examples() {
    for args in [["--help"].as_slice(), &["try", "--help"]] {
        let ran = tollgate(args);
        assert_eq!(ran.code, Some(0));
        assert!(
            ran.out
                .contains("\nExamples:\n  tollgate try 'allow: 5/s, burst: 10'"),
            "{}",
            ran.out
        );
    }
}
