/*
 * The SDK between a plugin's functions (outbox.h) and the bindings that wit-bindgen makes of the contract (generated/listener.h).
 *
 * Everything here also compiles natively: outbox_test.c takes the place of the host then, so a plugin's tests run this very code.
 */
#include "outbox.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generated/listener.h"

/*
 * How the host allocates what it hands over: like the one that wit-bindgen writes, which this replaces, but with one byte more that
 * holds NUL. So every text of the host can be printed with "%s" without a copy.
 */
void *cabi_realloc(void *old, size_t old_size, size_t align, size_t new_size);

#ifdef __wasm__
#include "generated/listener.c" /* so a plugin compiles one file of the SDK, this one */
#endif

/* ---- Memory that lives as long as a call ----------------------------------------------------------------------------------- */

/* Texts are cut from chunks. The first chunk is kept between calls, so most calls allocate nothing. */
struct chunk {
    struct chunk *next;
    size_t size;
    size_t used;
    max_align_t memory[];
};

/* A block that the host had allocated through cabi_realloc, to be freed when the call ends. */
struct kept {
    struct kept *next;
    void *block;
};

enum { FIRST_CHUNK = 4096, MAX_DELAY_MS = 24 * 60 * 60 * 1000 };

static struct chunk *newest_chunk;
static struct kept *kept_blocks;

static bool has_refusal;
static outbox_refusal refusal;

static enum { UNASKED, NO_LINES, LINES } log_state;
static outbox_listener_log_level_t log_max_level;

#ifdef __wasm__
__attribute__((__export_name__("cabi_realloc")))
#endif
void *cabi_realloc(void *old, size_t old_size, size_t align, size_t new_size)
{
    (void)old_size;
    if (new_size == 0)
        return (void *)align; /* the bindings free nothing of size 0 */
    char *block = realloc(old, new_size + 1);
    if (!block)
        abort();
    block[new_size] = 0;
    return block;
}

static struct chunk *new_chunk(size_t size)
{
    struct chunk *chunk = malloc(sizeof(struct chunk) + size);
    if (!chunk)
        abort();
    *chunk = (struct chunk){ .next = newest_chunk, .size = size };
    return newest_chunk = chunk;
}

void *outbox_alloc(size_t size)
{
    const size_t grain = sizeof(max_align_t);
    if (size > SIZE_MAX / 2)
        abort();
    size = (size + grain - 1) / grain * grain;

    struct chunk *chunk = newest_chunk;
    if (!chunk || chunk->size - chunk->used < size)
        chunk = new_chunk(size > FIRST_CHUNK ? size : FIRST_CHUNK);
    void *memory = (char *)chunk->memory + chunk->used;
    chunk->used += size;
    return memset(memory, 0, size);
}

/* Makes the block live until the call ends. */
static void keep(void *block)
{
    struct kept *kept = outbox_alloc(sizeof *kept);
    *kept = (struct kept){ .next = kept_blocks, .block = block };
    kept_blocks = kept;
}

static void end_call(void)
{
    for (; kept_blocks; kept_blocks = kept_blocks->next)
        free(kept_blocks->block);
    /* The oldest chunk stays for the next call, unless it was made for something large. */
    while (newest_chunk && (newest_chunk->next || newest_chunk->size > FIRST_CHUNK)) {
        struct chunk *next = newest_chunk->next;
        free(newest_chunk);
        newest_chunk = next;
    }
    if (newest_chunk)
        newest_chunk->used = 0;
    has_refusal = false;
    log_state = UNASKED;
}

/* ---- Text -------------------------------------------------------------------------------------------------------------------- */

outbox_text outbox_text_of(const char *string)
{
    return (outbox_text){ string, string ? strlen(string) : 0 };
}

bool outbox_text_is(outbox_text text, const char *string)
{
    return text.bytes && string && text.length == strlen(string) && memcmp(text.bytes, string, text.length) == 0;
}

