//! Commands of a first user: `init` and its recipes, completions, manual pages, help, colours, formats of problems.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tollgate_testkit::Directory;
use tollgate_testkit::tollgate::command;

use crate::run::{Ran, fed, tollgate};

const RECIPES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/recipes");
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/recipes.md");
const BAD: &[u8] = b"default: pass\nlimits: [{ name: a, key: header.x-a, allow: 5/s }]\n";

/// The names of the recipes.
fn recipes() -> Vec<String> {
    let files = fs::read_dir(RECIPES).unwrap();
    let names = files.map(|file| file.unwrap().path());
    let mut names: Vec<String> = names
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn every_recipe_is_free_of_warnings_and_its_cases_pass() {
    for name in recipes() {
        let file = format!("{RECIPES}/{name}.yaml");
        let ran = tollgate(&["check", &file, "--deny-warnings"]);
        assert!(
            ran.code == Some(0) && ran.out.starts_with("ok: "),
            "{ran:?}"
        );
        let ran = tollgate(&["test", &file]);
        assert_eq!(ran.code, Some(0), "{}", ran.out);
    }
}

#[test]
fn every_recipe_is_described_and_can_be_started_from() {
    let page = fs::read_to_string(PAGE).unwrap();
    let list = tollgate(&["init"]).success();
    assert_eq!(recipes().len(), 12);
    for name in recipes() {
        let link = format!("../examples/recipes/{name}.yaml");
        assert!(page.contains(&link), "docs/recipes.md does not name {name}");
        assert!(list.contains(&format!("\n{name} ")) || list.starts_with(&format!("{name} ")));
        let written = tollgate(&["init", &name, "--output", "-"]).success();
        let kept = fs::read_to_string(format!("{RECIPES}/{name}.yaml")).unwrap();
        assert!(written == kept, "{name}");
    }
}

#[test]
fn init_overwrites_no_file() {
    let scratch = Directory::new();
    let init = || {
        let mut command = command().unwrap();
        let command = command.args(["init", "login"]).current_dir(scratch.path());
        tollgate_testkit::run(command, b"").unwrap()
    };
    let ran = init();
    assert!(ran.out.starts_with("wrote tollgate.yaml: "), "{ran:?}");
    let Ran { out, err, code } = init();
    assert_eq!((out.as_str(), code), ("", Some(2)));
    assert!(
        err.contains("name another file with `--output FILE`"),
        "{err}"
    );
    let ran = tollgate(&["init", "nothing"]);
    assert_eq!(ran.code, Some(2));
}

#[test]
fn completions_and_manual_pages_name_every_command() {
    let commands = ["serve", "gateway", "check", "test", "explain", "bench"];
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = tollgate(&["completions", shell]).success();
        assert!(commands.iter().all(|name| text.contains(name)), "{shell}");
    }
    let page = tollgate(&["man"]).success();
    assert!(page.contains(".TH tollgate 1"), "{page}");
    let page = tollgate(&["man", "serve"]).success();
    assert!(
        page.contains("tollgate\\-serve") && page.contains("\\-\\-resp\\-max\\-keys"),
        "{page}"
    );
    assert_eq!(tollgate(&["man", "nothing"]).code, Some(2));
    let scratch = Directory::new();
    tollgate(&["man", "--directory", &scratch.argument()]).success();
    for name in commands {
        assert!(
            Path::new(&scratch.argument())
                .join(format!("tollgate-{name}.1"))
                .is_file()
        );
    }
}

#[test]
fn color_is_only_for_terminals_unless_it_is_asked_for() {
    let plain = fed(&["check", "-"], BAD).out;
    assert!(
        plain.starts_with("warning: ") && !plain.contains('\x1b'),
        "{plain}"
    );
    let colored = fed(&["check", "-", "--color", "always"], BAD).out;
    assert!(
        colored.starts_with("\x1b[1;33mwarning:\x1b[0m "),
        "{colored}"
    );
    let plain_again = fed(&["--color=never", "check", "-"], BAD).out;
    assert_eq!(plain_again, plain);
    let error = tollgate(&["check", "no-such-file", "--color=always"]).err;
    assert!(error.starts_with("\x1b[1;31merror:\x1b[0m "), "{error}");
}

#[test]
fn help_is_wrapped_and_groups_its_options() {
    let help = tollgate(&["serve", "--help"]).success();
    for group in [
        "Policy:",
        "Decisions:",
        "Redis clients:",
        "Admin:",
        "State:",
        "Log:",
    ] {
        assert!(help.contains(&format!("\n{group}\n")), "{group}: {help}");
    }
    for line in help.lines() {
        assert!(line.chars().count() <= 120, "{line}");
    }
}

#[test]
fn serve_and_gateway_have_different_admin_ports() {
    let default = |command: &str| {
        let help = tollgate(&[command, "--help"]).success();
        let from = help.find("--admin ").unwrap();
        let rest = &help[from..];
        let from = rest.find("[default: 127.0.0.1:").unwrap() + 20;
        rest[from..from + 4].to_owned()
    };
    assert_eq!(
        (default("serve").as_str(), default("gateway").as_str()),
        ("9070", "9071")
    );
}

#[test]
fn no_command_takes_zero_threads() {
    for args in [
        &["serve"][..],
        &["gateway"],
        &["bench", "resp://127.0.0.1:1"],
    ] {
        let ran = tollgate(&[args, &["--threads", "0"]].concat());
        assert!(
            ran.err.contains("invalid value '0' for '--threads"),
            "{ran:?}"
        );
        assert_eq!(ran.code, Some(2));
    }
}

#[test]
fn problems_are_annotations_of_github() {
    let ran = fed(
        &["check", "-", "--format", "github", "--deny-warnings"],
        BAD,
    );
    assert!(
        ran.out.starts_with("::warning file=standard input,line=2,col=26,endColumn=36,title=rotating-key::a client that"),
        "{}",
        ran.out
    );
    assert!(ran.out.contains("each time%0Ahint: add"), "{}", ran.out);
    assert_eq!((ran.out.lines().count(), ran.code), (1, Some(1)));
}

#[test]
fn problems_are_sarif() {
    let ran = fed(&["check", "-", "--format", "sarif"], BAD);
    let log: Value = serde_json::from_str(&ran.out).unwrap();
    let run = &log["runs"][0];
    assert_eq!(log["version"], "2.1.0");
    assert_eq!(run["tool"]["driver"]["rules"][0]["id"], "rotating-key");
    let result = &run["results"][0];
    assert_eq!(
        (&result["ruleId"], &result["level"]),
        (&"rotating-key".into(), &"warning".into())
    );
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "standard input");
    assert_eq!(place["region"]["startLine"], 2);
    let both = tollgate(&["check", "-", "--json", "--format", "sarif"]);
    assert_eq!(both.code, Some(2));
}
