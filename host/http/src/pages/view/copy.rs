//! Commands that write a copy of an event, to be pasted into a shell or a database's console. Pure.
//!
//! Writers of events choose every text in them. No text may end its quotes, in any shell or database, nor change the direction
//! of a line, so everything but plain ASCII is escaped.

use std::fmt::Write as _;

use data_encoding::{BASE64, HEXLOWER};
use maud::{Markup, html};
use outbox_event::Headers;
use outbox_event::units::size;
use outbox_store::Record;
use serde_json::Value;

/// The largest payload that is put into a command, in bytes.
const MOST: usize = 32 << 10;

/// The table that a statement writes into.
pub(crate) struct Table {
    /// The kind of the database.
    pub(crate) kind: &'static str,
    /// The table's name as the database takes it, with its schema.
    pub(crate) name: String,
}

/// Both commands, folded.
pub(crate) fn commands(record: &Record, table: &Table, with_token: bool) -> Markup {
    let token = if with_token { " and OUTBOX_TOKEN is a token" } else { "" };
    let curl = format!("This writes a new event with an id of its own. HOST_URL is the address of this host{token}.");
    let insert = "This writes a new event with an id of its own. You can run it inside a transaction.";
    html! {
        (command("Copy as curl", &curl, as_curl(record, with_token)))
        (command("Copy as INSERT", insert, as_insert(record, table)))
    }
}

fn command(title: &str, meaning: &str, command: Option<String>) -> Markup {
    html! {
        details.copy {
            summary.link { (title) }
            @match command {
                Some(command) => { p.quiet { (meaning) } pre.all tabindex="0" data-copy { (command) } },
                None => p.quiet { "The payload is larger than " (size(MOST as u64)) ", which is too large for a command line." },
            }
        }
    }
}

/// The same event as a request to this API; `None` where its payload is not known or too large. The shell puts in the address
/// of the API, and a token where one is wanted.
fn as_curl(record: &Record, with_token: bool) -> Option<String> {
    let payload = record.payload.as_ref().filter(|payload| payload.len() <= MOST)?;
    let token = if with_token { " -H \"Authorization: Bearer $OUTBOX_TOKEN\"" } else { "" };
    let mut fields = vec![("event_type", json(&record.event_type)), ("aggregate_type", json(&record.aggregate_type))];
    fields.extend(record.aggregate_id.as_deref().map(|id| ("aggregate_id", json(id))));
    fields.extend(record.tenant_id.as_deref().map(|tenant| ("tenant_id", json(tenant))));
    fields.extend(headers(&record.headers).map(|headers| ("headers", plain(&headers))));
    match std::str::from_utf8(payload) {
        // As it was written: a number keeps every digit.
        Ok(text) if record.content_type == "application/json" && is_json(text) => fields.push(("payload", plain(text))),
        _ => fields.extend([
            ("content_type", json(&record.content_type)),
            ("payload_base64", format!("\"{}\"", BASE64.encode(payload))),
        ]),
    }
    let fields: Vec<String> = fields.into_iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    let body = fields.join(",");
    Some(format!("curl -X POST \"$HOST_URL/v1/events\"{token} -H 'Content-Type: application/json' --data-binary '{{{body}}}'"))
}

/// The same event as a statement for this table; `None` where its payload or the kind of database is not known, or it is too
/// large.
fn as_insert(record: &Record, table: &Table) -> Option<String> {
    let payload = record.payload.as_ref().filter(|payload| payload.len() <= MOST)?;
    let sql = Dialect::of(table.kind)?;
    let mut columns = vec![("event_type", sql.text(&record.event_type)), ("aggregate_type", sql.text(&record.aggregate_type))];
    columns.extend(record.aggregate_id.as_deref().map(|id| ("aggregate_id", sql.text(id))));
    columns.extend(record.tenant_id.as_deref().map(|tenant| ("tenant_id", sql.text(tenant))));
    columns.extend(headers(&record.headers).map(|headers| ("headers", sql.text(&plain(&headers)))));
    columns.push(("content_type", sql.text(&record.content_type)));
    columns.push(("payload", sql.bytes(payload)));
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let values: Vec<&str> = columns.iter().map(|(_, value)| value.as_str()).collect();
    Some(format!("INSERT INTO {} ({}) VALUES ({});", table.name, names.join(", "), values.join(", ")))
}

