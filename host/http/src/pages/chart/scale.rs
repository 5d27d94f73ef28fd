//! Round numbers for the marks of an axis, and how the values of a chart are written. Pure.

use std::time::Duration;

use outbox_event::units::{figure, number, span};

/// Most steps of an axis: with more, the labels of its marks would touch.
const MOST_STEPS: f64 = 4.0;
/// Larger values are drawn at the upper edge.
const LARGEST: f64 = 1e18;

/// What a chart measures, and so where its marks may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// A number per second.
    Rate,
    /// Seconds.
    Time,
    /// A whole number.
    Count,
}

/// The marks of an axis: at 0 and at every step, up to the first that is not below the largest value.
#[derive(Debug)]
pub(crate) struct Axis {
    scale: Scale,
    step: f64,
    steps: u8,
}

impl Scale {
    /// A value, as precise as it can be read at a glance.
    pub(crate) fn say(self, value: f64) -> String {
        match self {
            Self::Rate => figure(value),
            Self::Count => figure(value.round()).trim_end_matches(".0").to_owned(),
            Self::Time => Duration::try_from_secs_f64(value).map_or_else(|_| "–".to_owned(), span),
        }
    }

    /// As [`say`](Self::say), in at most seven characters up to a trillion.
    pub(crate) fn say_short(self, value: f64) -> String {
        // From 100,000 on: the least value, its unit and the unit's name.
        let large = [(1e9, 1e9, "bn"), (1e6, 1e6, "M"), (1e5, 1e3, "k")].into_iter().find(|(least, ..)| value >= *least);
        match large {
            Some((_, unit, name)) if self != Self::Time => format!("{} {name}", figure(value / unit)),
            _ => self.say(value),
        }
    }

    /// The axis for values up to this one.
    pub(crate) fn axis(self, most: f64) -> Axis {
        // Nothing yet, or nothing but zeros, gets an axis up to 1.
        let most = if most.is_normal() && most > 0.0 { most.min(LARGEST) } else { 1.0 };
        let step = match self {
            Self::Rate => decimal(most, 0.001),
            Self::Count => decimal(most, 1.0),
            Self::Time => of_time(most),
        };
        let steps = (1..4).find(|steps| f64::from(*steps) * step >= most * 0.999_999).unwrap_or(4);
        Axis { scale: self, step, steps }
    }
}

impl Axis {
    /// The value of the highest mark.
    pub(crate) fn top(&self) -> f64 {
        self.step * f64::from(self.steps)
    }

    /// Every mark: its share of the height, and its label, which is exact.
    pub(crate) fn marks(&self) -> impl Iterator<Item = (f64, String)> {
        let (unit, name) = self.unit();
        (0..=self.steps).map(move |mark| {
            let value = self.step * f64::from(mark) / unit;
            // Zero has no unit.
            let name = if mark == 0 && self.scale != Scale::Time { "" } else { name };
            (f64::from(mark) / f64::from(self.steps), format!("{}{name}", exact(value, self.step / unit)))
        })
    }

    /// The unit of all marks, so that equal distances look equal, and its name.
    fn unit(&self) -> (f64, &'static str) {
        match self.scale {
            Scale::Time => match (self.step, self.top()) {
                (step, _) if step >= DAY => (DAY, " d"),
                (step, _) if step >= HOUR => (HOUR, " h"),
                (step, _) if step >= MINUTE => (MINUTE, " min"),
                (_, top) if top >= 1.0 => (1.0, " s"),
                _ => (0.001, " ms"),
            },
            _ if self.step >= 1e9 => (1e9, " bn"),
            _ if self.step >= 1e6 => (1e6, " M"),
            _ if self.top() >= 1e6 => (1e3, " k"),
            _ => (1.0, ""),
        }
    }
}

const MINUTE: f64 = 60.0;
const HOUR: f64 = 3_600.0;
const DAY: f64 = 86_400.0;

/// The smallest of 1, 2 and 5 times a power of ten that is not below `least` and reaches `most` within [`MOST_STEPS`].
fn decimal(most: f64, least: f64) -> f64 {
    let enough = (most / MOST_STEPS * 0.999_999).max(least * 0.999_999);
    let power = 10_f64.powf(enough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|digit| digit * power).find(|step| *step >= enough).unwrap_or(power * 10.0)
}

/// As [`decimal`], in the usual steps of time.
fn of_time(most: f64) -> f64 {
    let known = [
        1.0,
        2.0,
        5.0,
        10.0,
        30.0,
        MINUTE,
        MINUTE * 2.0,
        MINUTE * 5.0,
        MINUTE * 10.0,
        MINUTE * 30.0,
        HOUR,
        HOUR * 2.0,
        HOUR * 6.0,
        HOUR * 12.0,
    ];
    let reaches = |step: &f64| step * MOST_STEPS >= most * 0.999_999;
    let below_a_second = Some(decimal(most, 0.000_1)).filter(|step| *step < 0.9);
    below_a_second.or_else(|| known.into_iter().find(reaches)).unwrap_or_else(|| decimal(most / DAY, 1.0) * DAY)
}

