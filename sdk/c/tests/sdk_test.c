/* What the SDK does with what a host and a listener hand it, natively. -fsanitize=address shows that nothing leaks. */
#include <string.h>

#include "outbox_test.h"

static outbox_event seen; /* texts in it are gone after the delivery */

static outbox_answer looks(const outbox_event *event)
{
    seen = *event;
    OUTBOX_CHECK_TEXT(event->id, "01JD7ZS0000000000000000000");
    OUTBOX_CHECK_TEXT(event->delivery_id, "01JD7ZS0000000000000000000:1");
    OUTBOX_CHECK_TEXT(event->aggregate_type, "Thing");
    OUTBOX_CHECK_TEXT(event->event_type, "Looks");
    OUTBOX_CHECK_TEXT(event->aggregate_id, "7");
    OUTBOX_CHECK_TEXT(event->tenant_id, NULL);
    OUTBOX_CHECK_TEXT(event->content_type, "application/json");
    OUTBOX_CHECK(event->payload.length == 3 && memcmp(event->payload.bytes, "a\0b", 4) == 0);
    OUTBOX_CHECK(event->sequence == 9 && event->attempt == 2 && event->occurred_at_ms == 1732000000000);
    OUTBOX_CHECK_TEXT(outbox_header(event, "trace"), "first");
    OUTBOX_CHECK_TEXT(outbox_header(event, "Trace"), NULL);
    OUTBOX_CHECK_TEXT(outbox_header(event, "empty"), "");
    OUTBOX_CHECK_TEXT(outbox_attribute(event, "max-attempts"), "10");
    OUTBOX_CHECK(event->id.bytes[event->id.length] == 0);
    return outbox_done();
}

static outbox_answer waits(const outbox_event *event)
{
    (void)event;
    return outbox_retry_after(UINT32_MAX);
}

static outbox_answer dies(const outbox_event *event)
{
    return outbox_dead("cannot read %.*s", OUTBOX_ARG(event->payload));
}

static outbox_answer fails(const outbox_event *event)
{
    if (outbox_text_is(event->payload, "later"))
        return outbox_retryable_after(1500, "busy");
    if (outbox_text_is(event->payload, "never"))
        return outbox_unrecoverable("%s", "no such shop");
    outbox_answer failure = outbox_with_code(outbox_retryable("declined by %s", "the bank"), "payment-declined");
    failure = outbox_with_detail(failure, "bank", "%d", 17);
    return outbox_with_detail(failure, "note", "caf\xe9");
}

static outbox_answer reads_settings(const outbox_event *event)
{
    (void)event;
    OUTBOX_CHECK_TEXT(outbox_setting("currency"), "SEK");
    OUTBOX_CHECK_TEXT(outbox_setting("empty"), "");
    OUTBOX_CHECK_TEXT(outbox_setting("absent"), NULL);
    OUTBOX_CHECK_TEXT(outbox_secret("token"), "s3cret");
    OUTBOX_CHECK_TEXT(outbox_secret("currency"), NULL);
    OUTBOX_CHECK(outbox_settings().count == 2);
    OUTBOX_CHECK_TEXT(outbox_find(outbox_settings(), "currency"), "SEK");
    OUTBOX_CHECK(outbox_remaining_ms() == 5000);
    return outbox_done();
}

static outbox_answer logs(const outbox_event *event)
{
    char long_word[2000];
    memset(long_word, 'x', sizeof long_word - 1);
    long_word[sizeof long_word - 1] = 0;

    outbox_log(OUTBOX_DEBUG, "nobody sees this");
    outbox_log_with(OUTBOX_INFO, OUTBOX_PAIRS(outbox_pair_of("total", "%.2f", 99.5), outbox_pair_of("attempt", "%u", event->attempt)),
        "order %d placed", 42);
    outbox_log(OUTBOX_ERROR, "%s", long_word);
    outbox_log(OUTBOX_WARN, "broken \xff text");
    OUTBOX_CHECK(!outbox_log_enabled(OUTBOX_DEBUG));
    OUTBOX_CHECK(outbox_log_enabled(OUTBOX_WARN));
    return outbox_done();
}

