//! One shell session: the commands of a page in order.
//!
//! The session is a bash script with every command verbatim. Around each command the script directs the output to files of
//! that step, checks the exit code, and waits for programs in the background.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use tollgate_testkit::tollgate::binary;
use tollgate_testkit::{Directory, Process, program, wait};

use crate::block::Step;

/// Ports that the documentation uses: the defaults of `serve` and `gateway`, and those of its examples.
const PORTS: [u16; 8] = [8080, 9070, 8000, 9071, 8081, 6390, 6379, 3000];
/// The most that a session may take.
const SESSION_MAX: Duration = Duration::from_secs(180);
/// What each program prints when it listens.
const LISTENS: [(&str, &str); 3] = [
    ("tollgate", "://"),
    ("python3", "Serving HTTP"),
    ("redis-server", "Ready to accept connections"),
];

const PRELUDE: &str = r#"set -m
export PYTHONUNBUFFERED=1
step() {
  line=$1
  echo "$line" > "$steps/last"
  exec > "$steps/$line.out" 2> "$steps/$line.err"
}
end() {
  [ "$1" = 0 ] || { echo "exit code $1" >> "$steps/$line.err"; exit 1; }
}
listens() {
  until grep -q "$1" "$steps/$line.out"; do
    kill -0 $! 2> /dev/null || { echo "the program has ended" >> "$steps/$line.err"; exit 1; }
    sleep 0.02
  done
}
trap 'kill $(jobs -p) 2> /dev/null' EXIT
"#;

/// Runs the commands of a page and compares what they print.
pub(crate) fn run(page: &str, steps: &[Step], root: &Path) {
    for port in PORTS {
        let what = format!("port {port}, which the commands of {page} need, is free");
        wait(&what, || TcpListener::bind(("127.0.0.1", port)).is_ok());
    }
    let scratch = Directory::new();
    let bin = scratch.path().join("bin");
    let outputs = scratch.path().join("steps");
    let home = scratch.path().join("home");
    for directory in [&bin, &outputs, &home] {
        fs::create_dir(directory).unwrap();
    }
    symlink(
        root.canonicalize().unwrap().join("examples"),
        home.join("examples"),
    )
    .unwrap();
    // Programs of the session die with the shell, also if the shell is killed.
    for (name, path) in [
        ("tollgate", binary().unwrap()),
        ("redis-server", program("redis-server").unwrap()),
        ("python3", program("python3").unwrap()),
    ] {
        let wrapper = bin.join(name);
        // Not `canonicalize`: redis-server looks at the name that it is started by.
        let path = std::path::absolute(path).unwrap();
        let text = format!(
            "#!/bin/sh\nexec setpriv --pdeathsig KILL -- '{}' \"$@\"\n",
            path.display()
        );
        fs::write(&wrapper, text).unwrap();
        fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let script = format!(
        "cd '{}'\nsteps='{}'\nexport PATH='{}':$PATH\n{PRELUDE}{}exit 0\n",
        home.display(),
        outputs.display(),
        bin.display(),
        steps.iter().map(scripted).collect::<String>()
    );
    let script = scratch.write("session", &script);
    let shell = program("bash").unwrap();
    let arguments = [script.display().to_string()];
    let process = Process::prepare(&format!("the session of {page}"), &shell, &arguments).unwrap();
    process.start().unwrap();
    let ended = process.wait(SESSION_MAX);
    let read = |name: &str| fs::read_to_string(outputs.join(name)).unwrap_or_default();
    let is_success = ended.as_ref().is_ok_and(|status| status.success());
    let last = read("last");
    for step in steps {
        let line = step.line;
        let printed = read(&format!("{line}.out"));
        let errors = read(&format!("{line}.err"));
        assert!(
            is_success || last.trim() != line.to_string(),
            "{page}:{line}: `{}` failed\nprinted:\n{printed}\n{errors}",
            step.command
        );
        assert!(
            step.matches(&printed),
            "{page}:{line}: `{}` printed other lines than the page shows\nprinted:\n{printed}\n{errors}",
            step.command
        );
    }
    assert!(is_success, "{page}: {ended:?}\n{}", process.log());
}

/// A command with what the session does around it.
fn scripted(step: &Step) -> String {
    let (line, command) = (step.line, &step.command);
    let after = match (step.background(), step.ended_jobs()) {
        (Some(program), _) => {
            let found = LISTENS.iter().find(|(name, _)| *name == program);
            let Some((_, listens)) = found else {
                panic!("line {line}: it is not known what `{program}` prints when it listens");
            };
            format!("listens '{listens}'\n")
        }
        (None, Some(jobs)) => format!("end $?\nwait {jobs} 2> /dev/null\n"),
        (None, None) => "end $?\n".to_owned(),
    };
    format!("step {line}\n{command}\n{after}")
}
