//! Addresses of databases, as they may be shown.

use async_trait::async_trait;
#[cfg(any(feature = "mysql", feature = "postgres"))]
use outbox_event::wording::nearest;
use url::Url;

#[cfg(any(feature = "mysql", feature = "postgres"))]
use super::StoreError;

/// Reads the address of a database, for one whose password changes while the host runs: a file that is replaced, a token that expires.
#[async_trait]
pub trait AddressSource: Send + Sync {
    /// The address as it is now. Called before the first connection, every few seconds while the store is used, and when a connection
    /// cannot be opened. `is_refused`: whether the server has refused the login of the address that was read last.
    ///
    /// # Errors
    /// Why it cannot be read, without a secret. The store keeps the last address.
    async fn address(&self, is_refused: bool) -> Result<String, String>;
}

/// What is shown instead of a password.
const HIDDEN: &str = "***";

/// An address without its passwords, for messages: `postgres://app:***@db/shop?password=***`. Of an address that cannot be
/// read, everything between the user and the last `@` is left out, because a password may hold characters that somebody forgot
/// to escape.
#[must_use]
pub fn hide_password(address: &str) -> String {
    if address.starts_with("sqlite:") {
        return address.to_owned();
    }
    let Some((scheme, rest)) = address.split_once("://") else { return without_slashes(address) };
    let range = host_range(address);
    // Several hosts are no URL. A comma may also be in a password that holds a `/`, `?` or `#`: then an `@` follows.
    if address[range.clone()].contains(',') && !address[range.end..].contains(['@', '#']) {
        return hide_password(&with_hosts(address, "several.invalid")).replacen("several.invalid", &address[range], 1);
    }
    let (place, query) = match Url::parse(address) {
        // An `@` behind the server may be the end of a password that holds a `/`, `?` or `#`.
        Ok(url) if !url.path().contains('@') && url.fragment().is_none() && is_of_values(url.query()) => {
            rest.split_once('?').unwrap_or((rest, ""))
        }
        _ => {
            let server = rest.rfind('@').unwrap_or(0);
            let (_, query) = rest[server..].split_once('?').unwrap_or(("", ""));
            (&rest[..rest.len() - query.len() - usize::from(!query.is_empty())], query)
        }
    };
    let place = match place.rsplit_once('@') {
        None => place.to_owned(),
        Some((user, server)) => match user.split_once(':') {
            None => format!("{user}@{server}"),
            Some((user, _)) => format!("{user}:{HIDDEN}@{server}"),
        },
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| match pair.split_once('=') {
        Some((name, _)) if is_secret(name) => format!("{name}={HIDDEN}"),
        _ => pair.to_owned(),
    });
    let query = pairs.collect::<Vec<_>>().join("&");
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{scheme}://{place}{mark}{query}")
}

/// Of an address whose slashes were forgotten, `postgres:app:secret@db`, the scheme and the server alone.
fn without_slashes(address: &str) -> String {
    let server = address.rfind('@').unwrap_or(0);
    match address[..server].split_once(':') {
        Some((scheme, _)) => format!("{scheme}:{HIDDEN}{}", address[server..].split('?').next().unwrap_or_default()),
        // `host=db password=secret`, `Server=db;Pwd=secret`
        None if is_secret(address) => HIDDEN.to_owned(),
        None => address.to_owned(),
    }
}

/// Whether a parameter of this name may hold a secret.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["pass", "pwd", "secret", "token"].iter().any(|word| name.contains(word))
}

/// Where the hosts of an address are: behind the user, before the database.
fn host_range(address: &str) -> std::ops::Range<usize> {
    let Some(start) = address.find("://").map(|at| at + 3) else { return 0..0 };
    let end = address[start..].find(['/', '?', '#']).map_or(address.len(), |at| start + at);
    let start = address[start..end].rfind('@').map_or(start, |at| start + at + 1);
    start..end
}

/// The hosts of an address with their ports, as they are written: `a:5432,b,[::1]`. Empty if the address has no host.
#[must_use]
pub fn hosts(address: &str) -> &str {
    &address[host_range(address)]
}

