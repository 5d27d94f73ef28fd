#include "outbox_test.h"

static outbox_answer delivered(const char *payload)
{
    outbox_event event = outbox_test_event("{{aggregate_type}}", "{{event_type}}", payload);
    return outbox_test_deliver(&event);
}

static void a_payload_is_taken(void)
{
    OUTBOX_CHECK(delivered("{\"message\": \"hello\"}").kind == OUTBOX_DONE);
    OUTBOX_CHECK(outbox_test_host.line_count == 1);
}

static void an_empty_payload_is_never_delivered_again(void)
{
    outbox_answer answer = delivered("");
    OUTBOX_CHECK(answer.kind == OUTBOX_DEAD);
    OUTBOX_CHECK_TEXT(answer.message, "the payload is empty");
}

static void an_endpoint_gets_the_event(void)
{
    outbox_test_set("endpoint", "https://hooks.example.com/");
    outbox_test_respond((outbox_response){ .status = 204 });
    OUTBOX_CHECK(delivered("{}").kind == OUTBOX_DONE);
    OUTBOX_CHECK_TEXT(outbox_test_host.requests[0].url, "https://hooks.example.com/");
    outbox_test_reset();
}

int main(void)
{
    outbox_test_reset();
    a_payload_is_taken();
    an_empty_payload_is_never_delivered_again();
    an_endpoint_gets_the_event();
    return outbox_test_end();
}
