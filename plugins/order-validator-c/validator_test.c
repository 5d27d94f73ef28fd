/* Delivers good and bad orders to the plugin, natively. */
#include <string.h>

#include "outbox_test.h"

static outbox_answer delivered(const char *payload)
{
    outbox_event event = outbox_test_event("Order", "OrderPlaced", payload);
    return outbox_test_deliver(&event);
}

#define IS_DONE(payload) OUTBOX_CHECK(delivered(payload).kind == OUTBOX_DONE)

#define IS_DEAD(payload, reason)                        \
    do {                                                \
        outbox_answer answer = delivered(payload);      \
        OUTBOX_CHECK(answer.kind == OUTBOX_DEAD);       \
        OUTBOX_CHECK_TEXT(answer.message, reason);      \
    } while (0)

static void an_order_passes(void)
{
    IS_DONE("{\"order_id\": 42, \"total\": 99.5}");
    IS_DONE("\r\n{ \"lines\": [ {\"sku\": \"a\\u00e9\\n\\\"\", \"n\": -1.5E+2}, [], {} ],\t\"total\": 1, \"order_id\": -0 } ");
    IS_DONE("{\"order_id\": 1, \"total\": 1e-400}");
    IS_DONE("{\"order_id\": 1, \"total\": 0.01, \"note\": \"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"}");
    IS_DONE("{\"order\\u005fid\": 1, \"total\": 10}");
    IS_DONE("{\"order_id\": 1, \"total\": 10, \"inner\": {\"total\": -1, \"order_id\": null}, \"yes\": true, \"no\": false}");
}

static void orders_that_come_together_are_looked_at_one_by_one(void)
{
    const outbox_event events[] = {
        outbox_test_event("Order", "OrderPlaced", "{\"order_id\": 1, \"total\": 1}"),
        outbox_test_event("Order", "OrderPlaced", "{}"),
        outbox_test_event("Order", "OrderPlaced", "{\"order_id\": 3, \"total\": 3}"),
    };
    outbox_answer answers[3];
    outbox_test_deliver_all(events, 3, answers);
    OUTBOX_CHECK(answers[0].kind == OUTBOX_DONE && answers[2].kind == OUTBOX_DONE);
    OUTBOX_CHECK(answers[1].kind == OUTBOX_DEAD);
    OUTBOX_CHECK_TEXT(answers[1].message, "the order has no \"order_id\"");
}

static void a_fault_is_named(void)
{
    IS_DEAD("", "the payload is empty");
    IS_DEAD("[1, 2]", "the payload is a list; an order is an object");
    IS_DEAD("null", "the payload is null; an order is an object");
    IS_DEAD("{}", "the order has no \"order_id\"");
    IS_DEAD("{\"order_id\": 1}", "the order has no \"total\"");
    IS_DEAD("{\"order_id\": \"42\", \"total\": 1}", "\"order_id\" is a string; it must be a number");
    IS_DEAD("{\"order_id\": 42, \"total\": {}}", "\"total\" is an object; it must be a number");
    IS_DEAD("{\"order_id\": 42, \"total\": -0.5}", "\"total\" is -0.5; it must be more than 0");
    IS_DEAD("{\"order_id\": 42, \"total\": 0.00e7}", "\"total\" is 0.00e7; it must be more than 0");
    IS_DEAD("{\"order_id\": 42, \"total\": -11111111111111111111111111111111111111}",
        "\"total\" is -11111111111111111111111; it must be more than 0");
    IS_DEAD("{\"total\": 1, \"order_id\": 1, \"total\": -1}", "the order has \"total\" twice");
}

static void what_is_not_json_is_named_by_its_place(void)
{
    IS_DEAD("order 42", "the payload is not JSON: no value at byte 1");
    IS_DEAD("{\"order_id\": 1,}", "the payload is not JSON: no name of a member at byte 16");
    IS_DEAD("{\"order_id\" 1}", "the payload is not JSON: no colon after a name at byte 13");
    IS_DEAD("{\"order_id\": 1", "the payload is not JSON: neither a comma nor the end of an object at byte 15");
    IS_DEAD("{\"order_id\": ", "the payload is not JSON: a missing value at byte 14");
    IS_DEAD("{\"order_id\": 01}", "the payload is not JSON: a number that begins with 0 at byte 15");
    IS_DEAD("{\"order_id\": 1.}", "the payload is not JSON: a number without a digit at byte 16");
    IS_DEAD("{\"order_id\": tru}", "the payload is not JSON: an unknown word at byte 14");
    IS_DEAD("{\"order_id", "the payload is not JSON: a string without an end at byte 11");
    IS_DEAD("{\"\\u00", "the payload is not JSON: a string without an end at byte 7");
    IS_DEAD("{\"\\x\"", "the payload is not JSON: an unknown escape at byte 4");
    IS_DEAD("{\"\n\"", "the payload is not JSON: a control character in a string at byte 3");
    IS_DEAD("{\"\xff\"", "the payload is not JSON: text that is not UTF-8 at byte 3");
    IS_DEAD("{\"\xed\xa0\x80\"", "the payload is not JSON: text that is not UTF-8 at byte 3");
    IS_DEAD("[1 2]", "the payload is not JSON: neither a comma nor the end of a list at byte 4");
    IS_DEAD("{} {}", "the payload is not JSON: something after the value at byte 4");
}

static void deep_nesting_is_refused_before_the_stack_is_used_up(void)
{
    static char deep[100001];
    memset(deep, '[', sizeof deep - 1);
    IS_DEAD(deep, "the payload is nested deeper than 64 levels");
}

int main(void)
{
    an_order_passes();
    orders_that_come_together_are_looked_at_one_by_one();
    a_fault_is_named();
    what_is_not_json_is_named_by_its_place();
    deep_nesting_is_refused_before_the_stack_is_used_up();
    return outbox_test_end();
}
