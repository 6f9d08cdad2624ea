//! The examples of RFC 7541, appendix C, and malformed blocks.

use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits.chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    pairs.map(byte).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn read(decoder: &mut Decoder, block: &[u8]) -> Result<String, DecodeError> {
    let mut fields = Vec::new();
    decoder.read(block, |name, value| {
        fields.push(format!("{}: {}", text(name), text(value)));
    })?;
    Ok(fields.join("\n"))
}

/// The table, newest first, and how large it is.
fn table(decoder: &Decoder) -> (String, usize) {
    let fields = decoder.table.iter().map(|field| {
        let (name, value) = field.text.split_at(field.name);
        format!("{}: {}", text(name), text(value))
    });
    (fields.collect::<Vec<_>>().join("\n"), decoder.bytes)
}

#[test]
fn numbers_are_those_of_the_standard() {
    for (hex, bits, value) in [("0a", 5, 10), ("1f9a0a", 5, 1337), ("2a", 8, 42)] {
        let bytes = bytes(hex);
        let mut rest = bytes.as_slice();
        assert_eq!(number(&mut rest, bits), Ok(value));
        assert!(rest.is_empty());
    }
    for wrong in ["", "1f", "1f9a", "1f80808001", "1fffffffffffffffffff01"] {
        assert_eq!(
            number(&mut bytes(wrong).as_slice(), 5),
            Err(DecodeError),
            "{wrong}"
        );
    }
}

#[test]
fn fields_are_spelt_in_every_way_of_the_standard() {
    for (hex, field, in_table) in [
        (
            "400a637573746f6d2d6b65790d637573746f6d2d686561646572",
            "custom-key: custom-header",
            55,
        ),
        ("040c2f73616d706c652f70617468", ":path: /sample/path", 0),
        ("100870617373776f726406736563726574", "password: secret", 0),
        ("82", ":method: GET", 0),
    ] {
        let mut decoder = Decoder::default();
        assert_eq!(read(&mut decoder, &bytes(hex)).as_deref(), Ok(field));
        assert_eq!(table(&decoder).1, in_table);
    }
}

/// Three requests on one connection, plain and in Huffman's code.
#[test]
fn the_requests_of_the_standard_fill_the_table() {
    let plain = [
        "828684410f7777772e6578616d706c652e636f6d",
        "828684be58086e6f2d6361636865",
        "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
    ];
    let coded = [
        "828684418cf1e3c2e5f23a6ba0ab90f4ff",
        "828684be5886a8eb10649cbf",
        "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
    ];
    for blocks in [plain, coded] {
        let mut decoder = Decoder::default();
        let mut next = |at: usize| read(&mut decoder, &bytes(blocks[at])).unwrap();
        assert_eq!(
            next(0),
            ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com"
        );
        assert_eq!(
            next(1),
            ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\ncache-control: no-cache"
        );
        assert_eq!(
            next(2),
            ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\ncustom-key: custom-value"
        );
        let fields =
            "custom-key: custom-value\ncache-control: no-cache\n:authority: www.example.com";
        assert_eq!(table(&decoder), (fields.into(), 164));
    }
}

/// Three answers with a table of 256 bytes, which throws out the oldest.
#[test]
fn the_answers_of_the_standard_throw_out_the_oldest() {
    let plain = [
        "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d54\
         6e1768747470733a2f2f7777772e6578616d706c652e636f6d",
        "4803333037c1c0bf",
        "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a6970\
         7738666f6f3d4153444a4b48514b425a584f5157454f50495541585157454f49553b206d61782d6167653d\
         333630303b2076657273696f6e3d31",
    ];
    let coded = [
        "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff\
         6e919d29ad171863c78f0b97c8e9ae82ae43d3",
        "4883640effc1c0bf",
        "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab\
         77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
    ];
    for blocks in [plain, coded] {
        // Said by the other side in the standard's example; here by the block.
        let mut decoder = Decoder::default();
        read(&mut decoder, &bytes("3fe101")).unwrap();
        for block in blocks {
            read(&mut decoder, &bytes(block)).unwrap();
        }
        let fields = "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1\n\
                      content-encoding: gzip\ndate: Mon, 21 Oct 2013 20:13:22 GMT";
        assert_eq!(table(&decoder), (fields.into(), 215));
    }
}

#[test]
fn a_field_that_is_larger_than_the_table_empties_it() {
    let mut decoder = Decoder::default();
    read(&mut decoder, &bytes("4001610162")).unwrap();
    assert_eq!(table(&decoder).1, 34);
    let mut large = vec![0x40];
    write_string(&mut large, b"a");
    write_string(&mut large, &[b'x'; 5_000]);
    assert_eq!(read(&mut decoder, &large).unwrap().len(), 5_003);
    assert_eq!(table(&decoder), (String::new(), 0));
}

#[test]
fn the_table_never_grows_beyond_its_bound() {
    let mut decoder = Decoder::default();
    for number in 0..1_000 {
        let mut block = vec![0x40];
        write_string(&mut block, format!("name-{number}").as_bytes());
        write_string(&mut block, &vec![b'v'; number]);
        read(&mut decoder, &block).unwrap();
        assert!(table(&decoder).1 <= TABLE_BYTES);
    }
}

#[test]
fn a_name_may_be_that_of_a_field_which_goes() {
    let mut decoder = Decoder::default();
    // Room for one field of 36 bytes.
    read(&mut decoder, &bytes("3f05")).unwrap();
    read(&mut decoder, &bytes("4001610162")).unwrap();
    assert_eq!(read(&mut decoder, &bytes("7e0163")).as_deref(), Ok("a: c"));
    assert_eq!(table(&decoder), ("a: c".into(), 34));
}

#[test]
fn malformed_header_blocks_are_rejected() {
    for (wrong, why) in [
        ("80", "there is no place 0"),
        ("be", "the table is empty"),
        ("7e0161", "a name from an empty table"),
        ("00", "no name"),
        ("000161", "no value"),
        ("00016105", "a value that is cut short"),
        ("0081ff0161", "filled with more than seven bits"),
        ("3fe21f", "a table of 4097 bytes"),
        ("8220", "a size behind a field"),
        ("ff8080808001", "a place beyond all"),
    ] {
        assert_eq!(
            read(&mut Decoder::default(), &bytes(wrong)),
            Err(DecodeError),
            "{why}"
        );
    }
    // Twice before the first field is allowed: down and up again.
    assert!(read(&mut Decoder::default(), &bytes("203fe11f82")).is_ok());
}

#[test]
fn encoded_fields_decode_to_the_same_fields() {
    for length in [0, 1, 126, 127, 128, 254, 255, 5_000] {
        let value = vec![b'v'; length];
        let mut block = Vec::new();
        write(&mut block, b"name", &value);
        let said = format!("name: {}", text(&value));
        assert_eq!(read(&mut Decoder::default(), &block), Ok(said));
    }
}

#[test]
fn only_indexed_fields_change_the_table() {
    let mut decoder = Decoder::default();
    for (block, changes) in [
        ("4001610162", 1),
        ("be82", 1),
        ("0001610162", 1),
        ("4001610162", 2),
        ("20", 3),
    ] {
        read(&mut decoder, &bytes(block)).unwrap();
        assert_eq!(decoder.changes(), changes, "{block}");
    }
}
