//! What a request looks like. Whatever needs a server is in tests/sinks.

use outbox_event::{Envelope, Event};

use super::*;
use crate::Secret;

fn http(config: HttpConfig) -> Http {
    assert_eq!(config.faults("sinks.hooks"), Vec::<String>::new());
    Http::new("hooks", config, Rests::default()).expect("no faults")
}

fn to(url: &str) -> HttpConfig {
    HttpConfig { url: url.to_owned(), ..HttpConfig::default() }
}

fn message(aggregate_id: &str) -> Message {
    let envelope =
        Envelope::new("OrderPlaced").aggregate("Order", aggregate_id).header("traceparent", "00-1").header("Host", "evil");
    Message::of_event(&Arc::new(Event::of(envelope.json(&7).expect("valid")).build()))
}

fn header<'r>(request: &'r Request<Full<Bytes>>, name: &str) -> Option<&'r str> {
    request.headers().get(name).map(|value| value.to_str().expect("ASCII"))
}

#[test]
fn an_event_cannot_leave_the_address_nor_set_a_header_that_steers() {
    let sink = http(HttpConfig { path: Some("o/{aggregate_id}".parse().unwrap()), ..to("https://a.example/base?key=1") });
    let uri = |id: &str| sink.uri(&message(id)).map(|uri| uri.to_string());
    assert_eq!(uri("42").unwrap(), "https://a.example/base/o/42?key=1");
    assert_eq!(uri("a/../b?x#y z").unwrap(), "https://a.example/base/o/a%2F..%2Fb%3Fx%23y%20z?key=1");
    assert!(uri("..").is_err());
    let request = sink.request(&message("42")).unwrap();
    assert_eq!((header(&request, "host"), header(&request, "traceparent")), (None, Some("00-1")));
}

#[test]
fn no_header_of_an_event_changes_what_a_receiver_does_with_the_request() {
    let steering = [
        "X-HTTP-Method-Override",
        "x-original-url",
        "X-Real-IP",
        "x_forwarded_for",
        "CF-Connecting-IP",
        "If-Match",
        "origin",
        "X-Api-Key",
        "Content_Length",
        "Proxy-Authorization",
        "Remote-User",
        "x-remote-user",
        "x-auth-request-email",
        "x-authenticated-user",
        "X-Webauth-User",
        "X-Goog-Authenticated-User-Email",
        "X-MS-Client-Principal-Name",
        "x-amzn-oidc-identity",
        "X-Envoy-Upstream-Rq-Timeout-Ms",
        "svix-signature",
        "X-Hub-Signature-256",
        "x-ssl-client-verify",
        "SSL-Client-Cert",
    ];
    let envelope = Envelope::new("OrderPlaced").aggregate("Order", "42").header("order_id", "7").header("x-tenant", "acme");
    let envelope = steering.iter().fold(envelope, |envelope, name| envelope.header(*name, "evil"));
    let message = Message::of_event(&Arc::new(Event::of(envelope.json(&7).expect("valid")).build()));
    let request = http(to("https://a.example")).request(&message).unwrap();
    let carried: Vec<_> = request.headers().iter().filter(|(_, value)| *value == "evil").collect();
    assert!(carried.is_empty(), "{carried:?}");
    assert_eq!((header(&request, "order_id"), header(&request, "x-tenant")), (Some("7"), Some("acme")));
}

#[test]
fn a_header_of_an_event_that_a_receiver_may_confuse_with_another_is_left_out() {
    let operators = [("X-Shop-Token".to_owned(), Secret::new("real"))];
    let sink = http(HttpConfig { headers: operators.into(), ..to("https://a.example") });
    let confusing = ["x_shop_token", "x.shop.token", "tenant_id", "event_id", "Aggregate_Type", "content_type", "user_agent"];
    let envelope = Envelope::new("OrderPlaced").aggregate("Order", "42");
    let envelope = confusing.iter().fold(envelope, |envelope, name| envelope.header(*name, "forged"));
    let message = Message::of_event(&Arc::new(Event::of(envelope.json(&7).expect("valid")).build()));

    let request = sink.request(&message).unwrap();

    let forged: Vec<_> = request.headers().iter().filter(|(_, value)| *value == "forged").collect();
    assert!(forged.is_empty(), "{forged:?}");
    assert_eq!(header(&request, "x-shop-token"), Some("real"));
}

#[test]
fn every_request_names_its_event_and_its_message_and_the_operators_headers_win() {
    let headers = [("authorization", "Bearer s3cret"), ("traceparent", "00-2")];
    let headers = headers.map(|(name, value)| (name.to_owned(), Secret::new(value)));
    let sink = http(HttpConfig { headers: headers.into(), ..to("https://a.example") });
    let message = message("ä");
    let request = sink.request(&message).unwrap();
    assert_eq!(header(&request, "event-id"), Some(message.event_id.to_string().as_str()));
    assert_eq!(header(&request, "idempotency-key"), Some(message.id.as_str()));
    assert_eq!(header(&request, "authorization"), Some("Bearer s3cret"));
    assert_eq!(header(&request, "traceparent"), Some("00-2"));
    assert_eq!(header(&request, "aggregate-id"), Some("%C3%A4"));
    assert_eq!(header(&request, "content-type"), Some("application/json"));
    assert_eq!(header(&request, "webhook-signature"), None, "not asked for");
    assert!(!format!("{request:?}").contains("s3cret"));
}

#[test]
fn a_cloud_event_in_binary_mode_has_its_attributes_in_headers() {
    let sink = http(HttpConfig { format: Format::CloudeventsBinary, source: "sh op".to_owned(), ..to("https://a.example") });
    let request = sink.request(&message("4%\"2")).unwrap();
    assert_eq!(header(&request, "ce-specversion"), Some("1.0"));
    assert_eq!(header(&request, "ce-type"), Some("OrderPlaced"));
    assert_eq!(header(&request, "ce-source"), Some("sh%20op"));
    assert_eq!(header(&request, "ce-subject"), Some("4%25%222"));
    assert_eq!(header(&request, "content-type"), Some("application/json"));
    assert_eq!(header(&request, "ce-datacontenttype"), None);
}

#[test]
fn faults_name_the_setting_and_no_secret() {
    let text = r#"{"url": "https://app:s3cret@a", "secrets": ["whsec_s3cret"], "headers": {"host": "s3cret", "x": "s3cret\n"},
                   "max_in_flight": 0, "ca_file": "/nowhere.pem"}"#;
    let faults = serde_json::from_str::<HttpConfig>(text).expect("readable").faults("sinks.hooks");
    assert_eq!(faults.len(), 6, "{faults:#?}");
    assert!(faults.iter().all(|fault| fault.starts_with("sinks.hooks") && !fault.contains("s3cret")), "{faults:#?}");
}
