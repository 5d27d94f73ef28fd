//! What was asked for.

/// How it is asked for.
pub(crate) const HELP: &str = "\
usage: interleavings [--iterations N] [--seed N] [NAME…]
       interleavings --replay SCHEDULE NAME

  --iterations N       plays so many schedules of each check; without it, 6000
  --seed N             from which they are drawn; without it, 1
  --replay SCHEDULE    plays this one schedule, as a failure has printed it
  NAME                 only checks with this in their names
";

/// What was asked for.
#[derive(Debug)]
pub(crate) struct Arguments {
    /// How many schedules of each check.
    pub(crate) iterations: usize,
    /// From which they are drawn.
    pub(crate) seed: u64,
    /// The only one, if it is given.
    pub(crate) replay: Option<String>,
    /// Of which checks: what their names contain.
    pub(crate) names: Vec<String>,
}

/// Reads what was asked for.
pub(crate) fn read(mut given: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments { iterations: 6_000, seed: 1, replay: None, names: Vec::new() };
    while let Some(word) = given.next() {
        let mut value = || given.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--iterations" => arguments.iterations = number(&value()?)?,
            "--seed" => arguments.seed = number(&value()?)?,
            "--replay" => arguments.replay = Some(value()?),
            _ if word.starts_with('-') => return Err(format!("there is no {word}")),
            _ => arguments.names.push(word),
        }
    }
    Ok(arguments)
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}
