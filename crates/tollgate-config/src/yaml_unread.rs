//! Reports unsupported parts of YAML: once for each kind, whatever their number.

use crate::problem::Place;
use crate::report::Report;

/// The first place of each unsupported feature.
#[derive(Default)]
pub(crate) struct Unread {
    pub(crate) anchors: Vec<Place>,
    pub(crate) aliases: Vec<Place>,
    pub(crate) tags: Vec<Place>,
    pub(crate) merges: Vec<Place>,
}

impl Unread {
    /// Records an anchor or a tag on a node. Returns whether the value is unusable.
    pub(crate) fn note(&mut self, anchor: usize, tag: bool, place: Place) -> bool {
        if anchor != 0 {
            self.anchors.push(place);
        }
        if tag {
            self.tags.push(place);
        }
        // An anchor changes nothing about the value it stands before, a tag does.
        tag
    }

    /// Reports each feature once.
    pub(crate) fn report(&self, report: &Report<'_>) {
        let features = [
            (&self.anchors, "anchor", "an anchor (`&name`)", "anchors"),
            (&self.aliases, "alias", "an alias (`*name`)", "aliases"),
            (&self.tags, "tag", "a tag (`!name`)", "tags"),
            (
                &self.merges,
                "merge-key",
                "a merge key (`<<`)",
                "merge keys",
            ),
        ];
        for (places, code, one, many) in features {
            let Some(first) = places.first() else {
                continue;
            };
            let message = match places.len() {
                1 => format!("{one} is not read in a policy"),
                n => format!("{many} are not read in a policy; this is the first of {n}"),
            };
            let hint = match code {
                "anchor" | "alias" => {
                    "write the value out where it is used: a reader of a limit should see all of it"
                }
                "tag" => "drop the tag; every field knows what kind of value it takes",
                _ => {
                    "write the fields out in each limit, or use one limit with a list under `match`"
                }
            };
            report.error(*first, code, message, hint);
        }
    }
}