static outbox_text format_text(const char *format, va_list values)
{
    va_list again;
    va_copy(again, values);
    int length = vsnprintf(NULL, 0, format, values);
    if (length < 0)
        length = 0; /* a format that printf itself refuses */
    char *bytes = outbox_alloc((size_t)length + 1);
    if (length > 0)
        vsnprintf(bytes, (size_t)length + 1, format, again);
    va_end(again);
    return (outbox_text){ bytes, (size_t)length };
}

outbox_text outbox_format(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    outbox_text text = format_text(format, values);
    va_end(values);
    return text;
}

outbox_pair outbox_pair_of(const char *name, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    outbox_pair pair = { outbox_text_of(name), format_text(format, values) };
    va_end(values);
    return pair;
}

outbox_text outbox_find(outbox_pairs pairs, const char *name)
{
    for (size_t i = 0; i < pairs.count; i++)
        if (outbox_text_is(pairs.items[i].name, name))
            return pairs.items[i].value;
    return (outbox_text){ 0 };
}

/* The names of HTTP headers are the same in any case of their letters. */
static outbox_text find_header(outbox_pairs headers, const char *name)
{
    for (size_t i = 0; i < headers.count; i++) {
        outbox_text found = headers.items[i].name;
        size_t at = 0;
        while (at < found.length && name[at] && tolower((unsigned char)found.bytes[at]) == tolower((unsigned char)name[at]))
            at++;
        if (at == found.length && !name[at])
            return headers.items[i].value;
    }
    return (outbox_text){ 0 };
}

outbox_text outbox_header(const outbox_event *event, const char *name)
{
    return outbox_find(event->headers, name);
}

outbox_text outbox_attribute(const outbox_event *event, const char *key)
{
    return outbox_find(event->attributes, key);
}

/* The length of the UTF-8 sequence that these bytes begin with; 0 when they begin with none. */
static size_t utf8_sequence(const unsigned char *bytes, size_t length)
{
    if (bytes[0] < 0x80)
        return 1;
    size_t size = bytes[0] >= 0xF0 ? 4 : bytes[0] >= 0xE0 ? 3 : 2;
    if (bytes[0] < 0xC2 || bytes[0] > 0xF4 || length < size)
        return 0;
    for (size_t i = 1; i < size; i++)
        if ((bytes[i] & 0xC0) != 0x80)
            return 0;
    /* Neither longer than need be, nor a surrogate, nor beyond U+10FFFF. */
    bool wrong = (bytes[0] == 0xE0 && bytes[1] < 0xA0) || (bytes[0] == 0xED && bytes[1] > 0x9F)
        || (bytes[0] == 0xF0 && bytes[1] < 0x90) || (bytes[0] == 0xF4 && bytes[1] > 0x8F);
    return wrong ? 0 : size;
}

static size_t valid_prefix(const char *bytes, size_t length)
{
    size_t at = 0, size;
    while (at < length && (size = utf8_sequence((const unsigned char *)bytes + at, length - at)) > 0)
        at += size;
    return at;
}

/*
 * Puts a question mark in the place of every byte that is not UTF-8. The host ends a call with a trap when a string is not
 * UTF-8, and a listener that quotes a broken payload in its reason should not end like that.
 */
static void repair(char *bytes, size_t length)
{
    for (size_t at = valid_prefix(bytes, length); at < length; at += valid_prefix(bytes + at, length - at))
        bytes[at++] = '?';
}

/* ---- What the host hands over, seen by the author --------------------------------------------------------------------------- */

static outbox_text see(listener_string_t given)
{
    return (outbox_text){ given.len ? (const char *)given.ptr : "", given.len };
}

static outbox_text see_option(const listener_option_string_t *given)
{
    return given->is_some ? see(given->val) : (outbox_text){ 0 };
}

static outbox_pairs see_pairs(listener_list_tuple2_string_string_t given)
{
    if (given.len == 0)
        return (outbox_pairs){ 0 };
    outbox_pair *items = outbox_alloc(given.len * sizeof *items);
    for (size_t i = 0; i < given.len; i++)
        items[i] = (outbox_pair){ see(given.ptr[i].f0), see(given.ptr[i].f1) };
    return (outbox_pairs){ items, given.len };
}

