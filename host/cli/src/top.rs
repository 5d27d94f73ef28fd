//! `outbox top`: the outbox as it lives, second by second.

mod frame;
mod line;
mod sample;
mod screen;

use std::time::Duration;

use clap::Args;
use outbox::node::OpenBreakers;
use tokio::time::Instant;

use crate::config::Config;
use crate::failure::Failure;
use crate::flags::at_least_one;
use crate::output::{self, Format, Output, span};
use crate::place::{self, Place};
use crate::stop::Stop;
use crate::terminal;
use frame::frame;
use line::Line;
use sample::{Rates, Sample};
use screen::Screen;

/// A look at a large table takes its time, and the database has other work: it rests this many times as long as the look took.
const RESTS: u32 = 4;

/// Watch rates, queue depths, lag, routes, sinks and hosts live; press q or Ctrl-C to stop
///
/// If standard output is not a terminal, prints one line per second instead. Rates are computed from the table: written counts
/// new rows, and delivered counts those that are no longer waiting or dead.
///
/// A JSON line also has the sinks, and the first 100 routes in the same order as on the screen: those with the most waiting, parked and blocked
/// events first, then those with the most dead events. `more_routes` is how many routes the line leaves out.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  outbox top\n  outbox top --interval 5s --output jsonl >> outbox.jsonl\n  \
                        outbox top --count 1 --output json | jq '.routes[0]'")]
pub(crate) struct TopCommand {
    /// The time between two refreshes
    #[arg(long, default_value = "1s", value_name = "SPAN", value_parser = interval)]
    interval: Duration,
    /// Stop after this many refreshes
    #[arg(long, value_name = "N", value_parser = at_least_one::<u64>)]
    count: Option<u64>,
    #[command(flatten)]
    output: Output,
}

fn interval(text: &str) -> Result<Duration, String> {
    let span = outbox::units::duration::parse(text)?;
    if span < Duration::from_millis(100) { Err("it must be at least 100ms".to_owned()) } else { Ok(span) }
}

impl TopCommand {
    pub(crate) async fn run(self, config: &Config) -> Result<(), Failure> {
        let mut stop = Stop::listen()?;
        let place = place::open(config).await?;
        let is_watched = terminal::size().is_some() && self.output.output == Format::Table;
        let mut screen = is_watched.then(Screen::open).transpose()?;
        let name = place.name();
        let mut before: Option<Sample> = None;
        let mut looks = 0;
        loop {
            let started = Instant::now();
            let sample = tokio::select! {
                sample = look(&*place) => sample?,
                () = stop.wait() => return Ok(()),
            };
            let rates = before.as_ref().map(|before| Rates::between(before, &sample)).unwrap_or_default();
            match &mut screen {
                Some(screen) => {
                    let size = terminal::size().unwrap_or((80, 24));
                    screen.show(&frame(&sample, &rates, &name, size))?;
                }
                None => self.print(&sample, rates, looks)?,
            }
            before = Some(sample);
            looks += 1;
            if self.count.is_some_and(|count| looks >= count) {
                return Ok(());
            }
            let rest = self.interval.saturating_sub(started.elapsed()).max(started.elapsed() * RESTS);
            let quit = async {
                match &mut screen {
                    Some(screen) => screen.quit().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = tokio::time::sleep(rest) => {}
                () = quit => return Ok(()),
                () = stop.wait() => return Ok(()),
            }
        }
    }

    fn print(&self, sample: &Sample, rates: Rates, looks: u64) -> Result<(), Failure> {
        let breakers = OpenBreakers::of(&sample.nodes);
        let line = Line::new(sample, rates, &breakers);
        // An array without an end would be no document: `json` goes on as `jsonl` does.
        let format = if self.output.output == Format::Json { Format::Jsonl } else { self.output.output };
        output::one(&line, format, |_| {
            const TITLES: [&str; 10] =
                ["written/s", "delivered/s", "new", "retry", "claimed", "parked", "blocked", "dead", "oldest", "hosts"];
            let stats = &sample.stats;
            let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"));
            let oldest = stats.oldest_pending_seconds.longest();
            let numbers = [stats.new, stats.retry, stats.in_flight, stats.parked, stats.blocked, stats.dead];
            let cells = [rate(rates.written_per_second), rate(rates.delivered_per_second)]
                .into_iter()
                .chain(numbers.map(|number| number.to_string()))
                .chain([oldest.map_or_else(|| "-".to_owned(), |(_, age)| span(age)), sample.hosts().to_string()]);
            let row = |cells: Vec<String>| cells.iter().map(|cell| format!("{cell:>12}")).collect::<String>();
            let title =
                if looks == 0 { format!("{:27}{}\n", "at", row(TITLES.map(str::to_owned).to_vec())) } else { String::new() };
            format!("{title}{}{}\n", sample.at, row(cells.collect()))
        })
    }
}

async fn look(place: &dyn Place) -> Result<Sample, Failure> {
    let newest = outbox::store::Filter { newest_first: true, ..Default::default() };
    let (at, seq) = (place.now().await?, place.list(&newest, 1).await?.first().map(|row| row.seq));
    let (stats, routes) = (place.stats().await?, place.routes().await?);
    Ok(Sample { at, seq, stats, sinks: place.sinks(&routes).await?, nodes: place.nodes().await?, routes })
}
