//! Charts as inline SVG, made by the server. Pure: numbers in, markup out.

use std::fmt::Write as _;
use std::time::Duration;

mod scale;

pub(super) use scale::Scale;

use maud::{Markup, html};
use outbox_event::time::Timestamp;

use crate::pages::words;
use scale::Axis;

const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 150.0;
/// The field that lines are drawn in: room for the labels around it.
const LEFT: f64 = 56.0;
const RIGHT: f64 = 326.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 126.0;

/// How far the labels of two lines are apart at least.
const APART: f64 = 13.0;

/// The least distance between the lines of two changes.
const CHANGES_APART: f64 = 4.0;

/// The width of a tooltip.
const TOOLTIP_WIDTH: f64 = 170.0;

/// How many of the last points count as the present: the newest may not be known yet.
const PRESENT: usize = 2;

/// Numbers over time.
#[derive(Debug)]
pub(crate) struct Chart {
    /// What the chart shows.
    pub(crate) title: &'static str,
    /// What the numbers count, behind the title and in the table: `events a second`.
    pub(crate) unit: &'static str,
    /// What the numbers measure.
    pub(crate) scale: Scale,
    /// Lines, of which the first is the most important.
    pub(crate) series: Vec<Series>,
    /// Whether each line is stacked on the one before; the unit says so to the reader.
    pub(crate) stacked: bool,
    /// When the last point was.
    pub(crate) ends: Timestamp,
    /// The time between two points.
    pub(crate) step: Duration,
    /// The changes during this time, each with its text. Changes before the first point are left out.
    pub(crate) changes: Vec<(Timestamp, String)>,
}

/// One line.
#[derive(Debug)]
pub(crate) struct Series {
    /// Its name.
    pub(crate) name: &'static str,
    /// The class of its colour.
    pub(crate) class: &'static str,
    /// Oldest first; `None` where nothing is known. As many in every line of a chart.
    pub(crate) points: Vec<Option<f64>>,
}

impl Chart {
    /// The chart with its numbers below it.
    pub(crate) fn show(&self) -> Markup {
        html! {
            figure.chart {
                figcaption {
                    strong { (self.title) } " " span.quiet { (self.unit) }
                    // On a line of its own, so that neighbouring charts are level.
                    div.keys {
                        @for series in &self.series {
                            span.(self.present_class(series)) { (series.name) " " span.figure { (self.last(series)) } } " "
                        }
                    }
                }
                @if self.is_empty() {
                    p.quiet.nothing { "No data yet. The first values appear within a few seconds." }
                } @else {
                    (self.drawing())
                    (self.table())
                }
            }
        }
    }

    /// The present value of a line; a dash if the line ended some time ago.
    fn last(&self, series: &Series) -> String {
        series
            .points
            .iter()
            .rev()
            .take(PRESENT)
            .copied()
            .flatten()
            .next()
            .map_or_else(|| "–".to_owned(), |last| self.scale.say(last))
    }

