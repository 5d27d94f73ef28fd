/* The stand-in for the host: what wit-bindgen's generated/listener.c does by calling the host is done here from memory. */
#include "outbox_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generated/listener.h"

void *cabi_realloc(void *old, size_t old_size, size_t align, size_t new_size);

outbox_test_state outbox_test_host = { .remaining_ms = 5000 };

/* ---- Memory: blocks that live until the next delivery, and values that live until the reset ------------------------------ */

struct block {
    struct block *next;
    max_align_t memory[];
};

static struct block *blocks;

static void *block_of(size_t size)
{
    struct block *block = calloc(1, sizeof *block + size + 1);
    if (!block)
        abort();
    block->next = blocks;
    blocks = block;
    return block->memory;
}

static void free_blocks(void)
{
    while (blocks) {
        struct block *next = blocks->next;
        free(blocks);
        blocks = next;
    }
}

static outbox_text copy_of(listener_string_t text)
{
    char *copy = block_of(text.len);
    if (text.len > 0)
        memcpy(copy, text.ptr, text.len);
    return (outbox_text){ copy, text.len };
}

static outbox_text copy_of_option(const listener_option_string_t *text)
{
    return text->is_some ? copy_of(text->val) : (outbox_text){ 0 };
}

static outbox_pairs copy_of_pairs(listener_list_tuple2_string_string_t pairs)
{
    outbox_pair *items = block_of(pairs.len * sizeof *items);
    for (size_t i = 0; i < pairs.len; i++)
        items[i] = (outbox_pair){ copy_of(pairs.ptr[i].f0), copy_of(pairs.ptr[i].f1) };
    return (outbox_pairs){ items, pairs.len };
}

/* A string as the host hands it over: in memory of the plugin. */
static listener_string_t hand_over(outbox_text text)
{
    uint8_t *copy = cabi_realloc(NULL, 0, 1, text.length);
    if (text.length > 0)
        memcpy(copy, text.bytes, text.length);
    return (listener_string_t){ copy, text.length };
}

static listener_option_string_t hand_over_option(outbox_text text)
{
    if (!text.bytes)
        return (listener_option_string_t){ .is_some = false };
    return (listener_option_string_t){ .is_some = true, .val = hand_over(text) };
}

static listener_list_tuple2_string_string_t hand_over_pairs(outbox_pairs pairs)
{
    listener_tuple2_string_string_t *items = cabi_realloc(NULL, 0, sizeof(void *), pairs.count * sizeof *items);
    for (size_t i = 0; i < pairs.count; i++)
        items[i] = (listener_tuple2_string_string_t){ hand_over(pairs.items[i].name), hand_over(pairs.items[i].value) };
    return (listener_list_tuple2_string_string_t){ items, pairs.count };
}

/* ---- Settings, secrets, state -------------------------------------------------------------------------------------------- */

struct table {
    size_t count;
    outbox_pair items[OUTBOX_TEST_MAX];
};

static struct table settings, secrets, state; /* of the state, the value is this table's own memory */

static outbox_pair *find(struct table *table, outbox_text key)
{
    for (size_t i = 0; i < table->count; i++)
        if (table->items[i].name.length == key.length && memcmp(table->items[i].name.bytes, key.bytes, key.length) == 0)
            return &table->items[i];
    return NULL;
}

static outbox_pair *find_or_add(struct table *table, outbox_text key)
{
    outbox_pair *item = find(table, key);
    if (item)
        return item;
    if (table->count == OUTBOX_TEST_MAX) {
        fprintf(stderr, "a test has more than %d keys\n", OUTBOX_TEST_MAX);
        abort();
    }
    item = &table->items[table->count++];
    *item = (outbox_pair){ .name = key };
    return item;
}

static char *own_copy(outbox_text text)
{
    char *copy = calloc(1, text.length + 1);
    if (!copy)
        abort();
    if (text.length > 0)
        memcpy(copy, text.bytes, text.length);
    return copy;
}

