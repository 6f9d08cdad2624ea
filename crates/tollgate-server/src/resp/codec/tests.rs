//! Tests of the command parser.

use super::*;

fn read(bytes: &[u8]) -> Result<(Found, Vec<Vec<u8>>), Malformed> {
    read_within(bytes, &Bounds::AUTHENTICATED)
}

fn read_within(bytes: &[u8], bounds: &Bounds) -> Result<(Found, Vec<Vec<u8>>), Malformed> {
    let mut words = Words::default();
    let found = words.find(bytes, bounds)?;
    let command = words.command(bytes);
    Ok((found, command.from(0).map(<[u8]>::to_vec).collect()))
}

#[test]
fn arrays_and_lines_are_the_same_command() {
    let array = b"*3\r\n$4\r\nECHO\r\n$3\r\na b\r\n$0\r\n\r\n";
    let words: Vec<Vec<u8>> = vec![b"ECHO".to_vec(), b"a b".to_vec(), b"".to_vec()];
    assert_eq!(
        read(array),
        Ok((Found::Command(array.len()), words.clone()))
    );
    let line = b"ECHO  \"a b\" ''\r\n";
    assert_eq!(read(line), Ok((Found::Command(line.len()), words)));
}

#[test]
fn a_command_cut_at_any_byte_is_incomplete() {
    for whole in [
        &b"*2\r\n$4\r\nECHO\r\n$12\r\nhello\r\nworld\r\n"[..],
        b"ECHO 'hello world'\r\n",
    ] {
        for cut in 0..whole.len() {
            match read(&whole[..cut]) {
                Ok((Found::Partial(needed), _)) => {
                    assert!(cut < needed && needed <= whole.len(), "{cut}: {needed}");
                }
                other => panic!("{cut}: {other:?}"),
            }
        }
        let mut more = whole.to_vec();
        more.extend_from_slice(b"*1\r\n$4\r\nPI");
        let (found, words) = read(&more).unwrap();
        assert_eq!(found, Found::Command(whole.len()));
        assert_eq!(words.len(), 2);
    }
}

#[test]
fn empty_commands_are_skipped() {
    for (bytes, size) in [
        (&b"*0\r\nx"[..], 4),
        (b"*-1\r\nx", 5),
        (b"\r\nx", 2),
        (b"   \nx", 4),
    ] {
        assert_eq!(read(bytes).map(|(found, _)| found), Ok(Found::Empty(size)));
    }
}

#[test]
fn protocol_errors_have_the_texts_of_redis() {
    for (bytes, expected) in [
        (&b"*x\r\n"[..], "invalid multibulk length"),
        (b"*\r\n", "invalid multibulk length"),
        (b"*+1\r\n", "invalid multibulk length"),
        (b"*01\r\n", "invalid multibulk length"),
        (b"*1.0\r\n", "invalid multibulk length"),
        (b"*1\n", "invalid multibulk length"),
        (b"*1\rx", "invalid multibulk length"),
        (b"*1025\r\n", "invalid multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*9223372036854775807\r\n", "invalid multibulk length"),
        (b"*99999999999999999999\r\n", "invalid multibulk length"),
        (b"*--1\r\n", "invalid multibulk length"),
        (
            b"*11111111111111111111111111111111",
            "too big mbulk count string",
        ),
        (b"*1\r\n$x\r\n", "invalid bulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$65537\r\n", "invalid bulk length"),
        (b"*1\r\n$9223372036854775807\r\n", "invalid bulk length"),
        (b"*1\r\n$-9223372036854775808\r\n", "invalid bulk length"),
        (b"*1\r\n$4294967297\r\n", "invalid bulk length"),
        (
            b"*1\r\n$11111111111111111111111111111111",
            "too big bulk count string",
        ),
        (b"*1\r\n+PING\r\n", "expected '$', got '+'"),
        (b"*1\r\n*1\r\n$4\r\nPING\r\n", "expected '$', got '*'"),
        (b"*1\r\n\0", "expected '$', got '?'"),
        (b"*1\r\n$4\r\nPINGPONG", "expected the end of a bulk string"),
        (b"PING \"unbalanced\r\n", "unbalanced quotes in request"),
        (b"PING 'a'b\r\n", "unbalanced quotes in request"),
        (b"PING \"a\\\r\n", "unbalanced quotes in request"),
    ] {
        let error = read(bytes).unwrap_err();
        let place = String::from_utf8_lossy(bytes);
        assert_eq!(
            error.to_string(),
            format!("Protocol error: {expected}"),
            "{place}"
        );
    }
    let line = vec![b'a'; 64 * 1024];
    assert_eq!(read(&line), Err(Malformed::LongLine));
    let mut many = b"*3\r\n".to_vec();
    for _ in 0..3 {
        many.extend_from_slice(b"$65000\r\n");
        many.extend_from_slice(&[b'x'; 65_000]);
        many.extend_from_slice(b"\r\n");
    }
    assert_eq!(read(&many[..131_000]), Err(Malformed::Length));
}

