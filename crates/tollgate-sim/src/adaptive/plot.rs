//! A small writer of line charts as SVG: axes, lines, a legend, nothing else.

use std::fmt::Write;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 34.0;
const PANEL: f64 = 190.0;
const GAP: f64 = 46.0;
/// No line needs more points than there are pixels.
const MOST_POINTS: usize = 600;

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    /// In the legend.
    pub name: String,
    /// Any colour that SVG knows.
    pub colour: &'static str,
    /// Whether it is dashed.
    pub is_dashed: bool,
    /// Left to right.
    pub points: Vec<(f64, f64)>,
}

/// Lines over the same time.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What its numbers are.
    pub label: &'static str,
    /// Where it ends at the top. It begins at 0.
    pub high: f64,
    /// The lines; a later one is drawn over an earlier one.
    pub lines: Vec<Line>,
}

/// A chart of panels, one below the other, over seconds from 0 to `secs`.
pub fn chart(title: &str, secs: f64, panels: &[Panel]) -> String {
    let height = TOP + panels.len() as f64 * (PANEL + GAP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    text(&mut svg, LEFT, 20.0, "start", title);
    for (at, panel) in panels.iter().enumerate() {
        let top = TOP + at as f64 * (PANEL + GAP);
        draw(&mut svg, top, secs.max(1.0), panel);
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw(svg: &mut String, top: f64, secs: f64, panel: &Panel) {
    let right = WIDTH - RIGHT;
    let bottom = top + PANEL;
    let high = if panel.high > 0.0 { panel.high } else { 1.0 };
    let x = |at: f64| LEFT + (right - LEFT) * (at / secs).clamp(0.0, 1.0);
    let y = |value: f64| bottom - PANEL * (value / high).clamp(0.0, 1.0);

    let step = round_step(high / 4.0);
    for value in multiples(step, high) {
        rule(svg, (LEFT, y(value)), (right, y(value)));
        text(svg, LEFT - 6.0, y(value) + 4.0, "end", &number(value, step));
    }
    let step = round_step(secs / 8.0);
    for at in multiples(step, secs) {
        rule(svg, (x(at), bottom), (x(at), bottom + 4.0));
        text(svg, x(at), bottom + 17.0, "middle", &number(at, step));
    }
    text(svg, right + 8.0, bottom + 17.0, "start", "seconds");
    text(svg, right + 8.0, top + 8.0, "start", panel.label);
    for (at, line) in panel.lines.iter().enumerate() {
        let dash = if line.is_dashed {
            " stroke-dasharray=\"5 4\""
        } else {
            ""
        };
        let stroke = format!(
            "fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"{dash}",
            line.colour
        );
        let every = line.points.len().div_ceil(MOST_POINTS).max(1);
        let points = line.points.iter().step_by(every);
        let points: Vec<String> = points
            .map(|&(at, value)| format!("{:.1},{:.1}", x(at), y(value)))
            .collect();
        let level = top + 28.0 + 18.0 * at as f64;
        let from = right + 8.0;
        // A string takes everything that is written to it.
        let _ = writeln!(svg, "<polyline {stroke} points=\"{}\"/>", points.join(" "));
        let to = from + 18.0;
        let _ = writeln!(
            svg,
            "<polyline {stroke} points=\"{from},{level} {to},{level}\"/>"
        );
        text(svg, from + 24.0, level + 4.0, "start", &line.name);
    }
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.max(1e-6).log10().floor());
    let fits = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|times| times * power >= least * 0.999);
    fits.unwrap_or(10.0) * power
}

fn multiples(step: f64, high: f64) -> impl Iterator<Item = f64> {
    let count = (high / step * 1.000_1).floor() as u32;
    (0..=count.min(50)).map(move |times| f64::from(times) * step)
}

fn number(value: f64, step: f64) -> String {
    let digits = if step >= 1.0 { 0 } else { 2 };
    format!("{value:.digits$}")
}

fn rule(svg: &mut String, from: (f64, f64), to: (f64, f64)) {
    let _ = writeln!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#ddd\"/>",
        from.0, from.1, to.0, to.1
    );
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, what: &str) {
    let what = what.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{what}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_holds_its_lines_in_its_frame_and_its_words_escaped() {
        let line = Line {
            name: "a < b".to_owned(),
            colour: "red",
            is_dashed: true,
            points: (0..5000).map(|at| (f64::from(at), f64::from(at))).collect(),
        };
        let panel = Panel {
            label: "limit",
            high: 100.0,
            lines: vec![line],
        };
        let svg = chart("R & D", 5000.0, &[panel]);
        assert!(svg.contains("R &amp; D") && svg.contains("a &lt; b"));
        let points = svg.split("points=\"").nth(1).unwrap();
        let points = points.split('"').next().unwrap();
        assert!(points.split(' ').count() <= MOST_POINTS);
        for point in points.split(' ') {
            let (x, y) = point.split_once(',').unwrap();
            let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
            assert!((LEFT..=WIDTH - RIGHT).contains(&x) && (TOP..=TOP + PANEL).contains(&y));
        }
    }

    #[test]
    fn steps_are_round() {
        assert_eq!(round_step(23.0) as u32, 50);
        assert_eq!(round_step(10.0) as u32, 10);
        assert_eq!(number(0.25, round_step(0.25)), "0.25");
    }
}