static void put_state(outbox_text key, outbox_text value)
{
    outbox_pair *item = find(&state, key);
    if (!item)
        item = find_or_add(&state, (outbox_text){ own_copy(key), key.length });
    free((char *)item->value.bytes);
    item->value = (outbox_text){ own_copy(value), value.length };
}

static void remove_state(outbox_text key)
{
    outbox_pair *item = find(&state, key);
    if (!item)
        return;
    free((char *)item->name.bytes);
    free((char *)item->value.bytes);
    *item = state.items[--state.count];
}

static outbox_response responses[OUTBOX_TEST_MAX];
static size_t response_count, responded;

void outbox_test_respond(outbox_response response)
{
    if (response_count == OUTBOX_TEST_MAX) {
        fprintf(stderr, "a test scripts more than %d responses\n", OUTBOX_TEST_MAX);
        abort();
    }
    responses[response_count++] = response;
}

void outbox_test_reset(void)
{
    while (state.count > 0)
        remove_state(state.items[0].name);
    settings.count = secrets.count = 0;
    response_count = responded = 0;
    free_blocks();
    outbox_test_host = (outbox_test_state){ .remaining_ms = 5000 };
}

void outbox_test_set(const char *key, const char *value)
{
    find_or_add(&settings, outbox_text_of(key))->value = outbox_text_of(value);
}

void outbox_test_set_secret(const char *key, const char *value)
{
    find_or_add(&secrets, outbox_text_of(key))->value = outbox_text_of(value);
}

void outbox_test_set_state(const char *key, const char *value)
{
    put_state(outbox_text_of(key), outbox_text_of(value));
}

outbox_text outbox_test_state_of(const char *key)
{
    outbox_pair *item = find(&state, outbox_text_of(key));
    return item ? item->value : (outbox_text){ 0 };
}

/* ---- The imports --------------------------------------------------------------------------------------------------------- */

static outbox_text view(listener_string_t text)
{
    return (outbox_text){ (const char *)text.ptr, text.len };
}

bool outbox_listener_log_max_level(outbox_listener_log_level_t *level)
{
    *level = (outbox_listener_log_level_t)outbox_test_host.max_level;
    return true;
}

void outbox_listener_log_write(outbox_listener_log_level_t level, listener_string_t *message,
    listener_list_tuple2_string_string_t *fields)
{
    static const char *const names[] = { "TRACE", "DEBUG", "INFO", "WARN", "ERROR" };

    fprintf(stderr, "%s: %.*s", names[level], OUTBOX_ARG(view(*message)));
    for (size_t i = 0; i < fields->len; i++)
        fprintf(stderr, " %.*s=%.*s", OUTBOX_ARG(view(fields->ptr[i].f0)), OUTBOX_ARG(view(fields->ptr[i].f1)));
    fprintf(stderr, "\n");

    size_t at = outbox_test_host.line_count++;
    if (at < OUTBOX_TEST_MAX)
        outbox_test_host.lines[at] = copy_of(*message);
}

static bool look_up(struct table *table, listener_string_t *key, listener_string_t *value)
{
    outbox_pair *item = find(table, view(*key));
    if (item)
        *value = hand_over(item->value);
    return item != NULL;
}

bool outbox_listener_settings_get(listener_string_t *key, listener_string_t *value)
{
    return look_up(&settings, key, value);
}

bool outbox_listener_settings_secret(listener_string_t *key, listener_string_t *value)
{
    return look_up(&secrets, key, value);
}

void outbox_listener_settings_get_all(listener_list_tuple2_string_string_t *all)
{
    *all = hand_over_pairs((outbox_pairs){ settings.items, settings.count });
}

uint32_t outbox_listener_call_remaining_ms(void)
{
    return outbox_test_host.remaining_ms;
}

/* Whether the request may go on; if not, the refusal is handed over. */
static bool granted(outbox_listener_types_refusal_t *refused)
{
    const outbox_refusal *refusal = outbox_test_host.refusal;
    if (refusal) {
        refused->kind = (outbox_listener_types_refusal_kind_t)refusal->kind;
        refused->message = hand_over(refusal->message);
    }
    return !refusal;
}