/* Takes over a string that is the result of an import. */
static outbox_text take(listener_string_t given)
{
    if (given.len > 0)
        keep(given.ptr);
    return see(given);
}

static outbox_pairs take_pairs(listener_list_tuple2_string_string_t given)
{
    outbox_pairs pairs = see_pairs(given);
    for (size_t i = 0; i < given.len; i++) {
        take(given.ptr[i].f0);
        take(given.ptr[i].f1);
    }
    if (given.len > 0)
        keep(given.ptr);
    return pairs;
}

static bool refuse(const outbox_listener_types_refusal_t *given)
{
    has_refusal = true;
    refusal = (outbox_refusal){ (outbox_refusal_kind)given->kind, take(given->message) };
    return false;
}

/* ---- What the author hands over, as the host takes it ------------------------------------------------------------------------ */

/* For the argument of an import, which the host only reads. */
static listener_string_t lend(outbox_text text)
{
    if (valid_prefix(text.bytes, text.length) < text.length) {
        char *copy = memcpy(outbox_alloc(text.length), text.bytes, text.length);
        repair(copy, text.length);
        text.bytes = copy;
    }
    return (listener_string_t){ (uint8_t *)text.bytes, text.length };
}

static listener_string_t lend_string(const char *string, const char *otherwise)
{
    return lend(outbox_text_of(string ? string : otherwise));
}

static listener_option_string_t lend_option(outbox_text text)
{
    if (!text.bytes)
        return (listener_option_string_t){ .is_some = false };
    return (listener_option_string_t){ .is_some = true, .val = lend(text) };
}

static listener_list_u8_t lend_bytes(outbox_text bytes)
{
    return (listener_list_u8_t){ (uint8_t *)bytes.bytes, bytes.length };
}

static listener_list_tuple2_string_string_t lend_pairs(outbox_pairs pairs)
{
    listener_tuple2_string_string_t *items = NULL;
    if (pairs.count > 0)
        items = outbox_alloc(pairs.count * sizeof *items);
    for (size_t i = 0; i < pairs.count; i++)
        items[i] = (listener_tuple2_string_string_t){ lend(pairs.items[i].name), lend(pairs.items[i].value) };
    return (listener_list_tuple2_string_string_t){ items, pairs.count };
}

static listener_option_u32_t lend_delay(uint32_t delay_ms)
{
    return (listener_option_u32_t){ .is_some = delay_ms > 0, .val = delay_ms };
}

/* For the result of an export, which the bindings free after the host has read it. */
static listener_string_t give(outbox_text text)
{
    char *copy = cabi_realloc(NULL, 0, 1, text.length);
    if (text.length > 0) {
        memcpy(copy, text.bytes, text.length);
        repair(copy, text.length);
    }
    return (listener_string_t){ (uint8_t *)copy, text.length };
}

static listener_option_string_t give_option(outbox_text text)
{
    if (text.length == 0)
        return (listener_option_string_t){ .is_some = false };
    return (listener_option_string_t){ .is_some = true, .val = give(text) };
}

static listener_list_tuple2_string_string_t give_pairs(outbox_pairs pairs)
{
    listener_tuple2_string_string_t *items = cabi_realloc(NULL, 0, sizeof(void *), pairs.count * sizeof *items);
    for (size_t i = 0; i < pairs.count; i++)
        items[i] = (listener_tuple2_string_string_t){ give(pairs.items[i].name), give(pairs.items[i].value) };
    return (listener_list_tuple2_string_string_t){ items, pairs.count };
}

/* ---- Answers ----------------------------------------------------------------------------------------------------------------- */

static uint32_t within_a_day(uint32_t delay_ms)
{
    return delay_ms > MAX_DELAY_MS ? MAX_DELAY_MS : delay_ms;
}