#[test]
fn unauthenticated_clients_have_narrower_bounds() {
    let strange =
        |bytes: &[u8]| read_within(bytes, &Bounds::UNAUTHENTICATED).map(|(found, _)| found);
    assert_eq!(strange(b"*11\r\n"), Err(Malformed::UnauthenticatedCount));
    assert!(matches!(strange(b"*10\r\n"), Ok(Found::Partial(_))));
    assert_eq!(
        strange(b"*1\r\n$16385\r\n"),
        Err(Malformed::UnauthenticatedLength)
    );
    assert!(matches!(
        strange(b"*1\r\n$16384\r\n"),
        Ok(Found::Partial(_))
    ));
    assert_eq!(strange(&[b'a'; 32 * 1024]), Err(Malformed::LongLine));
}

#[test]
fn an_announced_length_reserves_no_memory() {
    let mut words = Words::default();
    for bytes in [&b"*1024\r\n"[..], b"*1024\r\n$65536\r\n"] {
        assert!(matches!(
            words.find(bytes, &Bounds::AUTHENTICATED),
            Ok(Found::Partial(_))
        ));
        assert_eq!(words.ranges.capacity(), 0);
    }
}

#[test]
fn quotes_and_escapes_of_lines_are_undone() {
    let line = b"set \"a\\x41\\n\\\"\" 'it\\'s' \"\\xzz\" plain\\n\n";
    let (_, words) = read(line).unwrap();
    let expected: [&[u8]; 5] = [b"set", b"aA\n\"", b"it's", b"xzz", b"plain\\n"];
    assert_eq!(words, expected);
}

#[test]
fn no_bytes_make_the_codec_panic() {
    // Every short string over the bytes that matter.
    let letters = b"*$-12\r\n\"'\\x\0 a";
    let mut words = Words::default();
    let mut bytes = Vec::new();
    for length in 0..=5u32 {
        for number in 0..letters.len().pow(length) {
            bytes.clear();
            let mut rest = number;
            for _ in 0..length {
                bytes.push(letters[rest % letters.len()]);
                rest /= letters.len();
            }
            match words.find(&bytes, &Bounds::AUTHENTICATED) {
                Ok(Found::Command(size) | Found::Empty(size)) => assert!(size <= bytes.len()),
                Ok(Found::Partial(needed)) => assert!(needed > bytes.len()),
                Err(_) => {}
            }
        }
    }
}

#[test]
fn a_command_above_the_bound_is_refused_at_any_split() {
    let bulk = [b"$65536\r\n".to_vec(), vec![b'x'; 65_536], b"\r\n".to_vec()].concat();
    let long = [
        b"*3\r\n".to_vec(),
        bulk.clone(),
        bulk.clone(),
        b"$1\r\nx\r\n".to_vec(),
    ]
    .concat();
    for come in [bulk.len() + 100, long.len() - 1, long.len()] {
        assert_eq!(read(&long[..come]), Err(Malformed::Length), "{come}");
    }
    let most = Bounds::AUTHENTICATED.bytes - b"*2\r\n".len() - bulk.len() - b"$65536\r\n\r\n".len();
    for (length, fits) in [(most, true), (most + 1, false)] {
        let head = format!("${length}\r\n");
        let last = [head.into_bytes(), vec![b'x'; length], b"\r\n".to_vec()].concat();
        let whole = [b"*2\r\n".to_vec(), bulk.clone(), last, b"PING\r\n".to_vec()].concat();
        assert_eq!(read(&whole).is_ok(), fits, "{length}");
    }
}