bool outbox_listener_emit_emit(outbox_listener_emit_envelope_t *event, listener_string_t *id, outbox_listener_emit_refusal_t *refused)
{
    if (!granted(refused))
        return false;
    size_t at = outbox_test_host.emit_count++;
    if (at < OUTBOX_TEST_MAX)
        outbox_test_host.emitted[at] = (outbox_envelope){
            .aggregate_type = copy_of(event->route.aggregate_type).bytes,
            .event_type = copy_of(event->route.event_type).bytes,
            .aggregate_id = copy_of_option(&event->aggregate_id),
            .tenant_id = copy_of_option(&event->tenant_id),
            .content_type = copy_of(event->content_type).bytes,
            .payload = copy_of((listener_string_t){ event->payload.ptr, event->payload.len }),
            .headers = copy_of_pairs(event->headers),
            .id = copy_of_option(&event->id),
            .deliver_after_ms = event->deliver_after_ms.is_some ? event->deliver_after_ms.val : 0,
            .expires_after_ms = event->expires_after_ms.is_some ? event->expires_after_ms.val : 0,
            .attributes = copy_of_pairs(event->attributes),
        };
    char made[32];
    snprintf(made, sizeof made, "emitted-%zu", at + 1);
    *id = hand_over(event->id.is_some ? view(event->id.val) : outbox_text_of(made));
    return true;
}

bool outbox_listener_publish_send(listener_string_t *sink, outbox_listener_publish_message_t *message,
    outbox_listener_publish_refusal_t *refused)
{
    if (!granted(refused))
        return false;
    size_t at = outbox_test_host.publish_count++;
    if (at < OUTBOX_TEST_MAX) {
        outbox_test_host.sinks[at] = copy_of(*sink);
        outbox_test_host.published[at] = (outbox_message){
            .subject = copy_of(message->subject).bytes,
            .key = copy_of_option(&message->key),
            .content_type = copy_of(message->content_type).bytes,
            .body = copy_of((listener_string_t){ message->body.ptr, message->body.len }),
            .headers = copy_of_pairs(message->headers),
            .attributes = copy_of_pairs(message->attributes),
        };
    }
    return true;
}

void outbox_listener_publish_send_all(listener_string_t *sink, outbox_listener_publish_list_message_t *messages,
    outbox_listener_publish_list_result_void_refusal_t *answers)
{
    answers->len = messages->len;
    answers->ptr = cabi_realloc(NULL, 0, sizeof(void *), messages->len * sizeof *answers->ptr);
    for (size_t i = 0; i < messages->len; i++)
        answers->ptr[i].is_err = !outbox_listener_publish_send(sink, &messages->ptr[i], &answers->ptr[i].val.err);
}

bool outbox_listener_http_send(outbox_listener_http_request_t *request, outbox_listener_http_response_t *answered,
    outbox_listener_http_refusal_t *refused)
{
    if (!granted(refused))
        return false;
    size_t at = outbox_test_host.request_count++;
    if (at < OUTBOX_TEST_MAX)
        outbox_test_host.requests[at] = (outbox_request){
            .method = copy_of(request->method).bytes,
            .url = copy_of(request->url),
            .headers = copy_of_pairs(request->headers),
            .body = copy_of((listener_string_t){ request->body.ptr, request->body.len }),
            .timeout_ms = request->timeout_ms.is_some ? request->timeout_ms.val : 0,
            .attributes = copy_of_pairs(request->attributes),
        };
    if (responded == response_count) {
        refused->kind = OUTBOX_LISTENER_TYPES_REFUSAL_KIND_UNAVAILABLE;
        refused->message = hand_over(outbox_text_of("a test says what answers a request, with outbox_test_respond"));
        return false;
    }
    outbox_response response = responses[responded++];
    listener_string_t body = hand_over(response.body);
    *answered = (outbox_listener_http_response_t){
        .status = response.status,
        .headers = hand_over_pairs(response.headers),
        .body = { body.ptr, body.len },
        .attributes = hand_over_pairs((outbox_pairs){ 0 }),
    };
    return true;
}

