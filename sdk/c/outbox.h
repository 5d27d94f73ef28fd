/*
 * Write outbox listeners in C.
 *
 * A plugin is one function for each route, and OUTBOX_PLUGIN to list them:
 *
 *     #include "outbox.h"
 *
 *     static outbox_answer on_order_placed(const outbox_event *event)
 *     {
 *         if (event->payload.length == 0)
 *             return outbox_dead("an order without a payload");
 *         outbox_log(OUTBOX_INFO, "order %s placed, attempt %u", event->aggregate_id.bytes, event->attempt);
 *         return outbox_done();
 *     }
 *
 *     OUTBOX_PLUGIN("order-greeter", "0.1.0",
 *         { "Order", "OrderPlaced", on_order_placed },
 *     );
 *
 * Memory: the author frees nothing. Everything that this SDK hands to a listener function (the event, formatted texts, settings,
 * values, refusals) lives until that function returns, and is freed then. Copy what must live longer. What a listener hands to the
 * SDK is copied before the call returns, and stays the listener's. An allocation that fails ends the call with a trap, which the
 * host counts as a retryable failure.
 *
 * Delivery: an event is delivered at least once; `id` is the same on every delivery and is the key for deduplication. A
 * listener may find itself in a fresh instance or in one that served other events before: keep nothing in static variables that
 * must survive, and rely on nothing to be gone.
 */
#ifndef OUTBOX_H
#define OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define OUTBOX_PRINTF(format_at, values_at) __attribute__((__format__(__printf__, format_at, values_at)))
#else
#define OUTBOX_PRINTF(format_at, values_at)
#endif

/* ---- Text --------------------------------------------------------------------------------------------------------------- */

/*
 * So many bytes, of text or of anything. `bytes` is NULL for a text that is absent, which an empty one is not.
 *
 * In every text that the SDK hands out a NUL byte follows the last one (not counted in `length`), so text that holds no NUL byte of
 * its own can be printed with "%s". `printf("%.*s", OUTBOX_ARG(text))` prints any text, an absent one too.
 */
typedef struct outbox_text {
    const char *bytes;
    size_t length;
} outbox_text;

#define OUTBOX_ARG(text) ((int)(text).length), ((text).bytes ? (text).bytes : "")

/* A view of a string that ends with NUL, without a copy; absent for NULL. */
outbox_text outbox_text_of(const char *string);

/* Whether a text is exactly this string. An absent text is equal to no string. */
bool outbox_text_is(outbox_text text, const char *string);

/* What printf would print. */
outbox_text outbox_format(const char *format, ...) OUTBOX_PRINTF(1, 2);

/* So many bytes of zeroed memory, aligned for any type, that are freed when the listener function returns. */
void *outbox_alloc(size_t size);

/* A name and its value: a header, an attribute, a setting, a field of a log line. */
typedef struct outbox_pair {
    outbox_text name;
    outbox_text value;
} outbox_pair;

typedef struct outbox_pairs {
    const outbox_pair *items;
    size_t count;
} outbox_pairs;

/* One pair with a value that printf would print: outbox_pair_of("total", "%.2f", total). */
outbox_pair outbox_pair_of(const char *name, const char *format, ...) OUTBOX_PRINTF(2, 3);

/* Pairs as one argument or initialiser: OUTBOX_PAIRS(outbox_pair_of("a", "1"), outbox_pair_of("b", "2")). */
#define OUTBOX_PAIRS(...) \
    ((outbox_pairs){ (const outbox_pair[]){ __VA_ARGS__ }, sizeof((const outbox_pair[]){ __VA_ARGS__ }) / sizeof(outbox_pair) })

/* The value of the first pair of exactly this name; absent when there is none. */
outbox_text outbox_find(outbox_pairs pairs, const char *name);

/* ---- Events ------------------------------------------------------------------------------------------------------------- */

