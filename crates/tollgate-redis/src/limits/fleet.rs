//! The calls that concern the fleet and no limit: heartbeats, and identifiers that are used once.

use redis::Value;

use super::{BadReply, items, whole};
use crate::script_call::{Arguments, ScriptCall, ScriptName};

/// A reply to a heartbeat.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Heartbeat {
    /// How many nodes are alive.
    pub(crate) nodes: u32,
    /// The secret that they share; `None` if no node has offered one.
    pub(crate) secret: Option<[u8; 32]>,
}

/// Reports that `node` is alive for the next `ttl_ms`; for 0, that it is gone. A fleet without a secret takes `secret`.
pub(crate) fn heartbeat_call(prefix: &str, node: &str, ttl_ms: u64, secret: &str) -> ScriptCall {
    let (mut keys, mut args) = (Arguments::default(), Arguments::default());
    let prefix = prefix.replace(['{', '}'], "");
    keys.push(format!("{prefix}:{{nodes}}").as_bytes());
    keys.push(format!("{prefix}:{{nodes}}:secret").as_bytes());
    args.push(node.as_bytes());
    args.push_number(ttl_ms);
    args.push(secret.as_bytes());
    ScriptCall {
        script: ScriptName::Heartbeat,
        keys,
        args,
    }
}

/// Reads the reply to a heartbeat.
///
/// # Errors
/// A reply of another shape.
pub(crate) fn read_heartbeat(reply: &Value) -> Result<Heartbeat, BadReply> {
    let items = items(reply)?;
    let count = whole(items.get(1))?;
    let nodes = u32::try_from(count).map_err(|_| BadReply(format!("{count} nodes")))?;
    // An error does not show what is there instead.
    let wrong = || BadReply("a secret of another form".into());
    let secret = match items.get(2) {
        Some(Value::BulkString(digits)) if digits.is_empty() => None,
        Some(Value::BulkString(digits)) => {
            let secret = blake3::Hash::from_hex(digits).map_err(|_| wrong())?;
            Some(*secret.as_bytes())
        }
        _ => return Err(wrong()),
    };
    Ok(Heartbeat { nodes, secret })
}

/// Forgets what is counted under a name.
pub(super) fn forget_call(name: &[u8]) -> ScriptCall {
    let mut keys = Arguments::default();
    keys.push(name);
    ScriptCall {
        script: ScriptName::Forget,
        keys,
        args: Arguments::default(),
    }
}

/// Records that `id` is used, for `ttl_ms`.
pub(crate) fn record_use_call(prefix: &str, id: u128, ttl_ms: u64) -> ScriptCall {
    let (mut keys, mut args) = (Arguments::default(), Arguments::default());
    keys.push(format!("{prefix}:used:{id:032x}").as_bytes());
    args.push_number(ttl_ms);
    ScriptCall {
        script: ScriptName::RecordUse,
        keys,
        args,
    }
}

/// Was it the first use?
///
/// # Errors
/// A reply of another shape.
pub(crate) fn read_record_use(reply: &Value) -> Result<bool, BadReply> {
    match whole(items(reply)?.get(1))? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(BadReply(format!("{other} uses"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_to_a_heartbeat_has_its_form() {
        let read = |secret: &str| {
            let secret = Value::BulkString(secret.as_bytes().to_vec());
            read_heartbeat(&Value::Array(vec![Value::Int(7), Value::Int(3), secret]))
        };
        let reply = |secret| Heartbeat { nodes: 3, secret };
        assert_eq!(read("").unwrap(), reply(None));
        assert_eq!(read(&"0f".repeat(32)).unwrap(), reply(Some([15; 32])));
        for wrong in ["0f", &"0g".repeat(32), &"0f".repeat(33)] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