bool outbox_listener_state_get(listener_string_t *key, listener_option_list_u8_t *value, outbox_listener_state_refusal_t *refused)
{
    if (!granted(refused))
        return false;
    outbox_pair *item = find(&state, view(*key));
    *value = (listener_option_list_u8_t){ .is_some = item != NULL };
    if (item) {
        listener_string_t bytes = hand_over(item->value);
        value->val = (listener_list_u8_t){ bytes.ptr, bytes.len };
    }
    return true;
}

bool outbox_listener_state_set(listener_string_t *key, listener_list_u8_t *value, outbox_listener_state_refusal_t *refused)
{
    if (!granted(refused))
        return false;
    put_state(view(*key), (outbox_text){ (const char *)value->ptr, value->len });
    return true;
}

bool outbox_listener_state_delete(listener_string_t *key, outbox_listener_state_refusal_t *refused)
{
    if (!granted(refused))
        return false;
    remove_state(view(*key));
    return true;
}

/* ---- The exports: deliver, and free what the bindings would free --------------------------------------------------------- */

static void free_string(listener_string_t text)
{
    if (text.len > 0)
        free(text.ptr);
}

static void free_option(const listener_option_string_t *text)
{
    if (text->is_some)
        free_string(text->val);
}

static void free_pairs(listener_list_tuple2_string_string_t pairs)
{
    for (size_t i = 0; i < pairs.len; i++) {
        free_string(pairs.ptr[i].f0);
        free_string(pairs.ptr[i].f1);
    }
    if (pairs.len > 0)
        free(pairs.ptr);
}

void exports_outbox_listener_handler_event_free(exports_outbox_listener_handler_event_t *event)
{
    free_string(event->id);
    free_string(event->delivery_id);
    free_string(event->route.aggregate_type);
    free_string(event->route.event_type);
    free_option(&event->aggregate_id);
    free_option(&event->tenant_id);
    free_string(event->content_type);
    free_string((listener_string_t){ event->payload.ptr, event->payload.len });
    free_pairs(event->headers);
    free_pairs(event->attributes);
}

void exports_outbox_listener_batch_handler_list_event_free(exports_outbox_listener_batch_handler_list_event_t *events)
{
    for (size_t i = 0; i < events->len; i++)
        exports_outbox_listener_handler_event_free(&events->ptr[i]);
    if (events->len > 0)
        free(events->ptr);
}

outbox_text outbox_test_check_settings(void)
{
    listener_string_t complaint;
    free_blocks();
    if (exports_outbox_listener_settings_check_check_settings(&complaint))
        return (outbox_text){ 0 };
    outbox_text copy = copy_of(complaint);
    free_string(complaint);
    return copy;
}

outbox_event outbox_test_event(const char *aggregate_type, const char *event_type, const char *payload)
{
    return (outbox_event){
        .id = outbox_text_of("01JD7ZS0000000000000000000"),
        .delivery_id = outbox_text_of("01JD7ZS0000000000000000000:1"),
        .aggregate_type = outbox_text_of(aggregate_type),
        .event_type = outbox_text_of(event_type),
        .occurred_at_ms = 1732000000000,
        .attempt = 1,
        .content_type = outbox_text_of("application/json"),
        .payload = outbox_text_of(payload),
    };
}

static void begin_delivery(void)
{
    free_blocks();
    outbox_test_host.emit_count = outbox_test_host.publish_count = outbox_test_host.line_count = 0;
    outbox_test_host.request_count = 0;
}

static exports_outbox_listener_handler_event_t hand_over_event(const outbox_event *event)
{
    listener_string_t payload = hand_over(event->payload);
    return (exports_outbox_listener_handler_event_t){
        .id = hand_over(event->id),
        .delivery_id = hand_over(event->delivery_id),
        .route = { hand_over(event->aggregate_type), hand_over(event->event_type) },
        .aggregate_id = hand_over_option(event->aggregate_id),
        .tenant_id = hand_over_option(event->tenant_id),
        .sequence = event->sequence,
        .occurred_at_ms = event->occurred_at_ms,
        .attempt = event->attempt,
        .content_type = hand_over(event->content_type),
        .payload = { payload.ptr, payload.len },
        .headers = hand_over_pairs(event->headers),
        .attributes = hand_over_pairs(event->attributes),
    };
}