outbox_answer outbox_done(void)
{
    return (outbox_answer){ .kind = OUTBOX_DONE };
}

outbox_answer outbox_retry_after(uint32_t delay_ms)
{
    return (outbox_answer){ .kind = OUTBOX_RETRY_AFTER, .after_ms = within_a_day(delay_ms) };
}

outbox_answer outbox_dead(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    outbox_answer answer = { .kind = OUTBOX_DEAD, .message = format_text(format, values) };
    va_end(values);
    return answer;
}

outbox_answer outbox_retryable(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    outbox_answer answer = { .kind = OUTBOX_RETRYABLE, .message = format_text(format, values) };
    va_end(values);
    return answer;
}

outbox_answer outbox_retryable_after(uint32_t delay_ms, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    outbox_answer answer = {
        .kind = OUTBOX_RETRYABLE_AFTER, .after_ms = within_a_day(delay_ms), .message = format_text(format, values)
    };
    va_end(values);
    return answer;
}

outbox_answer outbox_unrecoverable(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    outbox_answer answer = { .kind = OUTBOX_UNRECOVERABLE, .message = format_text(format, values) };
    va_end(values);
    return answer;
}

static bool is_failure(const outbox_answer *answer)
{
    return answer->kind == OUTBOX_RETRYABLE || answer->kind == OUTBOX_RETRYABLE_AFTER || answer->kind == OUTBOX_UNRECOVERABLE;
}

outbox_answer outbox_with_code(outbox_answer failure, const char *code)
{
    if (is_failure(&failure))
        failure.code = outbox_text_of(code);
    return failure;
}

outbox_answer outbox_with_detail(outbox_answer failure, const char *name, const char *format, ...)
{
    if (!is_failure(&failure))
        return failure;
    outbox_pairs before = failure.details;
    outbox_pair *items = outbox_alloc((before.count + 1) * sizeof *items);
    if (before.count > 0)
        memcpy(items, before.items, before.count * sizeof *items);
    va_list values;
    va_start(values, format);
    items[before.count] = (outbox_pair){ outbox_text_of(name), format_text(format, values) };
    va_end(values);
    failure.details = (outbox_pairs){ items, before.count + 1 };
    return failure;
}

outbox_refusal outbox_last_refusal(void)
{
    if (!has_refusal)
        return (outbox_refusal){ OUTBOX_UNAVAILABLE, outbox_text_of("the host has refused nothing in this call") };
    return refusal;
}

outbox_answer outbox_refused(void)
{
    static const char *const codes[] = { "not-granted", "invalid", "over-limit", "unavailable" };

    outbox_refusal why = outbox_last_refusal();
    outbox_answer answer = { .kind = why.kind == OUTBOX_INVALID ? OUTBOX_UNRECOVERABLE : OUTBOX_RETRYABLE, .message = why.message };
    return (size_t)why.kind < sizeof codes / sizeof codes[0] ? outbox_with_code(answer, codes[why.kind]) : answer;
}

/* ---- What the host asks ------------------------------------------------------------------------------------------------------ */

void exports_outbox_listener_handler_describe(exports_outbox_listener_handler_description_t *description)
{
    const outbox_plugin *plugin = &outbox_this_plugin;
    outbox_listener_types_route_t *routes = cabi_realloc(NULL, 0, sizeof(void *), plugin->route_count * sizeof *routes);
    for (size_t i = 0; i < plugin->route_count; i++)
        routes[i] = (outbox_listener_types_route_t){
            give(outbox_text_of(plugin->routes[i].aggregate_type)), give(outbox_text_of(plugin->routes[i].event_type))
        };
    *description = (exports_outbox_listener_handler_description_t){
        .name = give(outbox_text_of(plugin->name)),
        .version = give(outbox_text_of(plugin->version)),
        .routes = { routes, plugin->route_count },
        .attributes = give_pairs((outbox_pairs){ 0 }),
    };
}