    /// The colour of that value: none for zero, so that red appears only where something failed.
    fn present_class(&self, series: &Series) -> &'static str {
        let last = series.points.iter().rev().take(PRESENT).copied().flatten().next();
        if last.is_some_and(|last| last != 0.0) { series.class } else { "zero" }
    }

    fn is_empty(&self) -> bool {
        self.series.iter().all(|series| series.points.iter().all(Option::is_none))
    }

    fn drawing(&self) -> Markup {
        let all = self.tops();
        let axis = self.scale.axis(all.iter().flatten().copied().flatten().fold(0.0, f64::max));
        let most = axis.top();
        let length = self.series.iter().map(|series| series.points.len()).max().unwrap_or(0);
        let span = self.step.as_secs() * u64::try_from(length).unwrap_or(u64::MAX) / 60;
        let label = format!("{}, {}, over the last {span} minutes. The table below has the numbers.", self.title, self.unit);
        let changes = self.changed(length);
        html! {
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) {
                g role="img" aria-label=(label) {
                    (marks(&axis, span))
                    @for (x, _) in &changes { line.change x1=(x) x2=(x) y1=(TOP) y2=(BOTTOM) {} }
                    // The last line first: the first one is drawn over it.
                    @for (index, (series, tops)) in self.series.iter().zip(&all).enumerate().rev() {
                        @if self.stacked { path.area.(series.class) d=(area(tops, below(&all, index), most)) {} }
                        path.line.(series.class) d=(line(tops, most)) {}
                        @for (x, y) in alone(tops, most) { circle.dot.(series.class) cx=(x) cy=(y) r="2" {} }
                        @if let Some((index, top)) = last_point(tops) {
                            circle.dot.(series.class) cx=(x(index, tops.len())) cy=(y(top / most)) r="2.5" {}
                        }
                    }
                    @for (text, class, at) in self.ends(&all, most) {
                        text.end.(class) x=(RIGHT + 6.0) y=(at + 4.0) { (text) }
                    }
                }
                // Outside the image, because the children of an image cannot be focused. Last, so that no line crosses a tooltip.
                @for (x, text) in &changes { (change(*x, text)) }
            }
        }
    }

    /// The line of each change and its text, the earliest first. Changes that are too close to each other share a line.
    fn changed(&self, length: usize) -> Vec<(f64, String)> {
        let steps = u32::try_from(length.saturating_sub(1)).unwrap_or(u32::MAX);
        let span = self.step.saturating_mul(steps);
        let mut known: Vec<_> = self.changes.iter().filter(|(at, _)| !span.is_zero() && self.ends.since(*at) <= span).collect();
        known.sort_by_key(|(at, _)| *at);
        let mut lines: Vec<(f64, String)> = Vec::new();
        for (at, text) in known {
            let x = round(RIGHT - (RIGHT - LEFT) * self.ends.since(*at).div_duration_f64(span));
            match lines.last_mut() {
                Some((last, texts)) if x - *last < CHANGES_APART => {
                    texts.push('\n');
                    texts.push_str(text);
                }
                _ => lines.push((x, text.clone())),
            }
        }
        lines
    }

    /// The points of each line, on top of the lines before it if they are stacked.
    fn tops(&self) -> Vec<Vec<Option<f64>>> {
        let mut below: Vec<f64> = Vec::new();
        let mut all = Vec::with_capacity(self.series.len());
        for series in &self.series {
            below.resize(series.points.len().max(below.len()), 0.0);
            let tops = series.points.iter().zip(&mut below).map(|(point, below)| {
                let top = point.map(|point| if self.stacked { *below + point } else { point });
                *below = top.unwrap_or(*below);
                top
            });
            all.push(tops.collect());
        }
        all
    }

    /// The last values beside the ends of their lines, moved apart where they would overlap.
    fn ends(&self, tops: &[Vec<Option<f64>>], most: f64) -> Vec<(String, &'static str, f64)> {
        let mut ends: Vec<_> = self
            .series
            .iter()
            .zip(tops)
            .filter_map(|(series, tops)| {
                let (at, top) = last_point(tops)?;
                let said = series.points.get(at).copied().flatten().map_or_else(String::new, |last| self.scale.say_short(last));
                (at + PRESENT >= tops.len()).then(|| (said, self.present_class(series), y(top / most)))
            })
            .collect();
        ends.sort_by(|one, other| one.2.total_cmp(&other.2));
        // Down from the upper edge, then back up from the axis, so that every label stays within the field.
        let mut limit = TOP;
        for end in &mut ends {
            end.2 = end.2.max(limit);
            limit = end.2 + APART;
        }
        limit = BOTTOM;
        for end in ends.iter_mut().rev() {
            end.2 = end.2.min(limit);
            limit = end.2 - APART;
        }
        ends
    }

    /// The same numbers, newest first.
    fn table(&self) -> Markup {
        let length = self.series.iter().map(|series| series.points.len()).max().unwrap_or(0);
        let known = (0..length)
            .rev()
            .filter(|index| self.series.iter().any(|series| series.points.get(*index).copied().flatten().is_some()));
        html! {
            details {
                summary { "Show as a table" }
                // It scrolls if it is long.
                table.numbers tabindex="0" aria-label=(self.title) {
                    thead { tr { th scope="col" { "UTC" } @for series in &self.series { th scope="col" { (series.name) } } } }
                    tbody {
                        @for index in known {
                            tr {
                                @let back = self.step.saturating_mul(u32::try_from(length - 1 - index).unwrap_or(u32::MAX));
                                td { (words::clock(self.ends.minus(back), self.ends)) }
                                @for series in &self.series {
                                    td { (series.points.get(index).copied().flatten().map_or_else(|| "–".to_owned(), |point| self.scale.say(point))) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "60 points")]
fn x(index: usize, length: usize) -> f64 {
    let last = length.saturating_sub(1).max(1);
    round(LEFT + (RIGHT - LEFT) * (index as f64) / (last as f64))
}

fn y(part: f64) -> f64 {
    round(BOTTOM - (BOTTOM - TOP) * part.clamp(0.0, 1.0))
}

fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// The line below the line of this index; empty for the axis.
fn below(tops: &[Vec<Option<f64>>], index: usize) -> &[Option<f64>] {
    index.checked_sub(1).and_then(|below| tops.get(below)).map_or(&[], Vec::as_slice)
}

/// The marks of both axes.
fn marks(axis: &Axis, minutes: u64) -> Markup {
    html! {
        @for (part, said) in axis.marks() {
            line.grid x1=(LEFT) x2=(RIGHT) y1=(y(part)) y2=(y(part)) {}
            text.axis x=(LEFT - 6.0) y=(y(part) + 4.0) text-anchor="end" { (said) }
        }
        @for (part, anchor) in [(0.0, "start"), (0.5, "middle"), (1.0, "end")] {
            text.axis x=(LEFT + (RIGHT - LEFT) * part) y=(BOTTOM + 16.0) text-anchor=(anchor) {
                @if part == 1.0 { "now" } @else if part == 0.0 { "−" (minutes) " min" } @else { "−" (minutes / 2) " min" }
            }
        }
    }
}

/// The mark of a change. Shows its text while it is hovered or focused.
fn change(at: f64, text: &str) -> Markup {
    let left = if at < (LEFT + RIGHT) / 2.0 { at + 8.0 } else { at - 8.0 - TOOLTIP_WIDTH };
    html! {
        g.change tabindex="0" role="img" aria-label=(text.replace('\n', "; ")) {
            // Wide enough to be pointed at.
            rect x=(at - 4.0) y=(TOP) width="8" height=(BOTTOM - TOP) {}
            // The text overflows it: the height of a text is unknown here.
            foreignObject.tooltip x=(left) y=(TOP) width=(TOOLTIP_WIDTH) height="1" { div { (text) } }
        }
    }
}

fn last_point(points: &[Option<f64>]) -> Option<(usize, f64)> {
    points.iter().enumerate().rev().find_map(|(index, point)| point.map(|point| (index, point)))
}

/// The stretches without a gap: the index of the first point, and the points.
fn stretches(points: &[Option<f64>]) -> Vec<(usize, Vec<f64>)> {
    let mut all: Vec<(usize, Vec<f64>)> = Vec::new();
    let mut open = false;
    for (index, point) in points.iter().enumerate() {
        match (point, all.last_mut()) {
            (Some(point), Some((_, stretch))) if open => stretch.push(*point),
            (Some(point), _) => all.push((index, vec![*point])),
            (None, _) => {}
        }
        open = point.is_some();
    }
    all
}

fn line(points: &[Option<f64>], most: f64) -> String {
    let mut path = String::new();
    for (first, stretch) in stretches(points) {
        for (offset, point) in stretch.iter().enumerate() {
            let command = if offset == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{command}{} {}", x(first + offset, points.len()), y(point / most));
        }
    }
    path
}

/// The areas between a line and the one below it, or the axis.
fn area(points: &[Option<f64>], below: &[Option<f64>], most: f64) -> String {
    let mut path = String::new();
    for (first, stretch) in stretches(points) {
        for (offset, point) in stretch.iter().enumerate() {
            let command = if offset == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{command}{} {}", x(first + offset, points.len()), y(point / most));
        }
        for index in (first..first + stretch.len()).rev() {
            let floor = below.get(index).copied().flatten().unwrap_or(0.0);
            let _ = write!(path, "L{} {}", x(index, points.len()), y(floor / most));
        }
        path.push('Z');
    }
    path
}

/// Single points between two gaps, which would not be visible as a line.
fn alone(points: &[Option<f64>], most: f64) -> Vec<(f64, f64)> {
    let alone = stretches(points).into_iter().filter(|(_, stretch)| stretch.len() == 1);
    alone.map(|(first, stretch)| (x(first, points.len()), y(stretch[0] / most))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<Vec<Option<f64>>>, stacked: bool) -> Chart {
        let names = [("done", "done"), ("failed", "dead")];
        let series = points.into_iter().zip(names).map(|(points, (name, class))| Series { name, class, points });
        Chart {
            title: "Throughput",
            unit: "events a second",
            scale: Scale::Rate,
            series: series.collect(),
            stacked,
            ends: "2026-11-21T14:02:00Z".parse().unwrap(),
            step: Duration::from_secs(60),
            changes: Vec::new(),
        }
    }

    fn hour(point: impl Fn(usize) -> Option<f64>) -> Vec<Option<f64>> {
        (0..60).map(point).collect()
    }

    #[test]
    fn without_numbers_it_says_so_and_draws_nothing() {
        for empty in [chart(vec![], false), chart(vec![vec![]], true), chart(vec![hour(|_| None), hour(|_| None)], true)] {
            let text = empty.show().into_string();
            assert!(text.contains("No data yet") && !text.contains("<svg"), "{text}");
        }
    }

    #[test]
    fn one_point_is_a_dot_with_its_value_beside_it() {
        let text = chart(vec![hour(|index| (index == 59).then_some(42.0))], false).show().into_string();
        assert!(text.contains("<circle") && text.contains(">42</text>"), "{text}");
        assert!(text.contains("14:02:00"), "the table has its time: {text}");
        assert!(text.contains("<table class=\"numbers\" tabindex=\"0\" aria-label=\"Throughput\">"), "keys scroll it: {text}");
        assert_eq!(text.matches("<tr>").count(), 2, "a head and one row: {text}");
    }

    #[test]
    fn extremes_stay_within_the_field_and_are_numbers() {
        for extreme in [0.0, 1e-9, f64::MIN_POSITIVE / 2.0, 1e18, f64::MAX, u64::MAX as f64] {
            let text =
                chart(vec![hour(|_| Some(extreme)), hour(|index| (index % 2 == 0).then_some(0.0))], false).show().into_string();
            assert!(!text.contains("NaN") && !text.contains("inf"), "{extreme}: {text}");
            for y in text.split(['M', 'L']).skip(1).filter_map(|point| point.split([' ', '"', 'Z']).nth(1)?.parse::<f64>().ok())
            {
                assert!((0.0..=HEIGHT).contains(&y), "{extreme}: {y}");
            }
        }
    }

    #[test]
    fn a_change_is_a_line_with_its_text_and_changes_at_the_same_time_share_one() {
        let mut chart = chart(vec![hour(|_| Some(1.0))], false);
        let change = |time: &str, text: &str| (time.parse::<Timestamp>().unwrap(), text.to_owned());
        chart.changes = vec![
            change("2026-11-21T14:02:00Z", "resume <b>"),
            change("2026-11-21T13:32:32Z", "swap on web-2"),
            change("2026-11-21T13:32:30Z", "swap on web-1"),
            change("2026-11-21T13:02:59Z", "longer ago"),
        ];

        assert_eq!(chart.changed(60), [(191.0, "swap on web-1\nswap on web-2".to_owned()), (RIGHT, "resume <b>".to_owned())]);
        let text = chart.show().into_string();
        assert_eq!(text.matches("<line class=\"change\"").count(), 2, "{text}");
        let named = ["aria-label=\"swap on web-1; swap on web-2\"", "aria-label=\"resume &lt;b&gt;\""];
        assert!(
            named.iter().all(|name| text.contains(&format!("<g class=\"change\" tabindex=\"0\" role=\"img\" {name}>"))),
            "{text}"
        );
        assert!(text.contains("<div>resume &lt;b&gt;</div>") && !text.contains("longer ago"), "{text}");
        assert_eq!(chart.changed(1), [], "one point has no span");
    }

    #[test]
    fn a_gap_is_a_gap_and_no_zero() {
        let tops = hour(|index| (index != 30).then_some(1.0));
        let path = line(&tops, 1.0);
        assert_eq!(path.matches('M').count(), 2, "{path}");
        assert_eq!(path.matches('L').count(), 57, "{path}");
        assert_eq!(area(&tops, &[], 1.0).matches('Z').count(), 2);
    }

    #[test]
    fn a_line_that_ended_long_ago_has_no_present_value() {
        let text = chart(vec![hour(|index| (index == 20).then_some(42.0))], false).show().into_string();
        assert!(text.contains("done <span class=\"figure\">–</span>") && !text.contains("class=\"end"), "{text}");
    }

    #[test]
    fn stacked_lines_stand_on_each_other_and_say_their_own_values() {
        let chart = chart(vec![hour(|_| Some(30.0)), hour(|_| Some(20.0))], true);
        let tops = chart.tops();
        assert_eq!(tops[1][0], Some(50.0));
        let text = chart.show().into_string();
        assert!(
            text.contains(">30</text>") && text.contains(">20</text>") && text.contains(">60</text>"),
            "axis to 60: {text}"
        );
        let (upper, lower) = (area(&tops[1], below(&tops, 1), 60.0), area(&tops[0], below(&tops, 0), 60.0));
        assert!(
            upper.contains(&format!(" {}", y(0.5))) && !upper.contains(&format!(" {BOTTOM}")),
            "it stands on the first: {upper}"
        );
        assert!(lower.contains(&format!(" {BOTTOM}")), "{lower}");
    }

    #[test]
    fn values_at_the_ends_of_lines_never_lie_on_each_other_and_stay_within_the_field() {
        for (one, other, third) in [(0.0, 0.0, 0.0), (1.0, 1.0, 1.0), (0.5, 0.51, 0.49), (1.0, 0.99, 0.0), (0.0, 0.05, 0.1)] {
            let mut chart = chart(vec![hour(|_| Some(one)), hour(|_| Some(other))], false);
            chart.series.push(Series { name: "third", class: "waiting", points: hour(|_| Some(third)) });
            let ends = chart.ends(&chart.tops(), 1.0);
            assert_eq!(ends.len(), 3);
            assert!(ends.windows(2).all(|pair| pair[1].2 - pair[0].2 >= 12.9), "{ends:?}");
            assert!(ends.iter().all(|end| (TOP..=BOTTOM).contains(&end.2)), "{ends:?}");
        }
    }
}
