//! Addresses of databases, as they may be shown.

use url::Url;

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
        Some((name, _)) if name.to_ascii_lowercase().contains("password") => format!("{name}={HIDDEN}"),
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
        None => address.to_owned(),
    }
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
