/* Whether a payload is an order. Knows nothing of outbox, so it can be tested and used alone. */
#ifndef ORDER_H
#define ORDER_H

#include <stdbool.h>
#include <stddef.h>

enum { ORDER_FAULT_SIZE = 128 };

/*
 * An order is a JSON object with a number under "order_id" and a number above 0 under "total"; more members do no harm. When the
 * payload is not one, `fault` receives a sentence that names the first fault found, cut to ORDER_FAULT_SIZE bytes with its NUL.
 */
bool order_is_valid(const char *payload, size_t length, char fault[ORDER_FAULT_SIZE]);

#endif
