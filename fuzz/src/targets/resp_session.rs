//! Fuzzes the session of a Redis client, from its first byte to its last.

use tollgate_server::fuzzing::resp::{
    self, Exchange, FrontEnd, MAX_COMMAND_BYTES, MAX_OUTPUT_BYTES,
};

use super::POLICY;
use crate::Target;
use crate::replies::{self, Reply};
use crate::split::{SPLITS, pieces, unsplit};

const PASSWORD: &str = "correct-horse-battery";

pub(super) const TARGET: Target = Target {
    name: "resp_session",
    holds: "answers are whole replies, one for each command; a stream gets the same answers in every split; unsent \
            answers and unread commands stay within their bounds",
    run,
};

fn run(bytes: &[u8]) {
    for password in [None, Some(PASSWORD)] {
        // A new front end each time: earlier connections must not matter.
        let answer = |split_run: &mut dyn Iterator<Item = &[u8]>| {
            let front_end = FrontEnd::new(POLICY, password);
            front_end
                .map(|front_end| front_end.answer(split_run))
                .unwrap_or_default()
        };
        let all = answer(&mut unsplit(bytes));
        let (kept, unread) = (all.kept, all.unread);
        assert!(kept <= MAX_OUTPUT_BYTES, "{kept} bytes of answers are kept");
        let replies = timeless(&all);
        if password.is_none() {
            one_for_each(bytes, &all, replies.len());
        }
        // One split for each input: a front end costs more than its requests.
        let split = u64::try_from(bytes.len()).unwrap_or(0) % SPLITS;
        let split_run = answer(&mut pieces(bytes, split));
        assert_eq!(timeless(&split_run), replies);
        assert_eq!(split_run.is_closed, all.is_closed);
        let most = MAX_COMMAND_BYTES + bytes.len().min(MAX_COMMAND_BYTES);
        assert!(
            unread <= most && split_run.unread <= most,
            "{unread} are unread"
        );
    }
}

/// A client that needs no password is answered once for each command, up to the one that ends the connection.
fn one_for_each(bytes: &[u8], all: &Exchange, replies: usize) {
    let read = resp::read(unsplit(bytes), true);
    let expected = read.commands.len() + usize::from(read.wrong.is_some());
    match all.is_closed && read.wrong.is_none() {
        true => assert!(
            replies <= expected,
            "{replies} replies to {expected} commands"
        ),
        false => assert!(
            replies == expected || all.is_closed && replies < expected,
            "{replies} replies to {expected} commands"
        ),
    }
}

fn timeless(answered: &Exchange) -> Vec<Reply> {
    let replies = replies::all(&answered.bytes);
    let Some(replies) = replies else {
        panic!("no whole replies: {}", answered.bytes.escape_ascii())
    };
    replies.into_iter().map(Reply::timeless).collect()
}
