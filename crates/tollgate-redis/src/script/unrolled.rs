//! The script for a few buckets, written out for each of them: no loop, no table, only locals.
//!
//! # Theory
//!
//! Most requests charge one to four buckets. Apart from its commands, such a script costs a server the arguments that it reads
//! and the tables that it fills. So all numbers come in one argument of eight bytes each, and the pieces in `bucket_*.lua` are
//! repeated with `@` replaced by the number of the bucket.
//!
//! ARGV: number of the call; then for each bucket: ticks in a unit of time, ticks of the charge, the most that may be missing
//! before, ticks in a step; then for each: ticks in a full bucket; then for each: the most that may be missing unless the clock
//! stepped back. Returns: number of the call, whether the charges were taken, now, and for each the moment at which it was
//! found to be full again (-1 if there was no state).
//!
//! # What it does not know
//!
//! Buckets whose state is text, and charges of cost 0: they have a script with a loop.

const READ: &str = include_str!("bucket_read.lua");
const WRITE: &str = include_str!("bucket_write.lua");
const REPAIR: &str = include_str!("bucket_repair.lua");

/// The script for this number of buckets, without its clock.
pub(super) fn buckets(count: usize) -> String {
    let joined = |piece: &str, between: &str| {
        let nth = |n: usize| piece.replace('@', &n.to_string());
        (1..=count).map(nth).collect::<Vec<_>>().join(between)
    };
    let list = |piece: &str| joined(piece, ", ");
    let each = |piece: &str| joined(piece, "");
    let numbers = "i8".repeat(4 * count);
    let depths = "i8".repeat(2 * count);
    let find = if count == 1 {
        // The error for a key of another type is a table: no state has that length.
        "local found1 = redis.pcall('GET', key1)\n".to_owned()
    } else {
        format!(
            "local found = call('MGET', {})\nlocal {} = {}\n",
            list("key@"),
            list("found@"),
            list("found[@]")
        )
    };
    // A key of another type looks absent to MGET, and SET would replace it.
    let absent = if count == 1 {
        String::new()
    } else {
        format!(
            "if not ({}) and took == 1 then\n\
             local absent = {{}}\n\
             {}\
             if call('EXISTS', unpack(absent)) > 0 then\n\
             for i = 1, #absent do\n\
             if call('EXISTS', absent[i]) > 0 then\n\
             return redis.error_reply('TOLLGATE ' .. (string.match(absent[i], '^(.-):{{') or 'a limit') .. ' FOREIGN')\n\
             end\n\
             end\n\
             end\n\
             end\n",
            joined("found@", " and "),
            each("if not found@ then absent[#absent + 1] = key@ end\n"),
        )
    };
    [
        "local keys, call, pack, read, took = KEYS, redis.call, struct.pack, struct.unpack, 1\n",
        &format!(
            "local {} = read('<{numbers}', ARGV[2])\n",
            list("ticks@, wanted@, most@, step@")
        ),
        &format!("local {} = {}\n", list("key@"), list("keys[@]")),
        &find,
        "local since = now - SINCE\n",
        &each(READ),
        &absent,
        "if took == 1 then\n",
        &each(WRITE),
        "else\n",
        &format!(
            "local {} = read('<{depths}', ARGV[2], {})\n",
            [list("depth@"), list("beyond@")].join(", "),
            32 * count + 1
        ),
        &each(REPAIR),
        "end\n",
        &format!("return {{ARGV[1] + 0, took, now, {}}}\n", list("was@")),
    ]
    .concat()
}