/* One delivery of one event. */
typedef struct outbox_event {
    /* The same on every delivery: the key for deduplication. */
    outbox_text id;
    /* `id:fence`, with a larger fence on every delivery: lets a downstream refuse a late one. */
    outbox_text delivery_id;
    /* The aggregate type: what kind of thing it happened to; `__GLOBAL__` if the writer gave none. */
    outbox_text aggregate_type;
    /* What happened. */
    outbox_text event_type;
    /* The aggregate's id: which thing it happened to; absent if the writer gave none. */
    outbox_text aggregate_id;
    /* The tenant that the event belongs to; absent if the writer gave none. */
    outbox_text tenant_id;
    /* The order in which the database took the events in; 0 for an event that was never stored. */
    uint64_t sequence;
    /* Milliseconds since 1970-01-01T00:00:00Z. */
    uint64_t occurred_at_ms;
    /* 1 on the first attempt; one more after each counted failure. */
    uint32_t attempt;
    /* `application/json` unless the writer said otherwise. */
    outbox_text content_type;
    /* The bytes exactly as the writer wrote them; they may be neither JSON nor text. */
    outbox_text payload;
    /* The writer's headers, in the writer's order. */
    outbox_pairs headers;
    /* The host's own notes, such as `max-attempts` and `traceparent`. Later hosts may add more. */
    outbox_pairs attributes;
} outbox_event;

/* The first header of exactly this name; absent when there is none. */
outbox_text outbox_header(const outbox_event *event, const char *name);

/* The host's note under exactly this key; absent when there is none. */
outbox_text outbox_attribute(const outbox_event *event, const char *key);

/* ---- Answers ------------------------------------------------------------------------------------------------------------ */

typedef enum outbox_answer_kind {
    OUTBOX_DONE,
    OUTBOX_RETRY_AFTER,
    OUTBOX_DEAD,
    OUTBOX_RETRYABLE,
    OUTBOX_RETRYABLE_AFTER,
    OUTBOX_UNRECOVERABLE,
} outbox_answer_kind;

/* How a listener ends a delivery. Made by the functions below; the fields are there for tests. */
typedef struct outbox_answer {
    outbox_answer_kind kind;
    /* For the two kinds that say when. */
    uint32_t after_ms;
    /* Why the event is dead, or what failed. */
    outbox_text message;
    /* Of a failure: a short constant for metrics and filters; absent when there is none. */
    outbox_text code;
    /* Of a failure: details for people. */
    outbox_pairs details;
} outbox_answer;

/* The event is finished. What the listener emitted and wrote to its state is committed with this answer. */
outbox_answer outbox_done(void);

/* Deliver the event again after so many milliseconds; more than 24 hours count as 24 hours. Not counted as an attempt. */
outbox_answer outbox_retry_after(uint32_t delay_ms);

/* Never deliver the event again. The reason, as printf would print it, is kept with the event. */
outbox_answer outbox_dead(const char *format, ...) OUTBOX_PRINTF(1, 2);

/* A failure, counted as an attempt: the event is delivered again when the host's retry policy says. */
outbox_answer outbox_retryable(const char *format, ...) OUTBOX_PRINTF(1, 2);

/* A failure, counted as an attempt: the event is delivered again after so many milliseconds, at most 24 hours. */
outbox_answer outbox_retryable_after(uint32_t delay_ms, const char *format, ...) OUTBOX_PRINTF(2, 3);

/* A failure that will never become a success: the event is dead. */
outbox_answer outbox_unrecoverable(const char *format, ...) OUTBOX_PRINTF(1, 2);

/* The same failure with a code, such as "payment-declined": 1 to 64 of a-z, 0-9 and dashes. For failures only. */
outbox_answer outbox_with_code(outbox_answer failure, const char *code);

/* The same failure with one more detail. For failures only. */
outbox_answer outbox_with_detail(outbox_answer failure, const char *name, const char *format, ...) OUTBOX_PRINTF(3, 4);

/* ---- The plugin --------------------------------------------------------------------------------------------------------- */

typedef outbox_answer outbox_listener(const outbox_event *event);

typedef struct outbox_route {
    const char *aggregate_type;
    const char *event_type;
    outbox_listener *listener;
} outbox_route;

/* Looks at the settings when the plugin is loaded: NULL when they will do, else what is wrong, for the operator. */
typedef const char *outbox_settings_check(void);

typedef struct outbox_plugin {
    const char *name;
    const char *version;
    /* NULL for a plugin that takes every setting. */
    outbox_settings_check *check;
    const outbox_route *routes;
    size_t route_count;
} outbox_plugin;