static outbox_answer emits(const outbox_event *event)
{
    outbox_text id;
    bool emitted = outbox_emit(&(outbox_envelope){
        .aggregate_type = "Payment",
        .event_type = "PaymentRequested",
        .aggregate_id = event->aggregate_id,
        .payload = outbox_format("{\"order_id\": %d}", 42),
        .headers = OUTBOX_PAIRS(outbox_pair_of("cause", "%s", event->id.bytes)),
        .deliver_after_ms = 250,
    }, &id);
    if (!emitted)
        return outbox_refused();
    OUTBOX_CHECK_TEXT(id, "emitted-1");
    if (!outbox_emit(&(outbox_envelope){ .aggregate_type = "A", .event_type = "B", .id = outbox_text_of("mine") }, NULL))
        return outbox_refused();
    return outbox_done();
}

static outbox_answer publishes(const outbox_event *event)
{
    outbox_message one = { .subject = "orders.placed", .key = event->aggregate_id, .body = event->payload };
    if (!outbox_publish("orders", &one))
        return outbox_refused();
    outbox_message two[] = { one, { .content_type = "text/plain", .body = outbox_text_of("two") } };
    bool sent[2] = { false, false };
    if (!outbox_publish_all("orders", two, 2, sent))
        return outbox_refused();
    OUTBOX_CHECK(sent[0] && sent[1]);
    OUTBOX_CHECK(outbox_publish_all("orders", NULL, 0, NULL));
    return outbox_done();
}

static outbox_answer publishes_many(const outbox_event *event)
{
    outbox_message two[] = { { .body = event->payload }, { .body = event->payload } };
    bool sent[2] = { true, true };
    OUTBOX_CHECK(!outbox_publish_all("orders", two, 2, sent));
    OUTBOX_CHECK(!sent[0] && !sent[1]);
    return outbox_refused();
}

static outbox_answer counts(const outbox_event *event)
{
    (void)event;
    outbox_text count;
    if (!outbox_state_get("count", &count))
        return outbox_refused();
    if (!outbox_state_set("count", outbox_format("%.*s+1", OUTBOX_ARG(count))))
        return outbox_refused();
    if (!outbox_state_set("empty", (outbox_text){ 0 }) || !outbox_state_set("gone", count) || !outbox_state_delete("gone"))
        return outbox_refused();
    OUTBOX_CHECK(outbox_state_get("empty", &count) && count.bytes && count.length == 0);
    OUTBOX_CHECK(outbox_state_get("gone", &count) && !count.bytes);
    return outbox_done();
}

static outbox_answer allocates(const outbox_event *event)
{
    for (size_t size = 0; size < 100000; size = size * 3 + 1) {
        char *memory = outbox_alloc(size);
        bool zeroed = true;
        for (size_t i = 0; i < size; i++)
            zeroed = zeroed && memory[i] == 0;
        OUTBOX_CHECK(zeroed);
        memset(memory, 0xAA, size);
    }
    OUTBOX_CHECK_TEXT(event->event_type, "Allocates");
    return outbox_done();
}

static outbox_answer asks(const outbox_event *event)
{
    outbox_request request = {
        .url = outbox_text_of("https://api.example.com/orders?key=secret"),
        .headers = OUTBOX_PAIRS(outbox_pair_of("X-Event", "%.*s", OUTBOX_ARG(event->id))),
        .body = event->payload,
    };
    outbox_response response;
    if (!outbox_http(&request, &response))
        return outbox_refused();
    if (!outbox_response_ok(&response))
        return outbox_http_failed(&request, &response);
    return outbox_dead("%.*s: %.*s", OUTBOX_ARG(outbox_response_header(&response, "content-type")), OUTBOX_ARG(response.body));
}

static const char *check(void)
{
    return outbox_text_is(outbox_setting("color"), "none") ? "`color` must be a color" : NULL;
}

