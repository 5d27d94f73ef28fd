//! Does nothing, as fast as it can: what the benchmark calls. Anything more would be measured with the host.

use outbox_sdk::prelude::*;

listener! { "Bench" / "Noop" => do_nothing }

fn do_nothing(_: &Event) -> Answer {
    Ok(Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_done_whatever_the_payload() {
        assert_eq!(ThisPlugin::on_event(&Event::for_test("Bench", "Noop").with_text("not JSON")), Ok(Done));
    }
}
