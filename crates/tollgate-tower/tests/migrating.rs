//! The migration guide: its Tollgate lines are those of the example, and no step takes more lines than before.
#![allow(clippy::unwrap_used, reason = "a test may")]
#![allow(dead_code, reason = "`main` of an example is not called here")]

#[path = "../examples/migrating.rs"]
mod migrating;

const GUIDE: &str = include_str!("../../../docs/migrating.md");
const PROGRAM: &str = include_str!("../examples/migrating.rs");

/// The longest line that counts as one.
const LINE_MAX: usize = 120;

struct Block {
    language: String,
    lines: Vec<String>,
}

/// The code blocks of the guide, in order.
fn blocks() -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in GUIDE.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(language), None) => {
                open = Some(Block {
                    language: language.to_owned(),
                    lines: Vec::new(),
                });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => block.lines.push(line.to_owned()),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block of the guide does not end");
    blocks
}

/// Code without what the formatter may change.
fn compact(code: &str) -> String {
    let code: String = code.chars().filter(|c| !c.is_whitespace()).collect();
    code.replace(",)", ")")
}

#[test]
fn every_tollgate_step_of_the_guide_is_built() {
    let program = compact(PROGRAM);
    let blocks = blocks();
    let steps: Vec<_> = blocks
        .iter()
        .filter(|block| block.language == "rust")
        .collect();
    assert!(steps.len() > 20, "{}", steps.len());
    for step in steps {
        let step = step.lines.join("\n");
        assert!(
            program.contains(compact(&step).trim_end_matches(',')),
            "not in examples/migrating.rs:\n{step}"
        );
    }
}

#[test]
fn no_step_takes_more_lines_than_before() {
    let blocks = blocks();
    for pair in blocks.windows(2) {
        let [before, after] = pair else { continue };
        if after.language != "rust" {
            continue;
        }
        assert_eq!(
            before.language, "text",
            "{:?} has nothing to compare with",
            after.lines
        );
        assert!(after.lines.len() <= before.lines.len(), "{:?}", after.lines);
        for line in &after.lines {
            assert!(line.len() <= LINE_MAX, "{line}");
        }
    }
}

#[tokio::test]
async fn the_layers_of_the_guide_can_be_made() {
    assert_eq!(migrating::apps().unwrap().len(), 6);
}