OUTBOX_CHECKED_PLUGIN("everything", "1.2.3", check,
    { "Thing", "Asked", asks },
    { "Thing", "Looks", looks },
    { "Thing", "Waits", waits },
    { "Thing", "Dies", dies },
    { "Thing", "Fails", fails },
    { "Thing", "ReadsSettings", reads_settings },
    { "Thing", "Logs", logs },
    { "Thing", "Emits", emits },
    { "Thing", "Publishes", publishes },
    { "Thing", "PublishesMany", publishes_many },
    { "Thing", "Counts", counts },
    { "Thing", "Allocates", allocates },
);

/* Fails every second event, and publishes a message for each of the others. */
static void takes_many(const outbox_event *events, size_t count, outbox_answer *answers)
{
    for (size_t i = 0; i < count; i++) {
        outbox_message message = { .body = outbox_format("%zu of %zu", i, count), .attributes = outbox_for_event(&events[i]) };
        if (i % 2 == 1)
            answers[i] = outbox_with_code(outbox_retryable("%zu of %zu", i, count), "odd");
        else if (!outbox_text_is(events[i].payload, "nothing"))
            answers[i] = outbox_publish("orders", &message) ? outbox_done() : outbox_refused();
    }
}

OUTBOX_BATCHES(
    { "Thing", "Fails", takes_many },
    { "Thing", "Waits", takes_many },
);

static outbox_answer delivered(const char *event_type, const char *payload)
{
    outbox_event event = outbox_test_event("Thing", event_type, payload);
    return outbox_test_deliver(&event);
}

static void the_listener_sees_the_whole_event(void)
{
    outbox_event event = outbox_test_event("Thing", "Looks", "");
    event.aggregate_id = outbox_text_of("7");
    event.payload = (outbox_text){ "a\0b", 3 };
    event.sequence = 9;
    event.attempt = 2;
    event.headers = OUTBOX_PAIRS({ outbox_text_of("trace"), outbox_text_of("first") },
        { outbox_text_of("trace"), outbox_text_of("second") }, { outbox_text_of("empty"), outbox_text_of("") });
    event.attributes = OUTBOX_PAIRS({ outbox_text_of("max-attempts"), outbox_text_of("10") });

    OUTBOX_CHECK(outbox_test_deliver(&event).kind == OUTBOX_DONE);
    OUTBOX_CHECK(seen.headers.count == 3);
}

static void every_answer_arrives(void)
{
    outbox_answer answer = delivered("Waits", "");
    OUTBOX_CHECK(answer.kind == OUTBOX_RETRY_AFTER && answer.after_ms == 24 * 60 * 60 * 1000);

    answer = delivered("Fails", "later");
    OUTBOX_CHECK(answer.kind == OUTBOX_RETRYABLE_AFTER && answer.after_ms == 1500);
    OUTBOX_CHECK_TEXT(answer.message, "busy");
    OUTBOX_CHECK_TEXT(answer.code, NULL);

    answer = delivered("Fails", "never");
    OUTBOX_CHECK(answer.kind == OUTBOX_UNRECOVERABLE);
    OUTBOX_CHECK_TEXT(answer.message, "no such shop");

    answer = delivered("Fails", "");
    OUTBOX_CHECK(answer.kind == OUTBOX_RETRYABLE);
    OUTBOX_CHECK_TEXT(answer.message, "declined by the bank");
    OUTBOX_CHECK_TEXT(answer.code, "payment-declined");
    OUTBOX_CHECK(answer.details.count == 2);
    OUTBOX_CHECK_TEXT(outbox_find(answer.details, "bank"), "17");
}

static void text_that_is_not_utf8_never_reaches_the_host(void)
{
    OUTBOX_CHECK_TEXT(delivered("Dies", "caf\xc3\xa9 \xf0\x9f\x98\x80").message, "cannot read caf\xc3\xa9 \xf0\x9f\x98\x80");
    OUTBOX_CHECK_TEXT(delivered("Dies", "a\xff" "b\xe2\x82").message, "cannot read a?b??");
    OUTBOX_CHECK_TEXT(delivered("Dies", "\xc0\xaf\xed\xa0\x80\xf5\x80\x80\x80").message, "cannot read ?????????");
    OUTBOX_CHECK_TEXT(outbox_find(delivered("Fails", "").details, "note"), "caf?");
}