/* Defined by OUTBOX_PLUGIN. */
extern const outbox_plugin outbox_this_plugin;

/*
 * Names the plugin and lists what it answers, one `{ aggregate type, event type, function }` for each route. Once per plugin,
 * at file scope, with a semicolon behind it. A writer that names no aggregate type writes "__GLOBAL__".
 */
#define OUTBOX_PLUGIN(plugin_name, plugin_version, ...) OUTBOX_CHECKED_PLUGIN(plugin_name, plugin_version, NULL, __VA_ARGS__)

/*
 * The same with a look at the settings, which the host asks for when it loads the plugin. What the function returns keeps this
 * version from serving, and the version before it goes on serving; NULL for settings that will do.
 *
 *     static const char *check(void)
 *     {
 *         return outbox_setting("endpoint").length > 0 ? NULL : "`endpoint` is missing; add it to [config] of the plugin's manifest";
 *     }
 */
#define OUTBOX_CHECKED_PLUGIN(plugin_name, plugin_version, settings_check, ...) \
    static const outbox_route outbox_these_routes[] = { __VA_ARGS__ };          \
    const outbox_plugin outbox_this_plugin = {                                  \
        (plugin_name), (plugin_version), (settings_check), outbox_these_routes, \
        sizeof outbox_these_routes / sizeof outbox_these_routes[0],             \
    }

/*
 * Answers many events of one route: the answer to `events[i]` goes to `answers[i]`. An event that gets none is a retryable failure.
 */
typedef void outbox_batch_listener(const outbox_event *events, size_t count, outbox_answer *answers);

typedef struct outbox_batch {
    const char *aggregate_type;
    const char *event_type;
    outbox_batch_listener *listener;
} outbox_batch;

typedef struct outbox_batches {
    const outbox_batch *items;
    size_t count;
} outbox_batches;

/* Defined by OUTBOX_BATCHES. */
extern const outbox_batches outbox_these_batches;

/*
 * Lists what the plugin answers many at a time, where the operator sets `isolation = "batch"`: one
 * `{ aggregate type, event type, function }` for each route, which OUTBOX_PLUGIN lists as well. Once per plugin, at file scope,
 * with a semicolon behind it. Such a function gets the events of its route that follow each other in a call, up to 100 of one
 * tenant. Events of other routes go to their functions one by one, and so do all events of a call that broke off.
 *
 * Emitting and keeping state belong to one event, and are refused in such a call. A message says for which event it is, with
 * outbox_for_event, and a request that does so gets an `Idempotency-Key`.
 *
 *     static void on_orders_placed(const outbox_event *events, size_t count, outbox_answer *answers)
 *     {
 *         for (size_t i = 0; i < count; i++) {
 *             outbox_message message = { .body = events[i].payload, .attributes = outbox_for_event(&events[i]) };
 *             answers[i] = outbox_publish("orders", &message) ? outbox_done() : outbox_refused();
 *         }
 *     }
 *
 *     OUTBOX_BATCHES({ "Order", "OrderPlaced", on_orders_placed });
 */
#define OUTBOX_BATCHES(...)                                                          \
    static const outbox_batch outbox_these_batch_items[] = { __VA_ARGS__ };          \
    const outbox_batches outbox_these_batches = {                                    \
        outbox_these_batch_items,                                                    \
        sizeof outbox_these_batch_items / sizeof outbox_these_batch_items[0],        \
    };                                                                               \
    OUTBOX_BATCH_EXPORTS                                                             \
    extern const outbox_batches outbox_these_batches

/* What the host calls. Only a plugin with batches has these exports. */
#ifdef __wasm__
uint8_t *outbox_answer_events(const outbox_batches *batches, uint8_t *events, size_t count);
void outbox_free_answers(uint8_t *answers);
#define OUTBOX_BATCH_EXPORTS                                                                                                \
    __attribute__((__export_name__("outbox:listener/batch-handler@0.1.0#on-events")))                                       \
    uint8_t *outbox_on_events(uint8_t *events, size_t count);                                                               \
    uint8_t *outbox_on_events(uint8_t *events, size_t count)                                                                \
    {                                                                                                                       \
        return outbox_answer_events(&outbox_these_batches, events, count);                                                  \
    }                                                                                                                       \
    __attribute__((__export_name__("cabi_post_outbox:listener/batch-handler@0.1.0#on-events")))                             \
    void outbox_after_events(uint8_t *answers);                                                                             \
    void outbox_after_events(uint8_t *answers)                                                                              \
    {                                                                                                                       \
        outbox_free_answers(answers);                                                                                       \
    }