bool exports_outbox_listener_settings_check_check_settings(listener_string_t *complaint)
{
    const char *wrong = outbox_this_plugin.check ? outbox_this_plugin.check() : NULL;
    if (wrong)
        *complaint = give(outbox_text_of(wrong));
    end_call();
    return !wrong;
}

static outbox_answer answer_to(const outbox_event *event)
{
    const outbox_plugin *plugin = &outbox_this_plugin;
    for (size_t i = 0; i < plugin->route_count; i++) {
        const outbox_route *route = &plugin->routes[i];
        if (outbox_text_is(event->aggregate_type, route->aggregate_type) && outbox_text_is(event->event_type, route->event_type))
            return route->listener(event);
    }
    return outbox_unrecoverable("this plugin does not answer %.*s/%.*s",
        OUTBOX_ARG(event->aggregate_type), OUTBOX_ARG(event->event_type));
}

/* True when the answer is a result, false when it is a failure. */
static bool give_answer(const outbox_answer *answer, exports_outbox_listener_handler_dispatch_result_t *result,
    exports_outbox_listener_handler_failure_t *failure)
{
    switch (answer->kind) {
    case OUTBOX_DONE:
        result->tag = OUTBOX_LISTENER_TYPES_DISPATCH_RESULT_DONE;
        return true;
    case OUTBOX_RETRY_AFTER:
        result->tag = OUTBOX_LISTENER_TYPES_DISPATCH_RESULT_RETRY_AFTER;
        result->val.retry_after = answer->after_ms;
        return true;
    case OUTBOX_DEAD:
        result->tag = OUTBOX_LISTENER_TYPES_DISPATCH_RESULT_DEAD;
        result->val.dead = give_option(answer->message);
        return true;
    case OUTBOX_RETRYABLE_AFTER:
        failure->kind.tag = OUTBOX_LISTENER_TYPES_FAILURE_KIND_RETRYABLE_AFTER;
        failure->kind.val.retryable_after = answer->after_ms;
        break;
    case OUTBOX_UNRECOVERABLE:
        failure->kind.tag = OUTBOX_LISTENER_TYPES_FAILURE_KIND_UNRECOVERABLE;
        break;
    default: /* also a kind that no function of this SDK makes: a retry loses nothing */
        failure->kind.tag = OUTBOX_LISTENER_TYPES_FAILURE_KIND_RETRYABLE;
    }
    failure->message = give(answer->message);
    failure->code = give_option(answer->code);
    failure->attributes = give_pairs(answer->details);
    return false;
}

static outbox_event see_event(const exports_outbox_listener_handler_event_t *given)
{
    return (outbox_event){
        .id = see(given->id),
        .delivery_id = see(given->delivery_id),
        .aggregate_type = see(given->route.aggregate_type),
        .event_type = see(given->route.event_type),
        .aggregate_id = see_option(&given->aggregate_id),
        .tenant_id = see_option(&given->tenant_id),
        .sequence = given->sequence,
        .occurred_at_ms = given->occurred_at_ms,
        .attempt = given->attempt,
        .content_type = see(given->content_type),
        .payload = see((listener_string_t){ given->payload.ptr, given->payload.len }),
        .headers = see_pairs(given->headers),
        .attributes = see_pairs(given->attributes),
    };
}

bool exports_outbox_listener_handler_on_event(exports_outbox_listener_handler_event_t *given,
    exports_outbox_listener_handler_dispatch_result_t *result, exports_outbox_listener_handler_failure_t *failure)
{
    outbox_event event = see_event(given);
    outbox_answer answer = answer_to(&event);
    bool ok = give_answer(&answer, result, failure);

    exports_outbox_listener_handler_event_free(given);
    end_call();
    return ok;
}

static bool same_text(outbox_text one, outbox_text other)
{
    return one.length == other.length && memcmp(one.bytes, other.bytes, one.length) == 0;
}