/// How a database writes texts and bytes.
#[derive(Clone, Copy)]
enum Dialect {
    Sqlite,
    Postgres,
    MySql,
}

impl Dialect {
    fn of(kind: &str) -> Option<Self> {
        match kind {
            "sqlite" => Some(Self::Sqlite),
            "postgres" => Some(Self::Postgres),
            "mysql" => Some(Self::MySql),
            _ => None,
        }
    }

    /// A text; in hex unless every database reads it alike between quotes.
    fn text(self, text: &str) -> String {
        if let Some(quoted) = quoted(text.as_bytes()) {
            return quoted;
        }
        let hex = HEXLOWER.encode(text.as_bytes());
        match self {
            Self::Sqlite => format!("CAST(X'{hex}' AS TEXT)"),
            Self::Postgres => format!("convert_from(decode('{hex}', 'hex'), 'UTF8')"),
            Self::MySql => format!("CONVERT(X'{hex}' USING utf8mb4)"),
        }
    }

    /// The bytes of a payload.
    fn bytes(self, bytes: &[u8]) -> String {
        match (self, quoted(bytes)) {
            (Self::Sqlite | Self::MySql, Some(quoted)) => quoted,
            (Self::Postgres, Some(quoted)) => format!("convert_to({quoted}, 'UTF8')"),
            (Self::Postgres, None) => format!("decode('{}', 'hex')", HEXLOWER.encode(bytes)),
            (Self::Sqlite | Self::MySql, None) => format!("X'{}'", HEXLOWER.encode(bytes)),
        }
    }
}

