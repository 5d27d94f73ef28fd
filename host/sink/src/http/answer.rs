//! What the response to a webhook means for the message.

use std::time::{Duration, Instant};

use http::header::{DATE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderName, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use jiff::fmt::rfc2822::DateTimeParser;
use outbox_event::time::Timestamp;

use super::hidden::Hidden;
use crate::SinkError;
use crate::error::quoted;

/// How much of a response is read: enough for a reason, and to reuse the connection.
const MAX_BODY: usize = 4 << 10;
/// How long a response's body may take: the status has decided already.
const BODY_TIME: Duration = Duration::from_millis(500);
/// The longest `Retry-After` that is respected.
const LONGEST_REST: Duration = Duration::from_secs(15 * 60);

/// Decides whether a response confirms the message. Reads at most a bounded part of the body, for a bounded time, and not beyond the
/// deadline of the message: a slow body must not turn a confirmation into an outage of the sink.
pub(super) async fn meaning(
    answer: Response<Incoming>,
    deadline: Instant,
    url: &str,
    hidden: &Hidden,
    now: Timestamp,
) -> Result<(), SinkError> {
    let (head, body) = answer.into_parts();
    let text = read(body, deadline.min(Instant::now() + BODY_TIME)).await;
    verdict(head.status, &head.headers, &text, url, hidden, now)
}

fn verdict(
    status: StatusCode,
    headers: &HeaderMap,
    text: &str,
    url: &str,
    hidden: &Hidden,
    now: Timestamp,
) -> Result<(), SinkError> {
    if status.is_success() {
        return Ok(());
    }
    // Before it is cut: half a secret is not found.
    let text = quoted(&hidden.hide(text));
    let said = if text.is_empty() { String::new() } else { format!(": {text}") };
    let reason = format!("{url} answered {}{said}", status.as_u16());
    Err(match status.as_u16() {
        300..=399 => {
            let to = headers.get(LOCATION).map(|to| quoted(&hidden.hide(&String::from_utf8_lossy(to.as_bytes()))));
            let to = to.map_or_else(String::new, |to| format!(" to {to}"));
            SinkError::denied(format!(
                "{url} answered {} with a redirect{to}, which is not followed; set url to where it leads",
                status.as_u16()
            ))
        }
        401 | 403..=405 | 407 | 410 => SinkError::denied(reason),
        // 520 to 530: a proxy's own codes for a server that it cannot reach.
        408 | 425 | 429 | 502..=504 | 520..=530 => {
            SinkError::Unavailable { reason, retry_after: retry_after(headers, now), tried_ago: Duration::ZERO }
        }
        500..=599 => match retry_after(headers, now) {
            Some(rest) => SinkError::unavailable_for(rest, reason),
            None => SinkError::failed(reason),
        },
        _ => SinkError::rejected(reason),
    })
}

/// `Retry-After`, in seconds or as a date, bounded. Source: RFC 9110, 10.2.3.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let rest = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        // By the receiver's own clock, if it says its time: this host's may be wrong.
        Err(_) => date(headers, RETRY_AFTER)?.since(date(headers, DATE).unwrap_or(now)),
    };
    Some(rest.min(LONGEST_REST))
}

/// The date in this header, in any of the three formats of HTTP (source: RFC 9110, 5.6.7) or in that of e-mail: some servers write a day
/// of one digit, or `+0000` for `GMT`.
fn date(headers: &HeaderMap, name: HeaderName) -> Option<Timestamp> {
    let text = headers.get(name)?.to_str().ok()?.trim();
    let of_email = || DateTimeParser::new().parse_timestamp(text).map(Timestamp::from).ok();
    httpdate::parse_http_date(text).map(Timestamp::from).ok().or_else(of_email)
}