/* The answer as the host reads it; frees what the bindings would. */
static outbox_answer take_result(const exports_outbox_listener_handler_dispatch_result_t *result)
{
    static const outbox_answer_kind kinds[] = { OUTBOX_DONE, OUTBOX_RETRY_AFTER, OUTBOX_DEAD };

    outbox_answer answer = { .kind = kinds[result->tag] };
    if (answer.kind == OUTBOX_RETRY_AFTER)
        answer.after_ms = result->val.retry_after;
    if (answer.kind == OUTBOX_DEAD) {
        answer.message = copy_of_option(&result->val.dead);
        free_option(&result->val.dead);
    }
    return answer;
}

static outbox_answer take_failure(const exports_outbox_listener_handler_failure_t *failure)
{
    static const outbox_answer_kind kinds[] = { OUTBOX_RETRYABLE, OUTBOX_RETRYABLE_AFTER, OUTBOX_UNRECOVERABLE };

    outbox_answer answer = {
        .kind = kinds[failure->kind.tag],
        .message = copy_of(failure->message),
        .code = copy_of_option(&failure->code),
        .details = copy_of_pairs(failure->attributes),
    };
    if (answer.kind == OUTBOX_RETRYABLE_AFTER)
        answer.after_ms = failure->kind.val.retryable_after;
    free_string(failure->message);
    free_option(&failure->code);
    free_pairs(failure->attributes);
    return answer;
}

outbox_answer outbox_test_deliver(const outbox_event *event)
{
    begin_delivery();
    exports_outbox_listener_handler_event_t given = hand_over_event(event);
    exports_outbox_listener_handler_dispatch_result_t result;
    exports_outbox_listener_handler_failure_t failure;
    bool ok = exports_outbox_listener_handler_on_event(&given, &result, &failure);
    return ok ? take_result(&result) : take_failure(&failure);
}

extern const outbox_batches *outbox_batches_of_call;

void outbox_test_deliver_batches(const outbox_batches *batches, const outbox_event *events, size_t count, outbox_answer *answers)
{
    begin_delivery();
    exports_outbox_listener_batch_handler_list_event_t given = {
        cabi_realloc(NULL, 0, sizeof(uint64_t), count * sizeof *given.ptr), count
    };
    for (size_t i = 0; i < count; i++)
        given.ptr[i] = hand_over_event(&events[i]);
    exports_outbox_listener_batch_handler_list_result_dispatch_result_failure_t results;
    outbox_batches_of_call = batches;
    exports_outbox_listener_batch_handler_on_events(&given, &results);
    for (size_t i = 0; i < count; i++)
        answers[i] = results.ptr[i].is_err ? take_failure(&results.ptr[i].val.err) : take_result(&results.ptr[i].val.ok);
    if (count > 0)
        free(results.ptr);
}

/* ---- Checks -------------------------------------------------------------------------------------------------------------- */

static int passed, failed;

void outbox_test_check(bool holds, const char *condition, const char *file, int line)
{
    if (holds) {
        passed++;
        return;
    }
    failed++;
    printf("%s:%d: does not hold: %s\n", file, line, condition);
}

void outbox_test_check_text(outbox_text text, const char *expected, const char *expression, const char *file, int line)
{
    if (outbox_text_is(text, expected) || (!text.bytes && !expected)) {
        passed++;
        return;
    }
    failed++;
    printf("%s:%d: %s is %s%.*s%s; it should be \"%s\"\n", file, line, expression, text.bytes ? "\"" : "absent",
        OUTBOX_ARG(text), text.bytes ? "\"" : "", expected ? expected : "(absent)");
}

int outbox_test_end(void)
{
    outbox_test_reset();
    printf("%d passed, %d failed\n", passed, failed);
    return failed == 0 ? 0 : 1;
}