#else
#define OUTBOX_BATCH_EXPORTS
#endif

/* ---- Log ---------------------------------------------------------------------------------------------------------------- */

typedef enum outbox_level { OUTBOX_TRACE, OUTBOX_DEBUG, OUTBOX_INFO, OUTBOX_WARN, OUTBOX_ERROR } outbox_level;

/* Writes one line to the host's log, which adds the plugin, its digest and the event's id. Write no secrets. */
void outbox_log(outbox_level level, const char *format, ...) OUTBOX_PRINTF(2, 3);

/* The same with fields: outbox_log_with(OUTBOX_INFO, OUTBOX_PAIRS(outbox_pair_of("order_id", "%d", id)), "order placed"). */
void outbox_log_with(outbox_level level, outbox_pairs fields, const char *format, ...) OUTBOX_PRINTF(3, 4);

/* Whether the host keeps lines of this level: lets a listener skip the work for a line that nobody would see. */
bool outbox_log_enabled(outbox_level level);

/* ---- Settings, and the call --------------------------------------------------------------------------------------------- */

/* The value under a key of `[config]` in the plugin's manifest; absent when it has no such key. */
outbox_text outbox_setting(const char *key);

/* All of `[config]`, sorted by key. */
outbox_pairs outbox_settings(void);

/* The value under a key of `[secrets]` in the plugin's manifest; absent when it has no such key. */
outbox_text outbox_secret(const char *key);

/* How many milliseconds are left until this call is cut off. */
uint32_t outbox_remaining_ms(void);

/* ---- What needs a grant ------------------------------------------------------------------------------------------------- */

/*
 * The functions below ask the host for something that it may refuse. They return false then, and outbox_refused() makes the answer
 * that passes the refusal on:
 *
 *     if (!outbox_state_set("last-order", event->id))
 *         return outbox_refused();
 */

typedef enum outbox_refusal_kind {
    /* The operator has not granted it; the message has the line to add to the plugin's manifest. */
    OUTBOX_NOT_GRANTED,
    /* The request itself is wrong; it will be wrong again. */
    OUTBOX_INVALID,
    /* A limit or a quota is used up. */
    OUTBOX_OVER_LIMIT,
    /* It did not work now, and may work later. */
    OUTBOX_UNAVAILABLE,
} outbox_refusal_kind;

typedef struct outbox_refusal {
    outbox_refusal_kind kind;
    /* What was refused, why, and what to do; for people. */
    outbox_text message;
} outbox_refusal;

/* The refusal of the last request of this call that was refused. Ask only after one was. */
outbox_refusal outbox_last_refusal(void);

/*
 * The last refusal as a failure, with the kind as its code ("not-granted" and so on). An invalid request is unrecoverable, since it
 * will be refused again; every other refusal is retryable, since an operator or time can help.
 */
outbox_answer outbox_refused(void);

/* A follow-up event. What is left out is zero, and takes the default. */
typedef struct outbox_envelope {
    /* Required. */
    const char *aggregate_type;
    /* Required. */
    const char *event_type;
    /* The key for order: events of one aggregate can be delivered in order. */
    outbox_text aggregate_id;
    /* Absent for the tenant of the event that is being answered. */
    outbox_text tenant_id;
    /* NULL for `application/json`. */
    const char *content_type;
    outbox_text payload;
    outbox_pairs headers;
    /* Absent for an id that the host makes. An event whose id is in the outbox already is not emitted again. */
    outbox_text id;
    /* Milliseconds from the commit; 0 for at once. */
    uint32_t deliver_after_ms;
    /* Milliseconds from now after which nobody wants the event any more; 0 for never. */
    uint32_t expires_after_ms;
    /* What a later host may understand; unknown keys are refused. */
    outbox_pairs attributes;
} outbox_envelope;