/// A multiple of `step` with all of its figures.
fn exact(value: f64, step: f64) -> String {
    if step >= 0.999 {
        // Cut to what can be shown.
        return number(Duration::try_from_secs_f64(value.round()).map_or(u64::MAX, |whole| whole.as_secs()));
    }
    let decimals = (1..6).find(|decimals| (step * 10_f64.powi(*decimals)) >= 0.999).unwrap_or(6);
    let text = format!("{value:.*}", usize::try_from(decimals).unwrap_or_default());
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(scale: Scale, most: f64) -> Vec<String> {
        scale.axis(most).marks().map(|(_, said)| said).collect()
    }

    #[test]
    fn a_time_axis_has_round_marks_in_one_unit() {
        for (most, wanted) in [
            (0.0, vec!["0 s", "0.5 s", "1 s"]),
            (0.000_3, vec!["0 ms", "0.1 ms", "0.2 ms", "0.3 ms"]),
            (0.018, vec!["0 ms", "5 ms", "10 ms", "15 ms", "20 ms"]),
            (0.7, vec!["0 ms", "200 ms", "400 ms", "600 ms", "800 ms"]),
            (1.2, vec!["0 s", "0.5 s", "1 s", "1.5 s"]),
            (42.0, vec!["0 s", "30 s", "60 s"]),
            (100.0, vec!["0 s", "30 s", "60 s", "90 s", "120 s"]),
            (121.0, vec!["0 min", "1 min", "2 min", "3 min"]),
            (3_000.0, vec!["0 min", "30 min", "60 min"]),
            (86_400.0, vec!["0 h", "6 h", "12 h", "18 h", "24 h"]),
            (86_400.0 * 30.0, vec!["0 d", "10 d", "20 d", "30 d"]),
        ] {
            assert_eq!(marks(Scale::Time, most), wanted, "{most}");
        }
    }

    #[test]
    fn a_count_has_whole_marks_and_a_rate_may_have_small_ones() {
        assert_eq!(marks(Scale::Count, 0.0), ["0", "1"]);
        assert_eq!(marks(Scale::Count, 3.0), ["0", "1", "2", "3"]);
        assert_eq!(marks(Scale::Count, 10_000.0), ["0", "5,000", "10,000"]);
        assert_eq!(marks(Scale::Count, 1_400_000.0), ["0", "500 k", "1,000 k", "1,500 k"]);
        assert_eq!(marks(Scale::Rate, 0.003_3), ["0", "0.001", "0.002", "0.003", "0.004"]);
        assert_eq!(marks(Scale::Rate, 0.3), ["0", "0.1", "0.2", "0.3"]);
        assert_eq!(marks(Scale::Rate, 412.0), ["0", "200", "400", "600"]);
    }

    #[test]
    fn whatever_is_measured_fits_below_the_top_and_takes_few_short_marks() {
        for scale in [Scale::Rate, Scale::Time, Scale::Count] {
            // A hundred years, or so many things.
            let readable = if scale == Scale::Time { DAY * 36_525.0 } else { 1e11 };
            for exponent in -40..144 {
                let most = 10_f64.powf(f64::from(exponent) / 8.0);
                let axis = scale.axis(most);
                assert!(axis.top() >= most * 0.999, "{scale:?} {most}: {}", axis.top());
                let said: Vec<String> = axis.marks().map(|(_, said)| said).collect();
                assert!((2..=5).contains(&said.len()), "{scale:?} {most}: {said:?}");
                assert!(most > readable || said.iter().all(|mark| mark.len() <= 8), "{scale:?} {most}: {said:?}");
                let mut once = said.clone();
                once.dedup();
                assert_eq!(once, said, "{scale:?} {most}: each mark says something else");
            }
            for odd in [f64::NAN, f64::INFINITY, -1.0, f64::MIN_POSITIVE / 2.0, f64::MAX] {
                assert!(scale.axis(odd).top().is_normal(), "{scale:?} {odd}");
            }
        }
    }

    #[test]
    fn a_value_is_said_in_its_own_kind() {
        assert_eq!([0.0, 1.0, 9.0, 8_812.0].map(|value| Scale::Count.say(value)), ["0", "1", "9", "8,812"]);
        assert_eq!([0.018, 250.0].map(|value| Scale::Time.say(value)), ["18 ms", "4 min"]);
        assert_eq!([3.12, 1_250.0].map(|value| Scale::Rate.say(value)), ["3.1", "1,250"]);
        let short = [99_999.0, 123_456.0, 1_250_000.0, 42e9].map(|value| Scale::Count.say_short(value));
        assert_eq!(short, ["99,999", "123 k", "1.2 M", "42 bn"]);
    }
}
