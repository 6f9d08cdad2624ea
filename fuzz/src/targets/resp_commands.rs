//! Fuzzes commands of Redis clients.

use tollgate_server::fuzzing::resp::{MAX_COMMAND_BYTES, Read, read};

use crate::split::{SPLITS, pieces, unsplit};
use crate::{Target, memory};

pub(super) const TARGET: Target = Target {
    name: "resp_commands",
    holds: "a stream has the same commands in every split; a command that is written again reads as the same; memory grows with \
            the bytes sent, not with the bytes announced; the reader waits for no more than a command may have",
    run,
};

/// The words of a command before authentication.
const WORDS_MOST: usize = 10;

fn run(bytes: &[u8]) {
    for is_known in [true, false] {
        let (all, taken) = memory::peak(|| read(unsplit(bytes), is_known));
        // The bytes themselves, the words, and a range for each of them.
        assert!(
            taken <= 4096 + bytes.len().saturating_mul(64),
            "{taken} bytes of memory for {} bytes",
            bytes.len()
        );
        assert!(
            all.needed <= MAX_COMMAND_BYTES,
            "{} bytes are awaited",
            all.needed
        );
        for split in 0..SPLITS {
            let split_run = read(pieces(bytes, split), is_known);
            assert_eq!(
                (&split_run.commands, &split_run.wrong),
                (&all.commands, &all.wrong)
            );
            if all.wrong.is_none() {
                assert_eq!(split_run.left, all.left);
            }
        }
        written_again(&all, is_known);
    }
}

/// Writes the commands as client libraries do, and reads them again.
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
    let read = read(unsplit(&again), is_known);
    assert_eq!(read.wrong, None);
    assert!(read.commands.iter().eq(commands));
}