static void an_unknown_route_is_unrecoverable(void)
{
    outbox_answer answer = delivered("Unheard", "");
    OUTBOX_CHECK(answer.kind == OUTBOX_UNRECOVERABLE);
    OUTBOX_CHECK_TEXT(answer.message, "this plugin does not answer Thing/Unheard");
}

static void settings_are_read(void)
{
    outbox_test_set("currency", "SEK");
    outbox_test_set("empty", "");
    outbox_test_set_secret("token", "s3cret");
    OUTBOX_CHECK(delivered("ReadsSettings", "").kind == OUTBOX_DONE);
}

static void lines_below_the_hosts_level_are_not_written(void)
{
    outbox_test_host.max_level = OUTBOX_INFO;
    OUTBOX_CHECK(delivered("Logs", "").kind == OUTBOX_DONE);
    OUTBOX_CHECK(outbox_test_host.line_count == 3);
    OUTBOX_CHECK_TEXT(outbox_test_host.lines[0], "order 42 placed");
    OUTBOX_CHECK(outbox_test_host.lines[1].length == 1999);
    OUTBOX_CHECK_TEXT(outbox_test_host.lines[2], "broken ? text");
}

static void what_is_not_granted_is_a_retryable_failure(const char *event_type)
{
    static const outbox_refusal not_granted = { OUTBOX_NOT_GRANTED, { "add `emit = true`", 17 } };
    outbox_test_host.refusal = &not_granted;
    outbox_answer answer = delivered(event_type, "x");
    OUTBOX_CHECK(answer.kind == OUTBOX_RETRYABLE);
    OUTBOX_CHECK_TEXT(answer.code, "not-granted");
    OUTBOX_CHECK_TEXT(answer.message, "add `emit = true`");
    outbox_test_host.refusal = NULL;
}

static void an_invalid_request_is_unrecoverable(void)
{
    static const outbox_refusal invalid = { OUTBOX_INVALID, { "the event type is empty", 23 } };
    outbox_test_host.refusal = &invalid;
    outbox_answer answer = delivered("Emits", "");
    OUTBOX_CHECK(answer.kind == OUTBOX_UNRECOVERABLE);
    OUTBOX_CHECK_TEXT(answer.code, "invalid");
    OUTBOX_CHECK_TEXT(answer.message, "the event type is empty");
    outbox_test_host.refusal = NULL;
}

static void events_are_emitted_with_their_defaults(void)
{
    outbox_event event = outbox_test_event("Thing", "Emits", "");
    event.aggregate_id = outbox_text_of("42");
    OUTBOX_CHECK(outbox_test_deliver(&event).kind == OUTBOX_DONE);

    OUTBOX_CHECK(outbox_test_host.emit_count == 2);
    const outbox_envelope *first = &outbox_test_host.emitted[0];
    OUTBOX_CHECK_TEXT(outbox_text_of(first->aggregate_type), "Payment");
    OUTBOX_CHECK_TEXT(outbox_text_of(first->event_type), "PaymentRequested");
    OUTBOX_CHECK_TEXT(first->aggregate_id, "42");
    OUTBOX_CHECK_TEXT(first->tenant_id, NULL);
    OUTBOX_CHECK_TEXT(outbox_text_of(first->content_type), "application/json");
    OUTBOX_CHECK_TEXT(first->payload, "{\"order_id\": 42}");
    OUTBOX_CHECK_TEXT(outbox_find(first->headers, "cause"), "01JD7ZS0000000000000000000");
    OUTBOX_CHECK_TEXT(first->id, NULL);
    OUTBOX_CHECK(first->deliver_after_ms == 250 && first->expires_after_ms == 0);
    OUTBOX_CHECK_TEXT(outbox_test_host.emitted[1].id, "mine");
}

