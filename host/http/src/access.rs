//! Who may use the API: tokens, sessions, and callers on this machine.

pub(super) mod refused;
pub(super) mod session;
pub(super) mod token;

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, header};
use outbox_event::time::{Timestamp, system_clock};
use outbox_store::Audit;

use super::peer::Peer;
use super::problem::{Kind, Problem};
use session::Sessions;
use token::{Role, Token, TokenHash};

/// Headers that proxies add. A caller behind a proxy is not on this machine, even if the connection is local.
const PASSED_ON: [&str; 8] = [
    "cf-connecting-ip",
    "forwarded",
    "via",
    "x-forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
];

/// The tokens of the host, and the sessions of browsers.
#[derive(Debug)]
pub(crate) struct Access {
    tokens: Vec<Token>,
    open: bool,
    sessions: Sessions,
}

/// The caller of a request. As an extractor it accepts every role, and answers 401 without a valid token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Viewer {
    /// The name of the token, for the audit log.
    pub(crate) name: Arc<str>,
    pub(crate) role: Role,
}

impl Viewer {
    /// Whether payloads are shown.
    pub(crate) fn sees_payloads(&self) -> bool {
        self.role >= Role::Operator
    }

    /// The viewer, if the role is this one or a greater one.
    ///
    /// # Errors
    /// 403.
    pub(crate) fn at_least(self, wanted: Role) -> Result<Self, Problem> {
        if self.role >= wanted {
            return Ok(self);
        }
        let detail = format!("the token {:?} has the role {}; this takes {wanted}", self.name, self.role);
        Err(Problem::new(Kind::Forbidden, detail))
    }

    /// The actor and the reason of a change, for the audit log.
    pub(crate) fn audit(&self, reason: Option<String>) -> Audit {
        Audit { reason: reason.filter(|reason| !reason.trim().is_empty()), ..Audit::by(&*self.name) }
    }
}

impl Access {
    pub(crate) fn new(tokens: Vec<Token>, open: bool) -> Self {
        Self { tokens, open, sessions: Sessions::default() }
    }

