//! Replacements of a policy file, each of which must be seen within three seconds.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use super::{number, numbered};
use tollgate_testkit::tollgate::{Start, Tollgate};
use tollgate_testkit::{Directory, Signal, wait_for};

use crate::harness::serve;

const SEEN_WITHIN: Duration = Duration::from_secs(3);

/// A way to replace a file with another text.
type Way = fn(&Path, &str);

#[track_caller]
fn is_seen(server: &Tollgate, way: &str, expected: u64) {
    let seen = || Ok((number(server) == Some(expected)).into());
    wait_for(way, SEEN_WITHIN, || server.log(), seen).unwrap();
    assert_eq!(server.ready()["status"], "ok", "{way}");
}

fn in_place(file: &Path, text: &str) {
    let mut open = fs::OpenOptions::new()
        .write(true)
        .open(file)
        .expect("the policy file");
    open.write_all(text.as_bytes()).expect("it is written");
    open.set_len(text.len() as u64).expect("it is cut");
}

fn by_rename(file: &Path, text: &str) {
    let beside = file.with_extension("new");
    fs::write(&beside, text).expect("a file beside it");
    fs::rename(&beside, file).expect("it is renamed");
}

fn truncated_and_written(file: &Path, text: &str) {
    let mut open = fs::File::create(file).expect("the policy file");
    for part in text.as_bytes().chunks(7) {
        open.write_all(part).expect("it is written");
        open.flush().expect("it is flushed");
    }
}

fn deleted_and_made_again(file: &Path, text: &str) {
    fs::remove_file(file).expect("it is there");
    fs::write(file, text).expect("it is made again");
}

#[test]
fn every_way_of_replacing_the_file_is_seen_without_a_word() {
    let server = serve(&numbered(1));
    let file = server.policy_file();
    let ways: [(&str, Way); 4] = [
        ("written in place", in_place),
        ("renamed over", by_rename),
        ("truncated and written", truncated_and_written),
        ("deleted and made again", deleted_and_made_again),
    ];
    // Twice: the second time shows whether the first has made the server deaf.
    let rounds = ways.iter().chain(&ways);
    for ((way, replace), expected) in rounds.zip(100..) {
        replace(&file, &numbered(expected));
        is_seen(&server, way, expected);
    }
}

#[test]
fn a_link_that_is_swapped_is_seen() {
    // As Kubernetes mounts a ConfigMap: tollgate.yaml -> ..data/tollgate.yaml, ..data -> ..2026_01.
    let scratch = Directory::new();
    let version = |name: &str, text: &str| {
        fs::create_dir(scratch.file(name)).expect("a directory");
        fs::write(scratch.file(name).join("tollgate.yaml"), text).expect("a file");
    };
    version("..2026_01", &numbered(1));
    symlink("..2026_01", scratch.file("..data")).expect("a link");
    let file = scratch.file("tollgate.yaml");
    symlink("..data/tollgate.yaml", &file).expect("a link");
    let server = Start::serve().policy_file(&file).start().unwrap();
    for (at, expected) in [(2, 100), (3, 101)] {
        let name = format!("..2026_0{at}");
        version(&name, &numbered(expected));
        symlink(&name, scratch.file("..data_tmp")).expect("a link");
        fs::rename(scratch.file("..data_tmp"), scratch.file("..data")).expect("a swap");
        let old = format!("..2026_0{}", at - 1);
        fs::remove_dir_all(scratch.file(&old)).expect("the old one goes");
        is_seen(&server, "a link swapped", expected);
    }
}

#[test]
fn a_signal_and_a_call_of_the_operator_read_the_file() {
    let server = serve(&numbered(1));
    let file = server.policy_file();
    by_rename(&file, &numbered(100));
    server.signal(Signal::HUP).unwrap();
    is_seen(&server, "SIGHUP", 100);
    by_rename(&file, &numbered(101));
    let reloaded = server.operate("POST", "/reload", "{}").expect(200).json();
    // Active when the call returns; the watcher may have been first.
    assert_eq!(number(&server), Some(101), "{reloaded}");
    let again = server.operate("POST", "/reload", "{}").expect(200).json();
    assert_eq!(again["outcome"], "unchanged");
    assert_eq!(again["version"], reloaded["version"]);
}
