/*
 * Takes the place of the host, for native tests of plugins.
 *
 * A test is a program of its own: the plugin's files, outbox.c, outbox_test.c and a main function. It delivers events through
 * the very code that answers a host, so a memory checker (-fsanitize=address) also sees what the SDK and the listener do with
 * memory.
 *
 *     outbox_event event = outbox_test_event("Order", "OrderPlaced", "{}");
 *     outbox_answer answer = outbox_test_deliver(&event);
 *     OUTBOX_CHECK(answer.kind == OUTBOX_DEAD);
 *     OUTBOX_CHECK_TEXT(answer.message, "the payload has no \"order_id\"");
 *     return outbox_test_end();
 */
#ifndef OUTBOX_TEST_H
#define OUTBOX_TEST_H

#include "outbox.h"

enum { OUTBOX_TEST_MAX = 64 };

/* What the host says, and what was asked of it. Texts in it live until the next delivery or outbox_test_reset. */
typedef struct outbox_test_state {
    /* When not NULL, the answer to whatever needs a grant: to emit, to publish, state, HTTP. At first everything is granted. */
    const outbox_refusal *refusal;
    /* What the host answers when it is asked for the time that is left. At first 5000. */
    uint32_t remaining_ms;
    /* The most detailed level that is kept. At first OUTBOX_TRACE. */
    outbox_level max_level;

    /*
     * Follow-up events of the last delivery. A real host forgets those of a failed call; this one shows them. At most
     * OUTBOX_TEST_MAX are kept; the count goes on.
     */
    size_t emit_count;
    outbox_envelope emitted[OUTBOX_TEST_MAX];
    /* Messages of the last delivery, and to which sink each went. */
    size_t publish_count;
    outbox_message published[OUTBOX_TEST_MAX];
    outbox_text sinks[OUTBOX_TEST_MAX];
    /* HTTP requests of the last delivery. */
    size_t request_count;
    outbox_request requests[OUTBOX_TEST_MAX];
    /* Lines of the last delivery, without their fields. They go to standard error too. */
    size_t line_count;
    outbox_text lines[OUTBOX_TEST_MAX];
} outbox_test_state;

extern outbox_test_state outbox_test_host;

/* Forgets settings, secrets, values and everything above. */
void outbox_test_reset(void);

/* Sets what outbox_setting finds under a key. At most OUTBOX_TEST_MAX keys; the strings must outlive the test. */
void outbox_test_set(const char *key, const char *value);

/* Sets what outbox_secret finds under a key. */
void outbox_test_set_secret(const char *key, const char *value);

/* Sets what outbox_state_get finds under a key. */
void outbox_test_set_state(const char *key, const char *value);

/* What the listener wrote under a key; absent when there is no value. */
outbox_text outbox_test_state_of(const char *key);

/*
 * Answers the next HTTP request that has no answer yet. Requests are answered in the order of these calls, at most
 * OUTBOX_TEST_MAX; one beyond them is refused as unavailable. What the response refers to must outlive the test.
 */
void outbox_test_respond(outbox_response response);

/* What the plugin's own look at its settings says; absent when they will do. The text lives until the next delivery. */
outbox_text outbox_test_check_settings(void);

/* A first delivery on this route, with this text as its payload. Whatever a test wants otherwise it sets in the result. */
outbox_event outbox_test_event(const char *aggregate_type, const char *event_type, const char *payload);

/* Delivers the event to the plugin. The answer lives until the next delivery. */
outbox_answer outbox_test_deliver(const outbox_event *event);

/*
 * Delivers events in one call, as `isolation = "batch"` does, to a plugin with OUTBOX_BATCHES. The answer to `events[i]` goes
 * to `answers[i]`, and lives until the next delivery.
 */
#define outbox_test_deliver_all(events, count, answers) outbox_test_deliver_batches(&outbox_these_batches, (events), (count), (answers))
void outbox_test_deliver_batches(const outbox_batches *batches, const outbox_event *events, size_t count, outbox_answer *answers);

/* ---- Checks ------------------------------------------------------------------------------------------------------------- */

/* A check that fails says where it stands, and the test goes on. */
#define OUTBOX_CHECK(condition) outbox_test_check((condition), #condition, __FILE__, __LINE__)
#define OUTBOX_CHECK_TEXT(text, expected) outbox_test_check_text((text), (expected), #text, __FILE__, __LINE__)

void outbox_test_check(bool holds, const char *condition, const char *file, int line);
void outbox_test_check_text(outbox_text text, const char *expected, const char *expression, const char *file, int line);

/* Prints how many checks passed and failed; 0 when none failed, else 1. To be returned by main. */
int outbox_test_end(void);

#endif