/* Only neighbours of one route go together: events of one aggregate may have different routes, and keep their order. */
static void answer_all(const outbox_batches *batches, const outbox_event *events, size_t count, outbox_answer *answers)
{
    for (size_t at = 0; at < count;) {
        const outbox_event *first = &events[at];
        size_t end = at + 1;
        while (end < count && same_text(events[end].aggregate_type, first->aggregate_type)
            && same_text(events[end].event_type, first->event_type))
            end++;

        const outbox_batch *batch = NULL;
        for (size_t i = 0; i < batches->count && !batch; i++)
            if (outbox_text_is(first->aggregate_type, batches->items[i].aggregate_type)
                && outbox_text_is(first->event_type, batches->items[i].event_type))
                batch = &batches->items[i];
        for (size_t i = at; i < end; i++)
            answers[i] = batch ? outbox_retryable("the function of this batch gave it no answer") : answer_to(&events[i]);
        if (batch)
            batch->listener(first, end - at, answers + at);
        at = end;
    }
}

/* The batches of the plugin, set where a call for many events begins: here, and by the stand-in for the host. */
const outbox_batches *outbox_batches_of_call;

#ifdef __wasm__
uint8_t *outbox_answer_events(const outbox_batches *batches, uint8_t *events, size_t count)
{
    outbox_batches_of_call = batches;
    return __wasm_export_exports_outbox_listener_batch_handler_on_events(events, count);
}

void outbox_free_answers(uint8_t *answers)
{
    __wasm_export_exports_outbox_listener_batch_handler_on_events_post_return(answers);
}
#endif

void exports_outbox_listener_batch_handler_on_events(exports_outbox_listener_batch_handler_list_event_t *given,
    exports_outbox_listener_batch_handler_list_result_dispatch_result_failure_t *results)
{
    const size_t count = given->len;
    outbox_event *events = outbox_alloc(count * sizeof *events);
    outbox_answer *answers = outbox_alloc(count * sizeof *answers);
    for (size_t i = 0; i < count; i++)
        events[i] = see_event(&given->ptr[i]);
    answer_all(outbox_batches_of_call, events, count, answers);

    results->len = count;
    results->ptr = cabi_realloc(NULL, 0, sizeof(void *), count * sizeof *results->ptr);
    for (size_t i = 0; i < count; i++)
        results->ptr[i].is_err = !give_answer(&answers[i], &results->ptr[i].val.ok, &results->ptr[i].val.err);

    exports_outbox_listener_batch_handler_list_event_free(given);
    end_call();
}

/* ---- What the author asks of the host ---------------------------------------------------------------------------------------- */

/* The host is asked once a call, when the first line is written. */
bool outbox_log_enabled(outbox_level level)
{
    if (log_state == UNASKED)
        log_state = outbox_listener_log_max_level(&log_max_level) ? LINES : NO_LINES;
    return log_state == LINES && (int)level >= (int)log_max_level;
}

static void write_line(outbox_level level, outbox_pairs fields, const char *format, va_list values)
{
    if (!outbox_log_enabled(level))
        return;

    char line[512]; /* enough for most lines; a listener that writes many should not fill the memory of the call with them */
    va_list again;
    va_copy(again, values);
    int length = vsnprintf(line, sizeof line, format, values);
    outbox_text message = { line, length > 0 ? (size_t)length : 0 };
    if (message.length >= sizeof line)
        message = format_text(format, again);
    va_end(again);

    listener_string_t lent_message = lend(message);
    listener_list_tuple2_string_string_t lent_fields = lend_pairs(fields);
    outbox_listener_log_write((outbox_listener_log_level_t)level, &lent_message, &lent_fields);
}

void outbox_log(outbox_level level, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    write_line(level, (outbox_pairs){ 0 }, format, values);
    va_end(values);
}

void outbox_log_with(outbox_level level, outbox_pairs fields, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    write_line(level, fields, format, values);
    va_end(values);
}

outbox_text outbox_setting(const char *key)
{
    listener_string_t lent = lend_string(key, ""), value;
    return outbox_listener_settings_get(&lent, &value) ? take(value) : (outbox_text){ 0 };
}

