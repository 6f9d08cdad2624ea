//! A Redis client from its first byte to its last.

use tollgate_server::fuzzing::resp::{
    self, Exchange, FrontEnd, MAX_COMMAND_BYTES, MAX_OUTPUT_BYTES,
};

use super::POLICY;
use crate::Target;
use crate::cut::{WAYS, pieces, whole};
use crate::replies::{self, Reply};

const PASSWORD: &str = "correct-horse-battery";

pub(super) const TARGET: Target = Target {
    name: "resp_session",
    holds: "answers are whole replies, one for each command; a stream is answered the same however it is cut; no more answers wait \
            for a client than may, and no more questions than one command",
    run,
    words: &[
        "*1\r\n",
        "*2\r\n",
        "*5\r\n",
        "$4\r\n",
        "\r\n",
        "PING\r\n",
        "HELLO 3\r\n",
        "HELLO 2 AUTH default correct-horse-battery\r\n",
        "AUTH correct-horse-battery\r\n",
        "RESET\r\n",
        "QUIT\r\n",
        "SELECT 3\r\n",
        "MULTI\r\n",
        "EXEC\r\n",
        "DISCARD\r\n",
        "WATCH k\r\n",
        "UNWATCH\r\n",
        "CL.THROTTLE k 3 1 60\r\n",
        "THROTTLE k 3 1 60 1\r\n",
        "TOLLGATE.CHECK path /api/a header.x-user 1\r\n",
        "TOLLGATE.PEEK path /login ip 10.0.0.1\r\n",
        "TOLLGATE.EXPLAIN path /api/a\r\n",
        "TOLLGATE.CHECK limit per-user key 1 cost 2 reserve yes\r\n",
        "TOLLGATE.SETTLE x actual 1\r\n",
        "CLIENT SETINFO lib-name x\r\n",
        "CLIENT ID\r\n",
        "COMMAND DOCS\r\n",
        "CONFIG GET *\r\n",
        "INFO\r\n",
        "INFO server\r\n",
        "CLIENT HELP\r\n",
        "CLIENT INFO\r\n",
        "ECHO x\r\n",
        "GET / HTTP/1.1\r\n",
        " -1 ",
        " 9223372036854775807 ",
    ],
};

fn run(bytes: &[u8]) {
    for password in [None, Some(PASSWORD)] {
        // A new door each time: who was here before must not matter.
        let answer = |cut: &mut dyn Iterator<Item = &[u8]>| {
            let front_end = FrontEnd::new(POLICY, password);
            front_end
                .map(|front_end| front_end.answer(cut))
                .unwrap_or_default()
        };
        let all = answer(&mut whole(bytes));
        let (kept, unread) = (all.kept, all.unread);
        assert!(kept <= MAX_OUTPUT_BYTES, "{kept} bytes of answers are kept");
        let told = timeless(&all);
        if password.is_none() {
            one_for_each(bytes, &all, told.len());
        }
        // One way for each input: a door costs more than what is asked of it.
        let way = u64::try_from(bytes.len()).unwrap_or(0) % WAYS;
        let cut = answer(&mut pieces(bytes, way));
        assert_eq!(timeless(&cut), told);
        assert_eq!(cut.is_closed, all.is_closed);
        let most = MAX_COMMAND_BYTES + bytes.len().min(MAX_COMMAND_BYTES);
        assert!(unread <= most && cut.unread <= most, "{unread} are unread");
    }
}

/// A client that needs no password is answered once for each command, up to the one that ends the connection.
fn one_for_each(bytes: &[u8], all: &Exchange, replies: usize) {
    let read = resp::read(whole(bytes), true);
    let due = read.commands.len() + usize::from(read.wrong.is_some());
    match all.is_closed && read.wrong.is_none() {
        true => assert!(replies <= due, "{replies} replies to {due} commands"),
        false => assert!(
            replies == due || all.is_closed && replies < due,
            "{replies} replies to {due} commands"
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