/// The address with other hosts.
#[must_use]
pub fn with_hosts(address: &str, hosts: &str) -> String {
    let range = host_range(address);
    format!("{}{hosts}{}", &address[..range.start], &address[range.end..])
}

/// The address without its user and password.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(super) fn without_login(address: &str) -> String {
    let range = host_range(address);
    let scheme = address.find("://").map_or(0, |at| at + 3);
    format!("{}{}", &address[..scheme], &address[range.start..])
}

/// Parameters of other programs' addresses, and what to do instead.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(super) type Habit = (&'static [&'static str], &'static str);

/// Refuses a parameter of an address that has no effect.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(super) fn unknown_parameter(address: &str, parameter: &str, known: &[&str], habits: &[Habit]) -> StoreError {
    let habit = habits.iter().find(|(names, _)| names.iter().any(|name| name.eq_ignore_ascii_case(parameter)));
    let hint = match (habit, nearest(parameter, known.iter().copied())) {
        (Some((_, hint)), _) => (*hint).to_owned(),
        (None, Some(near)) => format!("did you mean `{near}`?"),
        (None, None) => format!("known are {}", known.join(", ")),
    };
    StoreError::Parameter { url: hide_password(address), parameter: parameter.to_owned(), hint }
}

/// Whether every `@` of a query stands in the value of a parameter.
fn is_of_values(query: Option<&str>) -> bool {
    let pairs = query.unwrap_or_default().split('&');
    pairs.into_iter().all(|pair| !pair.split('=').next().unwrap_or_default().contains('@'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_hidden_and_nothing_else() {
        for (address, shown) in [
            ("postgres://app:p@ss@db:5432/shop?x=1", "postgres://app:***@db:5432/shop?x=1"),
            ("postgres://app:p%40ss@db/shop", "postgres://app:***@db/shop"),
            ("postgres://db/shop?password=p&sslmode=require", "postgres://db/shop?password=***&sslmode=require"),
            ("postgres://db/shop?sslpassword=a@b", "postgres://db/shop?sslpassword=***"),
            ("postgres://db/shop?application_name=a@b", "postgres://db/shop?application_name=a@b"),
            ("mysql://app@db/shop", "mysql://app@db/shop"),
            ("postgres://db/shop?PASSWORD=p", "postgres://db/shop?PASSWORD=***"),
            ("postgres:app:s3cret@db/shop?password=s3cret", "postgres:***@db/shop"),
            ("postgres://app:p@ss@a:5432,b:5433/shop?x=1", "postgres://app:***@a:5432,b:5433/shop?x=1"),
            ("postgres://a,b/shop?token=s3cret", "postgres://a,b/shop?token=***"),
            ("postgres://app:s3,c/ret@db/shop", "postgres://app:***@db/shop"),
            ("postgres://app:s3,c?ret@db/shop", "postgres://app:***@db/shop"),
            ("postgres://app:s3,c#ret@db/shop", "postgres://app:***@db/shop"),
            ("postgres://app:several@a,b/shop", "postgres://app:***@a,b/shop"),
            ("host=db password=s3cret", "***"),
            ("sqlite:outbox.db", "sqlite:outbox.db"),
            ("sqlite:me@work:a.db", "sqlite:me@work:a.db"),
            ("outbox@work.db", "outbox@work.db"),
            ("sqlite:///home/me@work/a:b@c.db", "sqlite:///home/me@work/a:b@c.db"),
        ] {
            assert_eq!(hide_password(address), shown);
        }
    }

    #[test]
    fn a_password_that_nobody_escaped_is_hidden_whatever_it_holds() {
        for password in
            ["s3/cret", "12/s3cret", "s3?cret", "s3#cret", "s3@cret", "s3:cret", "12?s3cret", "s3 cret", "s3%cret", "[s3cret"]
        {
            let shown = hide_password(&format!("postgres://app:{password}@db:5432/shop?sslmode=require&password={password}"));
            assert!(!shown.contains("cret"), "{password}: {shown}");
            let alone = hide_password(&format!("mysql://app:{password}@db:5432/shop"));
            assert_eq!(alone, "mysql://app:***@db:5432/shop", "{password}");
        }
    }
}
