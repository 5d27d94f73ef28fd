//! A webhook sender: tells an endpoint about every order that is shipped or delivered.

use outbox_sdk::prelude::*;

listener! {
    check: check_settings,
    "Order" / "OrderShipped" => send,
    "Order" / "OrderDelivered" => send,
}

/// `[config]` of the manifest.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    endpoint: String,
    /// How long to wait where the endpoint does not say.
    #[serde(default = "a_minute")]
    retry_after_seconds: u32,
}

fn a_minute() -> u32 {
    60
}

impl Settings {
    fn read() -> Result<Self, Failure> {
        let settings: Self = config::parse()?;
        if !["https://", "http://"].iter().any(|scheme| settings.endpoint.starts_with(scheme)) {
            return Err(Failure::retryable("the setting `endpoint` must be an https:// or http:// address"));
        }
        Ok(settings)
    }
}

/// A version whose settings will not do does not replace the one that serves.
fn check_settings() -> Result<(), Failure> {
    Settings::read()?;
    config::require_secret("token").map(drop)
}

fn send(event: &Event) -> Answer {
    let settings = Settings::read()?;
    let token = config::require_secret("token")?;

    let request = http::post(&settings.endpoint)
        .bearer(&token)
        .with_header("webhook-id", &event.id)
        .with_header("webhook-event", &event.route.event_type)
        .bytes(&event.content_type, event.payload.clone());
    let response = request.send()?; // no connection, too slow, not granted: the host's own words, and tried again

    match response.status {
        200..=299 => Ok(Done),
        status @ (408 | 425 | 429 | 500..) => {
            let wait = response.retry_after().unwrap_or(Duration::from_secs(settings.retry_after_seconds.into()));
            let failure = Failure::retryable_after(wait, format_args!("the endpoint answered {status}"));
            Err(failure.code(format!("http-{status}")))
        }
        status => {
            warn!(status = status; "the endpoint does not take this event");
            Ok(dead(format_args!("the endpoint answered {status}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use outbox_sdk::testing;

    use super::*;

    fn delivered(response: http::Response) -> Answer {
        testing::set_config("endpoint", "https://hooks.example.com/orders");
        testing::set_secret("token", "t0ken");
        testing::respond(response);
        ThisPlugin::on_event(&Event::for_test("Order", "OrderShipped").with_text(r#"{ "order_id": 7 }"#))
    }

    #[test]
    fn an_event_goes_to_the_endpoint_as_it_is() {
        assert_eq!(delivered(http::Response::new(202)), Ok(Done));

        let request = testing::requests().remove(0);
        assert_eq!((request.method.as_str(), request.url.as_str()), ("POST", "https://hooks.example.com/orders"));
        assert_eq!(request.body, br#"{ "order_id": 7 }"#);
        assert_eq!(request.header("authorization"), Some("Bearer t0ken"));
        assert_eq!(request.header("webhook-id"), Some("01JD7ZS0000000000000000000"));
        assert_eq!(request.header("content-type"), Some("application/json"));
    }

    #[test]
    fn an_endpoint_that_does_not_take_the_event_ends_it() {
        assert_eq!(delivered(http::Response::new(422)), Ok(dead("the endpoint answered 422")));
        assert_eq!(delivered(http::Response::new(301)), Ok(dead("the endpoint answered 301")));
    }

    #[test]
    fn an_endpoint_in_trouble_is_asked_again_when_it_says() {
        let kind = |response| delivered(response).unwrap_err().kind;

        assert_eq!(kind(http::Response::new(503)), FailureKind::RetryableAfter(Duration::from_secs(60)));
        let busy = http::Response::new(429).with_header("Retry-After", "5");
        assert_eq!(kind(busy), FailureKind::RetryableAfter(Duration::from_secs(5)));
    }

    #[test]
    fn settings_that_will_not_do_keep_it_from_serving() {
        let complaint = || ThisPlugin::check_settings().unwrap_err().message;

        assert!(complaint().starts_with("the setting `endpoint` is missing"), "{}", complaint());
        testing::set_config("endpoint", "hooks.example.com");
        assert!(complaint().contains("must be an https://"), "{}", complaint());
        testing::set_config("endpoint", "https://hooks.example.com");
        assert!(complaint().contains("the secret `token` is missing"), "{}", complaint());
        testing::set_secret("token", "t0ken");
        assert_eq!(ThisPlugin::check_settings(), Ok(()));
    }
}