outbox_pairs outbox_settings(void)
{
    listener_list_tuple2_string_string_t all;
    outbox_listener_settings_get_all(&all);
    return take_pairs(all);
}

outbox_text outbox_secret(const char *key)
{
    listener_string_t lent = lend_string(key, ""), value;
    return outbox_listener_settings_secret(&lent, &value) ? take(value) : (outbox_text){ 0 };
}

uint32_t outbox_remaining_ms(void)
{
    return outbox_listener_call_remaining_ms();
}

bool outbox_emit(const outbox_envelope *envelope, outbox_text *id)
{
    outbox_listener_emit_envelope_t lent = {
        .route = { lend_string(envelope->aggregate_type, ""), lend_string(envelope->event_type, "") },
        .aggregate_id = lend_option(envelope->aggregate_id),
        .tenant_id = lend_option(envelope->tenant_id),
        .content_type = lend_string(envelope->content_type, "application/json"),
        .payload = lend_bytes(envelope->payload),
        .headers = lend_pairs(envelope->headers),
        .id = lend_option(envelope->id),
        .deliver_after_ms = lend_delay(envelope->deliver_after_ms),
        .expires_after_ms = lend_delay(envelope->expires_after_ms),
        .attributes = lend_pairs(envelope->attributes),
    };
    listener_string_t emitted;
    outbox_listener_emit_refusal_t refused;
    if (!outbox_listener_emit_emit(&lent, &emitted, &refused))
        return refuse(&refused);
    outbox_text taken = take(emitted);
    if (id)
        *id = taken;
    return true;
}

static outbox_listener_publish_message_t lend_message(const outbox_message *message)
{
    return (outbox_listener_publish_message_t){
        .subject = lend_string(message->subject, ""),
        .key = lend_option(message->key),
        .content_type = lend_string(message->content_type, "application/json"),
        .body = lend_bytes(message->body),
        .headers = lend_pairs(message->headers),
        .attributes = lend_pairs(message->attributes),
    };
}

outbox_pairs outbox_for_event(const outbox_event *event)
{
    outbox_pair *pair = outbox_alloc(sizeof *pair);
    *pair = (outbox_pair){ outbox_text_of("event-id"), event->id };
    return (outbox_pairs){ pair, 1 };
}

bool outbox_publish(const char *sink, const outbox_message *message)
{
    listener_string_t lent_sink = lend_string(sink, "");
    outbox_listener_publish_message_t lent = lend_message(message);
    outbox_listener_publish_refusal_t refused;
    return outbox_listener_publish_send(&lent_sink, &lent, &refused) || refuse(&refused);
}

bool outbox_publish_all(const char *sink, const outbox_message *messages, size_t count, bool *sent)
{
    if (count == 0)
        return true;
    listener_string_t lent_sink = lend_string(sink, "");
    outbox_listener_publish_message_t *items = outbox_alloc(count * sizeof *items);
    for (size_t i = 0; i < count; i++)
        items[i] = lend_message(&messages[i]);
    outbox_listener_publish_list_message_t lent = { items, count };
    outbox_listener_publish_list_result_void_refusal_t answers;
    outbox_listener_publish_send_all(&lent_sink, &lent, &answers);

    bool all = true;
    for (size_t i = 0; i < count; i++) {
        bool ok = i < answers.len && !answers.ptr[i].is_err;
        if (i < answers.len && !ok)
            refuse(&answers.ptr[i].val.err);
        if (sent)
            sent[i] = ok;
        all = all && ok;
    }
    if (answers.len > 0)
        keep(answers.ptr);
    return all;
}

