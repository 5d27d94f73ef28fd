//! Sessions of browsers: a random id in a cookie that no script reads and no other site sends. What it stands for is in the
//! memory of this host alone, so that a restart logs everybody out.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};
use data_encoding::BASE64URL_NOPAD;
use outbox_event::time::Timestamp;

use super::token::TokenHash;

/// How long a session lasts; whoever wants a longer one logs in again.
const LASTS: Duration = Duration::from_secs(12 * 3_600);
/// The most sessions of one token; one more ends the oldest of them.
const MOST_OF_A_TOKEN: usize = 100;
/// The cookie of a session over plain HTTP.
const PLAIN: &str = "outbox_session";
/// The cookie of a session over TLS. By its prefix browsers take it from nobody but this very host, and never over plain HTTP.
const OVER_TLS: &str = "__Host-outbox_session";

/// The sessions of one host.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<HashMap<TokenHash, Session>>);

#[derive(Clone, Copy, Debug)]
struct Session {
    /// Of which token. Whether that is still valid is looked at anew by every request.
    token: TokenHash,
    until: Timestamp,
}

impl Sessions {
    /// Begins a session of this token; returns its id. What is kept is the hash of the id.
    pub(crate) fn begin(&self, token: TokenHash, now: Timestamp) -> String {
        let secret: [u8; 32] = rand::random();
        let id = BASE64URL_NOPAD.encode(&secret);
        let mut sessions = self.lock();
        sessions.retain(|_, session| session.until > now);
        if sessions.values().filter(|session| session.token == token).count() >= MOST_OF_A_TOKEN {
            let of_token = sessions.iter().filter(|(_, session)| session.token == token);
            if let Some(oldest) = of_token.min_by_key(|(_, session)| session.until).map(|(id, _)| *id) {
                sessions.remove(&oldest);
            }
        }
        sessions.insert(TokenHash::of(&id), Session { token, until: now.plus(LASTS) });
        id
    }

    /// The token of a session that has not ended.
    pub(crate) fn token(&self, id: &str, now: Timestamp) -> Option<TokenHash> {
        self.lock().get(&TokenHash::of(id)).filter(|session| session.until > now).map(|session| session.token)
    }

    /// Ends a session.
    pub(crate) fn end(&self, id: &str) {
        self.lock().remove(&TokenHash::of(id));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TokenHash, Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The id of the session that a request belongs to. Over TLS the other cookie does not count: a sibling domain could have set
/// it.
pub(crate) fn id(headers: &HeaderMap) -> Option<&str> {
    cookie(headers, name(headers))
}

/// The cookie of a session; for as long as the browser runs.
pub(crate) fn begun(id: &str, headers: &HeaderMap) -> Option<HeaderValue> {
    set(name(headers), id, "", headers)
}

/// Takes the cookie back.
pub(crate) fn ended(headers: &HeaderMap) -> Option<HeaderValue> {
    set(name(headers), "", "; Max-Age=0", headers)
}

/// Sets a cookie of a harmless value for a year.
pub(crate) fn remember(name: &str, value: &str, headers: &HeaderMap) -> Option<HeaderValue> {
    set(name, value, "; Max-Age=31536000", headers)
}

fn name(headers: &HeaderMap) -> &'static str {
    if is_over_tls(headers) { OVER_TLS } else { PLAIN }
}

fn set(name: &str, value: &str, age: &str, headers: &HeaderMap) -> Option<HeaderValue> {
    // Behind a proxy that speaks TLS the cookie never goes over anything else.
    let secure = if is_over_tls(headers) { "; Secure" } else { "" };
    HeaderValue::try_from(format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{age}")).ok()
}

/// Whether a proxy says that the browser speaks TLS with it.
fn is_over_tls(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let first = |list: &str| list.split(',').next().unwrap_or_default().trim().to_ascii_lowercase();
    let forwarded = first(text("forwarded"));
    first(text("x-forwarded-proto")) == "https"
        || forwarded.split(';').any(|pair| matches!(pair.trim(), "proto=https" | "proto=\"https\""))
}

/// The value of a cookie.
pub(crate) fn cookie<'h>(headers: &'h HeaderMap, wanted: &str) -> Option<&'h str> {
    let values = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == wanted).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (header::HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_micros(1_795_249_980_000_000).plus(Duration::from_secs(seconds))
    }

    #[test]
    fn no_script_reads_the_cookie_and_no_other_site_sends_it() {
        let text = |headers: &HeaderMap| begun("abc-1", headers).unwrap().to_str().unwrap().to_owned();
        assert_eq!(text(&HeaderMap::new()), "outbox_session=abc-1; Path=/; HttpOnly; SameSite=Strict");
        for tls in
            [("x-forwarded-proto", "https"), ("x-forwarded-proto", "HTTPS, http"), ("forwarded", "for=192.0.2.1;proto=https")]
        {
            let over_tls = headers(&[tls]);
            assert_eq!(text(&over_tls), "__Host-outbox_session=abc-1; Path=/; HttpOnly; SameSite=Strict; Secure", "{tls:?}");
            assert!(ended(&over_tls).unwrap().to_str().unwrap().contains("Max-Age=0"));
        }
        assert!(!text(&headers(&[("forwarded", "for=192.0.2.1, for=10.0.0.1;proto=https")])).contains("Secure"));
    }

    #[test]
    fn over_tls_a_cookie_that_a_neighbour_could_set_does_not_count() {
        let cookies = ("cookie", "outbox_session=planted; __Host-outbox_session=real");
        assert_eq!(id(&headers(&[cookies, ("x-forwarded-proto", "https")])), Some("real"));
        assert_eq!(id(&headers(&[("cookie", "outbox_session=planted"), ("x-forwarded-proto", "https")])), None);
        assert_eq!(id(&headers(&[cookies])), Some("planted"), "over plain HTTP there is no other");
    }

    #[test]
    fn a_session_ends_when_it_is_told_to_or_its_time_is_over() {
        let (sessions, token) = (Sessions::default(), TokenHash::of("obx_a"));
        let (first, second) = (sessions.begin(token, at(0)), sessions.begin(token, at(0)));
        assert!(first.len() == 43 && first != second);
        assert_eq!(sessions.token(&first, at(LASTS.as_secs() - 1)), Some(token));
        assert_eq!(sessions.token(&first, at(LASTS.as_secs())), None);
        sessions.end(&first);
        assert_eq!((sessions.token(&first, at(0)), sessions.token(&second, at(0))), (None, Some(token)));
        assert!(!format!("{sessions:?}").contains(&second), "what is kept is no way in");
    }

    #[test]
    fn there_are_so_many_sessions_of_a_token_and_those_of_others_stay() {
        let (sessions, busy, other) = (Sessions::default(), TokenHash::of("obx_a"), TokenHash::of("obx_b"));
        let kept = sessions.begin(other, at(0));
        let ids: Vec<String> = (1..=101).map(|second| sessions.begin(busy, at(second))).collect();
        assert_eq!(sessions.lock().len(), MOST_OF_A_TOKEN + 1);
        assert_eq!((sessions.token(&ids[0], at(101)), sessions.token(&ids[100], at(101))), (None, Some(busy)));
        assert_eq!(sessions.token(&kept, at(101)), Some(other));
        sessions.begin(other, at(LASTS.as_secs() + 200));
        assert_eq!(sessions.lock().len(), 1, "those that are over cost nothing");
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        let headers = headers(&[("cookie", "a=1; outbox_theme=dark; b=2")]);
        assert_eq!((cookie(&headers, "outbox_theme"), cookie(&headers, "theme")), (Some("dark"), None));
    }
}
