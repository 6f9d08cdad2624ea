//! Code blocks of a page, and the commands in them.

/// A fenced code block.
#[derive(Debug)]
pub(crate) struct Block<'t> {
    /// The word behind the fence; empty if there is none.
    pub(crate) language: &'t str,
    /// Its first line, from 1.
    pub(crate) line: usize,
    pub(crate) lines: Vec<&'t str>,
}

/// A command and the output that is printed below it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The line of the command.
    pub(crate) line: usize,
    /// The command, verbatim: several lines if it continues or has a here-document.
    pub(crate) command: String,
    /// Expected lines of output; empty if none is printed.
    pub(crate) output: Vec<String>,
}

impl Step {
    /// The program that keeps running after the command, if the command ends with `&`.
    pub(crate) fn background(&self) -> Option<&str> {
        let command = self.command.split(" # ").next().unwrap_or_default();
        let command = command.trim_end().strip_suffix('&')?;
        command.split_whitespace().next()
    }

    /// The jobs that the command ends, as arguments of `wait`.
    pub(crate) fn ended_jobs(&self) -> Option<&str> {
        self.command.strip_prefix("kill ")
    }

    /// Whether this is the expected output.
    pub(crate) fn matches(&self, printed: &str) -> bool {
        let expected: Vec<&str> = self.output.iter().map(String::as_str).collect();
        let printed: Vec<&str> = printed.lines().map(str::trim_end).collect();
        self.output.is_empty() || lines_match(&expected, &printed)
    }
}

/// All blocks of a page.
pub(crate) fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut is_open = false;
    for (line, text) in text.lines().enumerate() {
        match text.trim_start().strip_prefix("```") {
            Some(_) if is_open => is_open = false,
            Some(language) => {
                is_open = true;
                blocks.push(Block {
                    language: language.split([',', ' ']).next().unwrap_or_default(),
                    line: line + 2,
                    lines: Vec::new(),
                });
            }
            None if is_open => blocks.last_mut().unwrap().lines.push(text),
            None => {}
        }
    }
    blocks
}

impl Block<'_> {
    /// The commands of a console block on this page.
    pub(crate) fn steps(&self, page: &str) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        let mut lines = self.lines.iter().zip(self.line..);
        while let Some((text, line)) = lines.next() {
            let Some(command) = text.strip_prefix("$ ") else {
                let step = steps.last_mut();
                let step = step
                    .unwrap_or_else(|| panic!("{page}:{line}: output stands before any command"));
                step.output.push(text.trim_end().into());
                continue;
            };
            let mut command = command.to_owned();
            let end = document_end(&command);
            while end.is_some() || command.ends_with('\\') {
                let Some((more, _)) = lines.next() else {
                    panic!("{page}:{line}: the command has no end");
                };
                command.push('\n');
                command.push_str(more);
                if end.as_deref() == Some(*more) {
                    break;
                }
            }
            steps.push(Step {
                line,
                command,
                output: Vec::new(),
            });
        }
        for step in &mut steps {
            // An empty line separates commands.
            while step.output.last().is_some_and(String::is_empty) {
                step.output.pop();
            }
        }
        steps
    }
}

/// The end of a here-document that begins in this command.
fn document_end(command: &str) -> Option<String> {
    let (_, rest) = command.split_once("<<")?;
    let word = rest.split_whitespace().next()?;
    Some(word.trim_matches('\'').to_owned())
}

fn lines_match(expected: &[&str], printed: &[&str]) -> bool {
    let Some((first, rest)) = expected.split_first() else {
        return printed.iter().all(|line| line.is_empty());
    };
    if first.trim() == "…" {
        return (0..=printed.len()).any(|skip| lines_match(rest, &printed[skip..]));
    }
    printed
        .split_first()
        .is_some_and(|(line, more)| line_matches(first, line) && lines_match(rest, more))
}

fn line_matches(expected: &str, printed: &str) -> bool {
    let Some((first, rest)) = expected.split_once('…') else {
        return expected == printed;
    };
    let Some(printed) = printed.strip_prefix(first) else {
        return false;
    };
    let mut ends = (0..=printed.len()).filter(|end| printed.is_char_boundary(*end));
    ends.any(|end| line_matches(rest, &printed[end..]))
}

#[test]
fn blocks_are_split_into_commands_and_their_output() {
    let text = "text\n```console\n$ cat > a <<'EOF'\n$ not a command\nEOF\n$ one \\\n  two\nout\n\n$ server &  # comment\n```\n```sh\nx\n```\n";
    let blocks = blocks(text);
    assert_eq!((blocks.len(), blocks[1].language), (2, "sh"));
    let steps = blocks[0].steps("p");
    let commands: Vec<&str> = steps.iter().map(|step| &*step.command).collect();
    assert_eq!(
        commands,
        [
            "cat > a <<'EOF'\n$ not a command\nEOF",
            "one \\\n  two",
            "server &  # comment"
        ]
    );
    assert_eq!(
        (steps[1].line, &*steps[1].output),
        (6, &["out".to_owned()][..])
    );
    assert_eq!(steps[2].background(), Some("server"));
    assert_eq!(steps[1].background(), None);
}

#[test]
fn an_ellipsis_stands_for_any_text_or_any_lines() {
    for (expected, printed, matches) in [
        ("a … c", "a b c", true),
        ("a … c", "a b d", false),
        ("a …", "a b", true),
        ("a", "ab", false),
        ("ab", "a", false),
        ("…b", "aab", true),
    ] {
        assert_eq!(line_matches(expected, printed), matches, "{expected}");
    }
    assert!(lines_match(&["a", "…", "d"], &["a", "b", "c", "d"]));
    assert!(lines_match(&["…", "d"], &["d", ""]));
    assert!(!lines_match(&["…", "d"], &["e"]));
    assert!(!lines_match(&["a"], &["a", "b"]));
}
