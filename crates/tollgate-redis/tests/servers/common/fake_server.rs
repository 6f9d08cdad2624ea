//! A RESP server that answers scripts and commands with configured replies.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What scripts are answered with: `{n}` stands for the number of the call.
#[derive(Clone)]
pub(crate) struct FakeServer {
    pub(crate) port: u16,
    answer: Arc<Mutex<String>>,
    asked: Arc<Mutex<Vec<Vec<String>>>>,
    replies: Arc<Mutex<HashMap<String, String>>>,
    delay: Arc<Mutex<Duration>>,
}

impl FakeServer {
    pub(crate) async fn start(answer: &str) -> FakeServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fake = FakeServer {
            port: listener.local_addr().unwrap().port(),
            answer: Arc::new(Mutex::new(answer.to_owned())),
            asked: Arc::default(),
            replies: Arc::default(),
            delay: Arc::default(),
        };
        let serving = fake.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        fake
    }

    pub(crate) fn set_script_reply(&self, answer: &str) {
        answer.clone_into(&mut self.answer.lock().unwrap());
    }

    /// What another command is answered with.
    pub(crate) fn set_reply(&self, command: &str, answer: &str) {
        let mut replies = self.replies.lock().unwrap();
        replies.insert(command.to_owned(), answer.to_owned());
    }

    /// How long it takes to answer.
    pub(crate) fn set_delay(&self, delay: Duration) {
        *self.delay.lock().unwrap() = delay;
    }

    /// How often this command was sent.
    pub(crate) fn calls_of(&self, command: &str) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|parts| parts[0] == command).count()
    }

    /// How many scripts of limits were sent.
    pub(crate) fn scripts(&self) -> usize {
        self.scripts_where(|key| key.contains("limit"))
    }

    /// How many heartbeats were sent.
    pub(crate) fn heartbeats(&self) -> usize {
        self.scripts_where(|key| !key.contains("limit"))
    }

    fn scripts_where(&self, is_counted: impl Fn(&str) -> bool) -> usize {
        let asked = self.asked.lock().unwrap();
        asked
            .iter()
            .filter(|parts| parts[0].starts_with("EVAL") && is_counted(&parts[3]))
            .count()
    }

    async fn serve(self, mut stream: TcpStream) {
        let mut buffer = Vec::new();
        loop {
            while let Some((parts, used)) = command(&buffer) {
                buffer.drain(..used);
                let answer = self.reply(&parts);
                self.asked.lock().unwrap().push(parts);
                let delay = *self.delay.lock().unwrap();
                tokio::time::sleep(delay).await;
                if answer == "close" || stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
            let mut bytes = [0; 4096];
            match stream.read(&mut bytes).await {
                Ok(0) | Err(_) => return,
                Ok(count) => buffer.extend_from_slice(&bytes[..count]),
            }
        }
    }

    fn reply(&self, parts: &[String]) -> String {
        if let Some(answer) = self.replies.lock().unwrap().get(&parts[0]) {
            return answer.clone();
        }
        match parts[0].as_str() {
            "ROLE" => "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n".into(),
            "SCRIPT" => {
                let sha = redis::Script::new(&parts[2]).get_hash().to_owned();
                format!("$40\r\n{sha}\r\n")
            }
            "PING" => "+PONG\r\n".into(),
            "EVALSHA" | "EVAL" => {
                let keys: usize = parts[2].parse().unwrap();
                let number = &parts[3 + keys];
                if parts[3].contains("limit") {
                    return self.answer.lock().unwrap().replace("{n}", number);
                }
                // A heartbeat: one node, and no secret.
                format!("*3\r\n:{number}\r\n:1\r\n$0\r\n\r\n")
            }
            _ => "-ERR unknown command\r\n".into(),
        }
    }
}

/// The first command in the buffer, and its length. Arguments may be any bytes.
fn command(buffer: &[u8]) -> Option<(Vec<String>, usize)> {
    let mut at = 0;
    let count = number(buffer, &mut at)?;
    let mut parts = Vec::new();
    for _ in 0..count {
        let length = number(buffer, &mut at)?;
        let part = buffer.get(at..at + length)?;
        parts.push(String::from_utf8_lossy(part).into_owned());
        at += length + 2;
    }
    (at <= buffer.len()).then_some((parts, at))
}

/// The number of the line at this place, after the mark that it begins with.
fn number(buffer: &[u8], at: &mut usize) -> Option<usize> {
    let line = buffer.get(*at..)?;
    let end = line.windows(2).position(|pair| pair == b"\r\n")?;
    *at += end + 2;
    std::str::from_utf8(line.get(1..end)?).ok()?.parse().ok()
}