bool outbox_http(const outbox_request *request, outbox_response *response)
{
    const char *method = request->method ? request->method : request->body.length > 0 ? "POST" : "GET";
    const char *content_type = request->content_type ? request->content_type : request->body.length > 0 ? "application/json" : NULL;
    /* A call that the host cuts off loses its instance, and the reason with it. */
    uint32_t timeout_ms = request->timeout_ms > 0 ? request->timeout_ms : outbox_remaining_ms() / 10 * 9;

    outbox_pairs headers = request->headers;
    if (content_type && !find_header(headers, "content-type").bytes) {
        outbox_pair *items = outbox_alloc((headers.count + 1) * sizeof *items);
        if (headers.count > 0)
            memcpy(items, headers.items, headers.count * sizeof *items);
        items[headers.count] = (outbox_pair){ outbox_text_of("content-type"), outbox_text_of(content_type) };
        headers = (outbox_pairs){ items, headers.count + 1 };
    }
    outbox_listener_http_request_t lent = {
        .method = lend_string(method, ""),
        .url = lend(request->url),
        .headers = lend_pairs(headers),
        .body = lend_bytes(request->body),
        .timeout_ms = { .is_some = true, .val = timeout_ms > 0 ? timeout_ms : 1 },
        .attributes = lend_pairs(request->attributes),
    };
    outbox_listener_http_response_t answered;
    outbox_listener_http_refusal_t refused;
    *response = (outbox_response){ 0 };
    if (!outbox_listener_http_send(&lent, &answered, &refused))
        return refuse(&refused);
    *response = (outbox_response){
        .status = answered.status,
        .headers = take_pairs(answered.headers),
        .body = take((listener_string_t){ answered.body.ptr, answered.body.len }),
    };
    take_pairs(answered.attributes);
    return true;
}

bool outbox_response_ok(const outbox_response *response)
{
    return response->status >= 200 && response->status <= 299;
}

outbox_text outbox_response_header(const outbox_response *response, const char *name)
{
    return find_header(response->headers, name);
}

outbox_answer outbox_http_failed(const outbox_request *request, const outbox_response *response)
{
    const unsigned status = response->status;
    const char *method = request->method ? request->method : request->body.length > 0 ? "POST" : "GET";
    size_t shown = 0;
    while (shown < request->url.length && request->url.bytes[shown] != '?' && request->url.bytes[shown] != '#')
        shown++;
    outbox_text url = { request->url.bytes, shown };
    outbox_answer failure = outbox_retryable("%s %.*s was answered with the status %u", method, OUTBOX_ARG(url), status);

    outbox_text wait = find_header(response->headers, "retry-after");
    bool is_number = wait.length > 0 && wait.length <= 5; /* five digits of seconds are more than a day */
    for (size_t i = 0; i < wait.length; i++)
        is_number = is_number && wait.bytes[i] >= '0' && wait.bytes[i] <= '9';
    if (status != 408 && status != 425 && status != 429 && status < 500) {
        failure.kind = OUTBOX_UNRECOVERABLE;
    } else if (is_number) {
        failure.kind = OUTBOX_RETRYABLE_AFTER;
        failure.after_ms = within_a_day((uint32_t)strtoul(wait.bytes, NULL, 10) * 1000);
    }
    return outbox_with_code(failure, outbox_format("http-%u", status).bytes);
}

bool outbox_state_get(const char *key, outbox_text *value)
{
    listener_string_t lent = lend_string(key, "");
    listener_option_list_u8_t found;
    outbox_listener_state_refusal_t refused;
    if (!outbox_listener_state_get(&lent, &found, &refused)) {
        *value = (outbox_text){ 0 };
        return refuse(&refused);
    }
    *value = found.is_some ? take((listener_string_t){ found.val.ptr, found.val.len }) : (outbox_text){ 0 };
    return true;
}

bool outbox_state_set(const char *key, outbox_text value)
{
    listener_string_t lent = lend_string(key, "");
    listener_list_u8_t lent_value = lend_bytes(value);
    outbox_listener_state_refusal_t refused;
    return outbox_listener_state_set(&lent, &lent_value, &refused) || refuse(&refused);
}

bool outbox_state_delete(const char *key)
{
    listener_string_t lent = lend_string(key, "");
    outbox_listener_state_refusal_t refused;
    return outbox_listener_state_delete(&lent, &refused) || refuse(&refused);
}