/*
 * Emits a follow-up event. It is committed together with the answer to this event: both, or neither. Nothing is emitted by a call
 * that ends with a failure. Needs `emit = true` in the plugin's manifest.
 *
 * `id` receives the event's id; it may be NULL.
 */
bool outbox_emit(const outbox_envelope *envelope, outbox_text *id);

/* A message to a broker or an endpoint. What is left out is zero, and takes the default. */
typedef struct outbox_message {
    /* Subject, topic, stream, routing key or path, as the sink understands it; NULL for the sink's own default. */
    const char *subject;
    /* What keeps messages in order where the sink has partitions; absent for the aggregate id of the event. */
    outbox_text key;
    /* NULL for `application/json`. */
    const char *content_type;
    outbox_text body;
    outbox_pairs headers;
    /* What a later host may understand; unknown keys are refused. */
    outbox_pairs attributes;
} outbox_message;

/* The attributes of a message or a request that is for one of many events. */
outbox_pairs outbox_for_event(const outbox_event *event);

/*
 * Sends one message to a sink that the operator named, and waits until the sink has confirmed it. A message that was confirmed is
 * out, whatever the listener answers afterwards. Needs the sink's name in `publish.sinks` of the plugin's manifest.
 */
bool outbox_publish(const char *sink, const outbox_message *message);

/*
 * Sends messages together. True when all were sent. `sent`, which may be NULL, receives for each message whether it was; the last
 * refusal is that of the last message that was not.
 */
bool outbox_publish_all(const char *sink, const outbox_message *messages, size_t count, bool *sent);

/* An HTTP request. What is left out is zero, and takes the default. */
typedef struct outbox_request {
    /* In upper case; NULL for "GET", or for "POST" with a body. */
    const char *method;
    /* Required. Absolute: scheme, host, optional port, path and query. */
    outbox_text url;
    /* NULL for `application/json` with a body, and for none without; ignored when the headers have one. */
    const char *content_type;
    outbox_pairs headers;
    outbox_text body;
    /* 0 for nine tenths of what is left of the call, so that the listener can still answer. */
    uint32_t timeout_ms;
    /* What a later host may understand; unknown keys are refused. */
    outbox_pairs attributes;
} outbox_request;

/* What the server answered, whole. */
typedef struct outbox_response {
    /* 100 to 599. */
    uint16_t status;
    /* In the order in which they came, names in lower case. */
    outbox_pairs headers;
    /* As it came: nothing is decompressed. */
    outbox_text body;
} outbox_response;

/*
 * Makes a request, and waits for the whole response. A status such as 500 is a response, not a refusal, and a redirect is not
 * followed. The host adds an `Idempotency-Key`, the same on every delivery of the event, to each request that has none. Needs
 * the origin in `http.allow` of the plugin's manifest.
 *
 *     outbox_response response;
 *     if (!outbox_http(&request, &response))
 *         return outbox_refused();
 *     if (!outbox_response_ok(&response))
 *         return outbox_http_failed(&request, &response);
 */
bool outbox_http(const outbox_request *request, outbox_response *response);

/* Whether the status is 200 to 299. */
bool outbox_response_ok(const outbox_response *response);

/* The first header of this name, in any case of its letters; absent when there is none. */
outbox_text outbox_response_header(const outbox_response *response, const char *name);

/*
 * The failure for a status that is not 200 to 299, with the code `http-STATUS`: a retryable one for 408, 425, 429 and 500 to
 * 599, which pass, after as many seconds as the header `Retry-After` says; an unrecoverable one for every other, since the same
 * request would be answered so again. The message has the URL without its query, which often holds a key.
 */
outbox_answer outbox_http_failed(const outbox_request *request, const outbox_response *response);

/*
 * Values that the plugin keeps in the outbox's database. Writes are committed together with the answer to this event: both, or
 * neither. A key is 1 to 255 bytes of text. Needs `state = true` in the plugin's manifest.
 */

/* Reads the value under a key, which is absent when there is none. Sees what this call has written. */
bool outbox_state_get(const char *key, outbox_text *value);

/* Puts a value under a key. An absent value is taken as an empty one. */
bool outbox_state_set(const char *key, outbox_text value);

/* Removes a key, if it is there. */
bool outbox_state_delete(const char *key);

#ifdef __cplusplus
}
#endif
#endif
