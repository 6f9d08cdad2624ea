//! Fuzzes the HTTP/1.1 fast path in front of the decision front end.

use tollgate_server::fuzzing::fast_path::{Request, max_request_bytes, serve_pieces};

use crate::Target;
use crate::split::{SPLITS, pieces, unsplit};

pub(super) const TARGET: Target = Target {
    name: "http_fast_path",
    holds: "the fast path reads the same requests in every split, and leaves the same rest of the stream; a \
            request that is written again reads as the same; no request on the fast path has a body of ambiguous length",
    run,
};

fn run(bytes: &[u8]) {
    let all = serve_pieces(unsplit(bytes));
    for split in 0..SPLITS {
        let split_run = serve_pieces(pieces(bytes, split));
        assert_eq!(split_run.requests, all.requests);
        assert_eq!(
            (split_run.is_declined, &split_run.unread),
            (all.is_declined, &all.unread)
        );
        let longest = bytes.len().min(max_request_bytes());
        assert!(
            split_run.max_kept <= longest + 200,
            "{} are kept",
            split_run.max_kept
        );
    }
    assert!(bytes.ends_with(&all.unread));
    for request in &all.requests {
        written_again(request);
    }
}

fn written_again(request: &Request) {
    let mut again = format!("{} {} HTTP/1.1\r\n", request.method, request.target).into_bytes();
    let mut lengths = 0;
    for (name, value) in &request.headers {
        again.extend_from_slice(name.as_bytes());
        again.extend_from_slice(b": ");
        again.extend_from_slice(value);
        again.extend_from_slice(b"\r\n");
        assert!(!name.eq_ignore_ascii_case("transfer-encoding"));
        lengths += usize::from(name.eq_ignore_ascii_case("content-length"));
    }
    assert!(lengths <= 1 && (lengths == 1 || request.body.is_empty()));
    again.extend_from_slice(b"\r\n");
    again.extend_from_slice(&request.body);
    let read = serve_pieces(unsplit(&again));
    assert_eq!(read.requests, std::slice::from_ref(request));
    assert!(read.unread.is_empty() && !read.is_declined);
}