/// The beginning of a body, as text: what arrives before this time.
async fn read(mut body: Incoming, until: Instant) -> String {
    let mut read = Vec::new();
    while read.len() < MAX_BODY {
        // The end of the body, an error, or the end of the time.
        let Ok(Some(Ok(frame))) = tokio::time::timeout_at(until.into(), body.frame()).await else { break };
        if let Some(data) = frame.data_ref() {
            read.extend_from_slice(&data[..data.len().min(MAX_BODY - read.len())]);
        }
    }
    String::from_utf8_lossy(&read).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict_of(status: u16, headers: &[(HeaderName, &str)]) -> Result<(), SinkError> {
        let headers = headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        let now = Timestamp::from_micros(784_111_777_000_000); // Sun, 06 Nov 1994 08:49:37 GMT
        let hidden = Hidden::of(&"https://a/s3cr3t-t0ken".parse().unwrap(), &HeaderMap::new());
        let text = "no\r\n\u{1b}[2J /s3cr3t-t0ken";
        verdict(StatusCode::from_u16(status).unwrap(), &headers, text, "https://a", &hidden, now)
    }

    #[test]
    fn the_status_decides() {
        for status in [200, 201, 202, 204, 299] {
            assert_eq!(verdict_of(status, &[]), Ok(()), "{status}");
        }
        for status in [408, 425, 429, 502, 503, 504, 520, 530] {
            assert!(matches!(verdict_of(status, &[]), Err(SinkError::Unavailable { retry_after: None, .. })), "{status}");
        }
        let reason = |status: u16| format!("https://a answered {status}: no\\r\\n\\u{{1b}}[2J ***");
        for status in [500, 501, 505, 599] {
            assert_eq!(verdict_of(status, &[]), Err(SinkError::Failed { reason: reason(status) }));
            let asked = verdict_of(status, &[(RETRY_AFTER, "7")]);
            assert_eq!(asked, Err(SinkError::unavailable_for(Duration::from_secs(7), reason(status))));
        }
        for status in [401, 403, 404, 405, 407, 410] {
            assert_eq!(verdict_of(status, &[]), Err(SinkError::denied(reason(status))));
        }
        for status in [400, 402, 406, 409, 413, 415, 422] {
            assert_eq!(verdict_of(status, &[]), Err(SinkError::rejected(reason(status))));
        }
        let moved = verdict_of(308, &[(LOCATION, "http://169.254.169.254/")]);
        assert!(
            matches!(&moved, Err(SinkError::Denied { reason }) if reason.contains("redirect to http://169.254.169.254/, which is not followed"))
        );
    }

    #[test]
    fn the_other_side_says_when_within_a_bound() {
        let rest_of = |headers: &[(HeaderName, &str)]| match verdict_of(429, headers) {
            Err(SinkError::Unavailable { retry_after, .. }) => retry_after,
            other => panic!("{other:?}"),
        };
        let rest = |text: &str| rest_of(&[(RETRY_AFTER, text)]);
        assert_eq!(rest("7"), Some(Duration::from_secs(7)));
        assert_eq!(rest("Sun, 06 Nov 1994 08:50:37 GMT"), Some(Duration::from_secs(60)));
        assert_eq!(rest("Sunday, 06-Nov-94 08:50:37 GMT"), Some(Duration::from_secs(60)));
        assert_eq!(rest("Sun Nov  6 08:50:37 1994"), Some(Duration::from_secs(60)));
        assert_eq!(rest("Sun, 6 Nov 1994 08:50:37 GMT"), Some(Duration::from_secs(60)));
        assert_eq!(rest("Sun, 06 Nov 1994 08:50:37 +0000"), Some(Duration::from_secs(60)));
        assert_eq!(rest("Sun, 06 Nov 1994 08:40:37 GMT"), Some(Duration::ZERO));
        let by_its_clock = [(DATE, "Sun, 06 Nov 1994 07:00:00 GMT"), (RETRY_AFTER, "Sun, 06 Nov 1994 07:00:30 GMT")];
        assert_eq!(rest_of(&by_its_clock), Some(Duration::from_secs(30)));
        assert_eq!(rest("99999999999"), Some(LONGEST_REST));
        assert_eq!(rest("soon"), None);
    }
}
