//! Commands of Redis clients.

use tollgate_server::fuzzing::resp::{MAX_COMMAND_BYTES, Read, read};

use crate::cut::{WAYS, pieces, whole};
use crate::{Target, memory};

pub(super) const TARGET: Target = Target {
    name: "resp_commands",
    holds: "a stream has the same commands however it is cut; a command that is written again is read as the same; memory grows by \
            what was sent, not by what was announced; no more is waited for than a command may have",
    run,
    words: &[
        "*1\r\n",
        "*3\r\n",
        "$4\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "\r\n",
        "\n",
        "\"",
        "'",
        "\\x41",
        "\\\"",
        " ",
        "*1024\r\n",
        "$65536\r\n",
        "PING",
        "*0\r\n",
        "\0",
    ],
};

/// Of a command that is written again: its words, as far as they may be in one.
const WORDS_MOST: usize = 10;

fn run(bytes: &[u8]) {
    for is_known in [true, false] {
        let (all, taken) = memory::most(|| read(whole(bytes), is_known));
        // The bytes themselves, the words, and a range for each of them.
        assert!(
            taken <= 4096 + bytes.len().saturating_mul(64),
            "{taken} bytes of memory for {} bytes",
            bytes.len()
        );
        assert!(
            all.needed <= MAX_COMMAND_BYTES,
            "{} are waited for",
            all.needed
        );
        for way in 0..WAYS {
            let cut = read(pieces(bytes, way), is_known);
            assert_eq!((&cut.commands, &cut.wrong), (&all.commands, &all.wrong));
            if all.wrong.is_none() {
                assert_eq!(cut.left, all.left);
            }
        }
        written_again(&all, is_known);
    }
}

/// Commands as libraries write them, whatever they were before.
fn written_again(all: &Read, is_known: bool) {
    let mut again = Vec::new();
    let fits = |words: &&Vec<Vec<u8>>| is_known || words.len() <= WORDS_MOST;
    let commands: Vec<&Vec<Vec<u8>>> = all.commands.iter().filter(fits).collect();
    for words in &commands {
        again.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in *words {
            again.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            again.extend_from_slice(word);
            again.extend_from_slice(b"\r\n");
        }
    }
    let read = read(whole(&again), is_known);
    assert_eq!(read.wrong, None);
    assert!(read.commands.iter().eq(commands));
}