static void messages_are_published(void)
{
    outbox_event event = outbox_test_event("Thing", "Publishes", "body");
    event.aggregate_id = outbox_text_of("42");
    OUTBOX_CHECK(outbox_test_deliver(&event).kind == OUTBOX_DONE);

    OUTBOX_CHECK(outbox_test_host.publish_count == 3);
    OUTBOX_CHECK_TEXT(outbox_test_host.sinks[2], "orders");
    OUTBOX_CHECK_TEXT(outbox_test_host.published[0].key, "42");
    OUTBOX_CHECK_TEXT(outbox_test_host.published[0].body, "body");
    OUTBOX_CHECK_TEXT(outbox_text_of(outbox_test_host.published[1].subject), "orders.placed");
    OUTBOX_CHECK_TEXT(outbox_text_of(outbox_test_host.published[2].subject), "");
    OUTBOX_CHECK_TEXT(outbox_text_of(outbox_test_host.published[2].content_type), "text/plain");
}

static void a_request_is_made_with_its_defaults_and_answered(void)
{
    outbox_pair type = outbox_pair_of("Content-Type", "text/plain");
    outbox_test_respond((outbox_response){ .status = 200, .headers = { &type, 1 }, .body = outbox_text_of("yes") });
    outbox_answer answer = delivered("Asked", "{}");

    OUTBOX_CHECK_TEXT(answer.message, "text/plain: yes");
    const outbox_request *request = &outbox_test_host.requests[0];
    OUTBOX_CHECK(outbox_test_host.request_count == 1 && strcmp(request->method, "POST") == 0 && request->timeout_ms == 4500);
    OUTBOX_CHECK_TEXT(request->url, "https://api.example.com/orders?key=secret");
    OUTBOX_CHECK_TEXT(request->body, "{}");
    OUTBOX_CHECK_TEXT(outbox_find(request->headers, "X-Event"), "01JD7ZS0000000000000000000");
    OUTBOX_CHECK_TEXT(outbox_find(request->headers, "content-type"), "application/json");
    outbox_test_reset();
}

static void a_status_that_passes_is_retryable_and_another_is_not(void)
{
    static const uint16_t passing[] = { 408, 425, 429, 500, 503 }, lasting[] = { 301, 400, 404, 422 };
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++) {
        outbox_test_respond((outbox_response){ .status = passing[i] });
        OUTBOX_CHECK(delivered("Asked", "").kind == OUTBOX_RETRYABLE);
    }
    for (size_t i = 0; i < sizeof lasting / sizeof *lasting; i++) {
        outbox_test_respond((outbox_response){ .status = lasting[i] });
        OUTBOX_CHECK(delivered("Asked", "").kind == OUTBOX_UNRECOVERABLE);
    }
    outbox_pair wait = outbox_pair_of("Retry-After", "3");
    outbox_test_respond((outbox_response){ .status = 429, .headers = { &wait, 1 } });
    outbox_answer answer = delivered("Asked", "");
    OUTBOX_CHECK(answer.kind == OUTBOX_RETRYABLE_AFTER && answer.after_ms == 3000);
    OUTBOX_CHECK_TEXT(answer.code, "http-429");
    OUTBOX_CHECK_TEXT(answer.message, "GET https://api.example.com/orders was answered with the status 429");
    outbox_test_reset();
}

static void a_request_that_no_test_expects_is_refused(void)
{
    outbox_answer answer = delivered("Asked", "");
    OUTBOX_CHECK(answer.kind == OUTBOX_RETRYABLE);
    OUTBOX_CHECK_TEXT(answer.code, "unavailable");
}

static void the_plugin_looks_at_its_settings(void)
{
    OUTBOX_CHECK(!outbox_test_check_settings().bytes);
    outbox_test_set("color", "none");
    OUTBOX_CHECK_TEXT(outbox_test_check_settings(), "`color` must be a color");
    outbox_test_reset();
}