/// Plain ASCII between single quotes; `None` for anything that some database, or its console, reads otherwise: a backslash, a
/// control character, a line break.
fn quoted(bytes: &[u8]) -> Option<String> {
    let is_plain = |byte: &u8| (b' '..=b'~').contains(byte) && *byte != b'\\';
    let text = std::str::from_utf8(bytes).ok().filter(|_| bytes.iter().all(is_plain))?;
    Some(format!("'{}'", text.replace('\'', "''")))
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

fn headers(headers: &Headers) -> Option<String> {
    let pairs = headers.iter().map(|(key, value)| (key.to_owned(), Value::from(value)));
    (!headers.is_empty()).then(|| Value::Object(pairs.collect()).to_string())
}

fn json(text: &str) -> String {
    plain(&Value::from(text).to_string())
}

/// JSON in printable ASCII that can stand between single quotes in every shell: `'` ends them, `!` is history to some, and one
/// of Windows knows no single quotes. In valid JSON these characters stand only within strings, where an escape means the same.
fn plain(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\n' | '\r' | '\t' => safe.push(' '),
            ' '..='~' if !matches!(c, '\'' | '!' | '&' | '|' | '<' | '>' | '%' | '^') => safe.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(safe, "\\u{unit:04x}");
                }
            }
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use outbox_event::Envelope;

    use super::*;
    use crate::pages::fake::record;

    const EVIL: [&str; 10] = [
        "'; DROP TABLE outbox_event; --",
        "\\'; DROP TABLE outbox_event; --",
        "$(reboot) `reboot` ${HOME} $HOME",
        "a' 'b' \"c\" \\",
        "!! !reboot",
        "line\nbreak\r\ttab\u{0}nul",
        "\u{202e}reversed\u{1b}[2J\u{7f}\u{2028}",
        "ünï😀",
        "</pre><script>alert(1)</script>",
        "",
    ];

    fn table(kind: &'static str) -> Table {
        Table { kind, name: "outbox_event".to_owned() }
    }

    fn evil(text: &str) -> Record {
        changed!(Record {
            event_type: text.to_owned(),
            aggregate_type: text.to_owned(),
            aggregate_id: Some(text.to_owned()),
            tenant_id: Some(text.to_owned()),
            headers: Headers::new([("key".to_owned(), text.to_owned())]).unwrap_or_default(),
            payload: Some(Value::from(text).to_string().into()),
            ..record()
        })
    }

    #[test]
    fn a_shell_sees_one_word_whatever_an_event_holds_and_the_api_reads_the_same_event() {
        for text in EVIL {
            let command = as_curl(&evil(text), true).expect("small");
            let (before, body) = command.split_once("--data-binary ").expect("its body comes last");
            assert_eq!(
                before,
                "curl -X POST \"$HOST_URL/v1/events\" -H \"Authorization: Bearer $OUTBOX_TOKEN\" -H 'Content-Type: application/json' "
            );
            let body = body.strip_prefix('\'').and_then(|body| body.strip_suffix('\'')).expect("quoted");
            assert!(body.bytes().all(|byte| (b' '..=b'~').contains(&byte) && !b"'!".contains(&byte)), "{body}");
            let read: Value = serde_json::from_str(body).expect("JSON");
            for field in ["event_type", "aggregate_type", "aggregate_id", "tenant_id", "payload"] {
                assert_eq!(read[field].as_str(), Some(text), "{field}");
            }
        }
    }

    #[test]
    fn a_database_reads_one_text_whatever_an_event_holds() {
        for (kind, text) in ["sqlite", "postgres", "mysql"].into_iter().flat_map(|kind| EVIL.map(|text| (kind, text))) {
            let statement = as_insert(&evil(text), &table(kind)).expect("small");
            assert!(statement.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'\\'), "{statement}");
            // Outside of quotes only our own words are left.
            let outside: String = statement.replace("''", "").split('\'').step_by(2).collect();
            assert!(!outside.contains("DROP") && !outside.contains("--") && outside.ends_with(");"), "{kind}: {outside}");
        }
        assert_eq!(as_insert(&evil("a"), &table("another")), None);
    }

    #[test]
    fn plain_values_can_be_read_and_keep_every_digit() {
        let payload = Some(bytes::Bytes::from_static(b"{\"n\": 12345678901234567890.10,\n \"s\": \"it's\"}"));
        let record = changed!(Record { payload, ..record() });
        let curl = as_curl(&record, false).expect("small");
        assert!(curl.contains(r#""payload":{"n": 12345678901234567890.10,  "s": "it\u0027s"}"#), "{curl}");
        assert!(!curl.contains("Authorization"));
        let plain = changed!(Record { payload: Some(bytes::Bytes::from_static(b"{\"s\":\"it's\"}")), ..record });
        assert_eq!(
            as_insert(&plain, &Table { name: "billing.\"Shop\"".to_owned(), ..table("postgres") }).expect("small"),
            "INSERT INTO billing.\"Shop\" (event_type, aggregate_type, aggregate_id, content_type, payload) \
             VALUES ('Paid', 'Order', '42', 'application/json', convert_to('{\"s\":\"it''s\"}', 'UTF8'));"
        );
        let bytes = changed!(Record {
            payload: Some(bytes::Bytes::from_static(&[0, 255])),
            content_type: "image/png".to_owned(),
            ..plain
        });
        assert!(as_insert(&bytes, &table("mysql")).expect("small").ends_with("'image/png', X'00ff');"));
        let body = as_curl(&bytes, false).expect("small");
        assert!(body.contains(r#""content_type":"image/png","payload_base64":"AP8=""#), "{body}");
        let body = body.split_once("--data-binary '").and_then(|(_, body)| body.strip_suffix('\'')).expect("quoted");
        assert!(Envelope::from_json(body.as_bytes()).is_ok(), "{body}");
    }

    #[test]
    fn what_is_too_large_for_a_command_line_is_none() {
        let large = changed!(Record { payload: Some(vec![b'1'; MOST + 1].into()), ..record() });
        assert_eq!((as_curl(&large, false), as_insert(&large, &table("sqlite"))), (None, None));
        assert_eq!(as_curl(&record(), false), None, "a payload that was not read");
    }
}
