//! The lane of common requests in front of the door for decisions.

use tollgate_server::fuzzing::brisk::{Request, most, read};

use crate::Target;
use crate::cut::{WAYS, pieces, whole};

pub(super) const TARGET: Target = Target {
    name: "brisk",
    holds: "a stream has the same requests in the lane however it is cut, and what leaves the lane is what they leave of the stream; a \
            request that is written again is read as the same; nothing in the lane has a body of two opinions",
    run,
    words: &[
        "GET / HTTP/1.1\r\n",
        "POST /v1/check HTTP/1.1\r\n",
        "Content-Length: 3\r\n",
        "Transfer-Encoding: chunked\r\n",
        "\r\n",
        "\n",
        "Connection: close\r\n",
        "Connection: keep-alive\r\n",
        "Expect: 100-continue\r\n",
        "Upgrade: h2c\r\n",
        "Host: a\r\n",
        "abc",
        ":",
        "\t",
        " ",
        "HTTP/1.0",
        "Trailer: x\r\n",
    ],
};

fn run(bytes: &[u8]) {
    let all = read(whole(bytes));
    for way in 0..WAYS {
        let cut = read(pieces(bytes, way));
        assert_eq!(cut.requests, all.requests);
        assert_eq!((cut.is_other, &cut.left), (all.is_other, &all.left));
        let longest = bytes.len().min(most());
        assert!(cut.kept <= longest + 200, "{} are kept", cut.kept);
    }
    assert!(bytes.ends_with(&all.left));
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
    let read = read(whole(&again));
    assert_eq!(read.requests, std::slice::from_ref(request));
    assert!(read.left.is_empty() && !read.is_other);
}