static void neighbours_of_one_route_go_together_and_the_others_alone(void)
{
    const char *types[] = { "Fails", "Fails", "Fails", "Dies", "Fails", "Waits", "Nothing" };
    outbox_event events[7];
    outbox_answer answers[7];
    for (size_t i = 0; i < 7; i++) {
        events[i] = outbox_test_event("Thing", types[i], "x");
        events[i].id = outbox_text_of(i == 2 ? "the third" : "another");
    }

    outbox_test_deliver_all(events, 7, answers);

    OUTBOX_CHECK(answers[0].kind == OUTBOX_DONE && answers[2].kind == OUTBOX_DONE);
    OUTBOX_CHECK(answers[1].kind == OUTBOX_RETRYABLE);
    OUTBOX_CHECK_TEXT(answers[1].message, "1 of 3");
    OUTBOX_CHECK_TEXT(answers[1].code, "odd");
    OUTBOX_CHECK(answers[3].kind == OUTBOX_DEAD);
    OUTBOX_CHECK_TEXT(answers[3].message, "cannot read x");
    OUTBOX_CHECK(answers[4].kind == OUTBOX_DONE && answers[5].kind == OUTBOX_DONE);
    OUTBOX_CHECK(answers[6].kind == OUTBOX_UNRECOVERABLE);
    OUTBOX_CHECK_TEXT(answers[6].message, "this plugin does not answer Thing/Nothing");
    OUTBOX_CHECK(outbox_test_host.publish_count == 4);
    OUTBOX_CHECK_TEXT(outbox_test_host.published[1].body, "2 of 3");
    OUTBOX_CHECK_TEXT(outbox_find(outbox_test_host.published[1].attributes, "event-id"), "the third");
    OUTBOX_CHECK_TEXT(outbox_test_host.published[2].body, "0 of 1");

    outbox_event forgotten = outbox_test_event("Thing", "Fails", "nothing");
    outbox_test_deliver_all(&forgotten, 1, answers);
    OUTBOX_CHECK(answers[0].kind == OUTBOX_RETRYABLE);
    OUTBOX_CHECK_TEXT(answers[0].message, "the function of this batch gave it no answer");

    outbox_test_deliver_all(NULL, 0, NULL);
    OUTBOX_CHECK(outbox_test_host.publish_count == 0);
    OUTBOX_CHECK(delivered("Fails", "later").kind == OUTBOX_RETRYABLE_AFTER); /* alone, by its own function */
}

static void state_is_kept(void)
{
    outbox_test_set_state("count", "0");
    OUTBOX_CHECK(delivered("Counts", "").kind == OUTBOX_DONE);
    OUTBOX_CHECK(delivered("Counts", "").kind == OUTBOX_DONE);
    OUTBOX_CHECK_TEXT(outbox_test_state_of("count"), "0+1+1");
    OUTBOX_CHECK_TEXT(outbox_test_state_of("gone"), NULL);
}

int main(void)
{
    the_listener_sees_the_whole_event();
    every_answer_arrives();
    text_that_is_not_utf8_never_reaches_the_host();
    an_unknown_route_is_unrecoverable();
    settings_are_read();
    lines_below_the_hosts_level_are_not_written();
    a_request_is_made_with_its_defaults_and_answered();
    a_status_that_passes_is_retryable_and_another_is_not();
    a_request_that_no_test_expects_is_refused();
    the_plugin_looks_at_its_settings();
    what_is_not_granted_is_a_retryable_failure("Asked");
    what_is_not_granted_is_a_retryable_failure("Emits");
    what_is_not_granted_is_a_retryable_failure("Publishes");
    what_is_not_granted_is_a_retryable_failure("PublishesMany");
    what_is_not_granted_is_a_retryable_failure("Counts");
    an_invalid_request_is_unrecoverable();
    events_are_emitted_with_their_defaults();
    messages_are_published();
    neighbours_of_one_route_go_together_and_the_others_alone();
    state_is_kept();
    OUTBOX_CHECK(delivered("Allocates", "").kind == OUTBOX_DONE);
    OUTBOX_CHECK(delivered("Allocates", "").kind == OUTBOX_DONE);
    return outbox_test_end();
}
