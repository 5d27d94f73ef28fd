//! Reads that only the primary answers.
//!
//! A proxy that sends reads to standbys, or an address that leads to several servers in turn, makes a standby answer. It shows the
//! tables as they were some time ago: events that were delivered look due. A standby refuses statements that write by itself. Each
//! statement that only reads, and that the host acts on, contains [`on_primary!`].

/// True on the primary. On a standby the statement fails with an error that names the server, even if no row matches: PostgreSQL evaluates
/// the condition once, before it reads rows. Put it before other conditions without columns. `pg_is_in_recovery` is volatile, so pgpool-II
/// sends the statement to the primary.
macro_rules! on_primary {
    () => {
        "(SELECT (CASE WHEN pg_is_in_recovery() THEN concat('outbox: standby ', host(inet_server_addr()), ':', inet_server_port())
        ELSE 'true' END)::boolean)"
    };
}
pub(super) use on_primary;

const STANDBY: &str = "outbox: standby ";

/// The standby that an error of [`on_primary!`] names; `None` for other errors.
pub(super) fn standby_in(message: &str) -> Option<String> {
    let (_, named) = message.split_once(STANDBY)?;
    let address: String = named.chars().take_while(|char| char.is_ascii_hexdigit() || ".:".contains(*char)).collect();
    // The server has no address on a socket.
    Some(if address == ":" { "at a socket".to_owned() } else { address })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_is_named_by_its_address() {
        let error = |value: &str| format!("invalid input syntax for type boolean: \"{value}\"");

        assert_eq!(standby_in(&error("outbox: standby 10.0.0.7:5432")).as_deref(), Some("10.0.0.7:5432"));
        assert_eq!(standby_in(&error("outbox: standby ::1:5432")).as_deref(), Some("::1:5432"));
        assert_eq!(standby_in(&error("outbox: standby :")).as_deref(), Some("at a socket"));
        assert_eq!(standby_in(&error("maybe")), None);
    }
}
