/* Answers {{aggregate_type}}/{{event_type}}. */
#include "outbox.h"

static outbox_answer on_event(const outbox_event *event)
{
    if (event->payload.length == 0)
        return outbox_dead("the payload is empty");
    int shown = event->payload.length < 200 ? (int)event->payload.length : 200;
    outbox_log_with(OUTBOX_INFO, OUTBOX_PAIRS(outbox_pair_of("attempt", "%u", event->attempt)), "%.*s: %.*s",
        OUTBOX_ARG(event->event_type), shown, event->payload.bytes);

    /*
     * Where the manifest names an endpoint, it gets the event. It may get it again: the host sends the event's id along as the
     * key against doing a thing twice.
     */
    outbox_text endpoint = outbox_setting("endpoint");
    if (!endpoint.bytes)
        return outbox_done();
    outbox_request request = { .url = endpoint, .content_type = event->content_type.bytes, .body = event->payload };
    outbox_response response;
    if (!outbox_http(&request, &response))
        return outbox_refused();
    if (!outbox_response_ok(&response))
        return outbox_http_failed(&request, &response);
    return outbox_done();
}

OUTBOX_PLUGIN("{{name}}", "0.1.0",
    { "{{aggregate_type}}", "{{event_type}}", on_event },
);