    /// Whether callers must send a token. False where the host has no tokens, which it may on a loopback address only.
    pub(crate) fn wants_tokens(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// The caller of a request with these headers, over this connection.
    ///
    /// # Errors
    /// 401.
    pub(crate) fn viewer(&self, headers: &HeaderMap, peer: Option<&Peer>) -> Result<Viewer, Problem> {
        if !self.wants_tokens() {
            let is_local = peer.is_some_and(Peer::is_on_loopback);
            if is_local
                && !self.open
                && let Some(header) = PASSED_ON.iter().find(|header| headers.contains_key(**header))
            {
                let detail = format!("a proxy forwarded this request (it has the header {header}), so the host needs tokens");
                return Err(Problem::new(Kind::Unauthorized, detail));
            }
            if self.open || is_local {
                return Ok(Viewer { name: Arc::from("local"), role: Role::Admin });
            }
            let detail = "this router has no tokens; give it some, or say that the service around it has checked its callers";
            return Err(Problem::new(Kind::Unauthorized, detail));
        }
        let now = system_clock().now();
        if let Some(token) = bearer(headers) {
            return self.of_token(token, now);
        }
        let Some(id) = session::id(headers) else {
            return Err(Problem::new(Kind::Unauthorized, "send a token: `Authorization: Bearer obx_…`"));
        };
        match self.sessions.token(id, now) {
            Some(token) => self.of_hash(token, now),
            None => Err(Problem::new(Kind::Unauthorized, "the session has ended; log in again")),
        }
    }

    /// Starts a browser session; returns the viewer and the cookie to set.
    ///
    /// # Errors
    /// As [`of_token`](Self::of_token).
    pub(crate) fn log_in(&self, token: &str, headers: &HeaderMap) -> Result<(Viewer, Option<HeaderValue>), Problem> {
        let now = system_clock().now();
        let viewer = self.of_token(token, now)?;
        Ok((viewer, session::begun(&self.sessions.begin(TokenHash::of(token), now), headers)))
    }

    /// Ends the session that a request belongs to, if there is one; returns the cookie to set.
    pub(crate) fn log_out(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        if let Some(id) = session::id(headers) {
            self.sessions.end(id);
        }
        session::ended(headers)
    }

    /// The caller who sent this token, at this time.
    ///
    /// # Errors
    /// 401: the token is unknown or has expired.
    pub(crate) fn of_token(&self, token: &str, now: Timestamp) -> Result<Viewer, Problem> {
        self.of_hash(TokenHash::of(token), now)
    }

    fn of_hash(&self, hash: TokenHash, now: Timestamp) -> Result<Viewer, Problem> {
        // Every token is compared, each in constant time, so the time of an answer reveals nothing.
        let found = self.tokens.iter().fold(None, |found, known| if known.sha256.is(&hash) { Some(known) } else { found });
        match found {
            None => Err(Problem::new(Kind::Unauthorized, "this host does not know this token")),
            Some(Token { expires_at: Some(end), .. }) if *end <= now => {
                Err(Problem::new(Kind::TokenExpired, format!("the token was valid until {end}")))
            }
            Some(known) => Ok(Viewer { name: Arc::from(known.name.as_str()), role: known.role }),
        }
    }
}

/// The token of the `Authorization` header. No other site can make a browser send one.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn access() -> (String, Access) {
        let (text, token) = Token::generate("deploy", Role::Operator, Some(Timestamp::from_micros(1_000)));
        let (_, other) = Token::generate("other", Role::Admin, None);
        (text, Access::new(vec![token, other], false))
    }

    #[test]
    fn a_token_is_known_by_its_hash_until_it_expires() {
        let (text, access) = access();
        let viewer = access.of_token(&text, Timestamp::from_micros(999)).expect("valid");
        assert_eq!((&*viewer.name, viewer.role), ("deploy", Role::Operator));
        let kind = |token: &str, now| access.of_token(token, Timestamp::from_micros(now)).expect_err("refused").code();
        assert_eq!(kind(&text, 1_000), "token_expired");
        assert_eq!(kind(&text[..text.len() - 1], 0), "unauthorized");
        assert_eq!(kind(&access.tokens[0].sha256.to_string(), 0), "unauthorized", "the hash is not the token");
        assert_eq!(kind("", 0), "unauthorized");
    }

    #[test]
    fn the_token_of_a_header_counts_before_that_of_a_cookie() {
        let headers = |pairs: &[(header::HeaderName, &'static str)]| {
            pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect::<HeaderMap>()
        };
        let both = headers(&[(header::AUTHORIZATION, "bearer  obx_a "), (header::COOKIE, "x=1; outbox_session=b")]);
        assert_eq!((bearer(&both), session::id(&both)), (Some("obx_a"), Some("b")));
        assert_eq!(bearer(&headers(&[(header::AUTHORIZATION, "Basic YTpi")])), None);
        assert_eq!(session::id(&headers(&[(header::COOKIE, "outbox_session2=b")])), None);
    }

    #[test]
    fn a_session_is_no_longer_valid_than_its_token_and_the_token_is_no_session() {
        let peer = Peer::made_up("127.0.0.1:1");
        let now = system_clock().now();
        let (text, token) = Token::generate("deploy", Role::Operator, Some(now.plus(std::time::Duration::from_secs(3_600))));
        let access = Access::new(vec![token.clone()], false);
        let (viewer, cookie) = access.log_in(&text, &HeaderMap::new()).expect("let in");
        assert_eq!(&*viewer.name, "deploy");
        let cookie = cookie.expect("plain text");
        assert!(!cookie.to_str().unwrap().contains(&text), "the token stays with its bearer");
        let pair = |text: &str| HeaderMap::from_iter([(header::COOKIE, HeaderValue::try_from(text).unwrap())]);
        let with = pair(cookie.to_str().unwrap().split(';').next().unwrap());

        assert_eq!(access.viewer(&with, Some(&peer)).expect("its session").role, Role::Operator);
        assert!(access.viewer(&pair(&format!("outbox_session={text}")), Some(&peer)).is_err());
        let rotated = Access { tokens: vec![Token::generate("deploy", Role::Operator, None).1], ..access };
        assert_eq!(rotated.viewer(&with, Some(&peer)).expect_err("its token is gone").code(), "unauthorized");
        let expired = Access { tokens: vec![Token { expires_at: Some(now), ..token }], ..rotated };
        assert_eq!(expired.viewer(&with, Some(&peer)).expect_err("its token has expired").code(), "token_expired");
        expired.log_out(&with);
        assert_eq!(expired.viewer(&with, Some(&peer)).expect_err("it is over").code(), "unauthorized");
    }

    #[test]
    fn without_tokens_only_a_loopback_address_is_open() {
        let peer = Peer::made_up;
        let viewer = |open, peer: Option<Peer>| Access::new(Vec::new(), open).viewer(&HeaderMap::new(), peer.as_ref());
        assert_eq!(viewer(false, Some(peer("127.0.0.1:1"))).expect("let in").role, Role::Admin);
        assert!(viewer(false, Some(peer("192.168.1.5:1"))).is_err());
        assert!(viewer(false, None).is_err(), "a router in somebody's service, who said nothing");
        assert!(viewer(true, None).is_ok());
    }
}
