#include "order.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A plugin's stack is small: a payload of 100,000 opening brackets must not use it up. */
enum { MAX_DEPTH = 64, NAME_SIZE = 16, NUMBER_SHOWN = 24 };

typedef enum value_kind { AN_OBJECT, A_LIST, A_STRING, A_NUMBER, A_BOOLEAN, NULL_VALUE } value_kind;

static const char *const kind_names[] = { "an object", "a list", "a string", "a number", "a boolean", "null" };

/* A value that was read: of which kind, and for a number where it stands. */
typedef struct value {
    value_kind kind;
    const char *bytes;
    size_t length;
} value;

typedef struct reader {
    const char *start;
    const char *at;
    const char *end;
    int depth;
    char *fault;
} reader;

/* Members that an order must have. */
typedef struct order {
    bool has_id;
    bool has_total;
    value id;
    value total;
} order;

static bool read_value(reader *reader, value *found, order *order);

/* Always false, so that it can be returned. */
__attribute__((__format__(__printf__, 2, 3)))
static bool fail(char *fault, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(fault, ORDER_FAULT_SIZE, format, values);
    va_end(values);
    return false;
}

static bool not_json(reader *reader, const char *why)
{
    return fail(reader->fault, "the payload is not JSON: %s at byte %zu", why, (size_t)(reader->at - reader->start) + 1);
}

static bool at_byte(const reader *reader, char byte)
{
    return reader->at < reader->end && *reader->at == byte;
}

static bool at_digit(const reader *reader)
{
    return reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9';
}

static void skip_space(reader *reader)
{
    while (at_byte(reader, ' ') || at_byte(reader, '\t') || at_byte(reader, '\n') || at_byte(reader, '\r'))
        reader->at++;
}

/* One character beyond ASCII, in UTF-8. */
static bool read_utf8(reader *reader)
{
    const unsigned char *bytes = (const unsigned char *)reader->at;
    size_t size = bytes[0] >= 0xF0 ? 4 : bytes[0] >= 0xE0 ? 3 : 2;
    if (bytes[0] < 0xC2 || bytes[0] > 0xF4 || (size_t)(reader->end - reader->at) < size)
        return not_json(reader, "text that is not UTF-8");
    for (size_t i = 1; i < size; i++)
        if ((bytes[i] & 0xC0) != 0x80)
            return not_json(reader, "text that is not UTF-8");
    if ((bytes[0] == 0xE0 && bytes[1] < 0xA0) || (bytes[0] == 0xED && bytes[1] > 0x9F) || (bytes[0] == 0xF0 && bytes[1] < 0x90)
        || (bytes[0] == 0xF4 && bytes[1] > 0x8F))
        return not_json(reader, "text that is not UTF-8");
    reader->at += size;
    return true;
}

/* What follows a backslash. `character` is 0 when it is none that the names "order_id" and "total" could have. */
static bool read_escape(reader *reader, char *character)
{
    *character = 0;
    if (reader->at == reader->end)
        return not_json(reader, "a string without an end");
    char escape = *reader->at;
    if (escape == '"' || escape == '\\' || escape == '/') {
        *character = escape;
    } else if (escape == 'u') {
        unsigned code = 0;
        for (int i = 0; i < 4; i++) {
            reader->at++;
            if (reader->at == reader->end)
                return not_json(reader, "a string without an end");
            char digit = *reader->at;
            if (digit >= '0' && digit <= '9')
                code = code * 16 + (unsigned)(digit - '0');
            else if ((digit | 0x20) >= 'a' && (digit | 0x20) <= 'f')
                code = code * 16 + (unsigned)((digit | 0x20) - 'a') + 10;
            else
                return not_json(reader, "an escape with a wrong digit");
        }
        if (code < 0x80)
            *character = (char)code;
    } else if (!strchr("bfnrt", escape) || escape == 0) {
        return not_json(reader, "an unknown escape");
    }
    reader->at++;
    return true;
}

/* A string. `name` receives the text when it is ASCII and short enough to be "order_id" or "total", else an empty one. */
static bool read_string(reader *reader, char name[NAME_SIZE])
{
    size_t length = 0;
    bool fits = true;
    reader->at++;
    while (!at_byte(reader, '"')) {
        if (reader->at == reader->end)
            return not_json(reader, "a string without an end");
        char character = 0;
        unsigned char byte = (unsigned char)*reader->at;
        if (byte == '\\') {
            reader->at++;
            if (!read_escape(reader, &character))
                return false;
        } else if (byte < 0x20) {
            return not_json(reader, "a control character in a string");
        } else if (byte >= 0x80) {
            if (!read_utf8(reader))
                return false;
        } else {
            character = (char)byte;
            reader->at++;
        }
        fits = fits && character != 0 && length < NAME_SIZE - 1;
        if (fits)
            name[length++] = character;
    }
    reader->at++;
    name[fits ? length : 0] = 0;
    return true;
}

static bool read_digits(reader *reader)
{
    if (!at_digit(reader))
        return not_json(reader, "a number without a digit");
    while (at_digit(reader))
        reader->at++;
    return true;
}

static bool read_number(reader *reader)
{
    if (at_byte(reader, '-'))
        reader->at++;
    if (at_byte(reader, '0')) {
        reader->at++;
        if (at_digit(reader))
            return not_json(reader, "a number that begins with 0");
    } else if (!read_digits(reader)) {
        return false;
    }
    if (at_byte(reader, '.')) {
        reader->at++;
        if (!read_digits(reader))
            return false;
    }
    if (at_byte(reader, 'e') || at_byte(reader, 'E')) {
        reader->at++;
        if (at_byte(reader, '+') || at_byte(reader, '-'))
            reader->at++;
        if (!read_digits(reader))
            return false;
    }
    return true;
}

static bool read_word(reader *reader, const char *word)
{
    size_t length = strlen(word);
    if ((size_t)(reader->end - reader->at) < length || memcmp(reader->at, word, length) != 0)
        return not_json(reader, "an unknown word");
    reader->at += length;
    return true;
}

/* The value of a member. Those that an order must have are kept in `order`, which is NULL for objects inside the order. */
static bool read_member(reader *reader, const char *name, order *order)
{
    bool is_id = order && strcmp(name, "order_id") == 0;
    bool is_total = order && strcmp(name, "total") == 0;
    if ((is_id && order->has_id) || (is_total && order->has_total))
        return fail(reader->fault, "the order has \"%s\" twice", name);

    value found;
    if (!read_value(reader, &found, NULL))
        return false;
    if (is_id) {
        order->has_id = true;
        order->id = found;
    } else if (is_total) {
        order->has_total = true;
        order->total = found;
    }
    return true;
}

static bool read_object(reader *reader, order *order)
{
    reader->at++;
    skip_space(reader);
    if (at_byte(reader, '}')) {
        reader->at++;
        return true;
    }
    for (;;) {
        char name[NAME_SIZE];
        skip_space(reader);
        if (!at_byte(reader, '"'))
            return not_json(reader, "no name of a member");
        if (!read_string(reader, name))
            return false;
        skip_space(reader);
        if (!at_byte(reader, ':'))
            return not_json(reader, "no colon after a name");
        reader->at++;
        if (!read_member(reader, name, order))
            return false;
        skip_space(reader);
        if (at_byte(reader, '}')) {
            reader->at++;
            return true;
        }
        if (!at_byte(reader, ','))
            return not_json(reader, "neither a comma nor the end of an object");
        reader->at++;
    }
}

static bool read_list(reader *reader)
{
    reader->at++;
    skip_space(reader);
    if (at_byte(reader, ']')) {
        reader->at++;
        return true;
    }
    for (;;) {
        value item;
        if (!read_value(reader, &item, NULL))
            return false;
        skip_space(reader);
        if (at_byte(reader, ']')) {
            reader->at++;
            return true;
        }
        if (!at_byte(reader, ','))
            return not_json(reader, "neither a comma nor the end of a list");
        reader->at++;
    }
}

static bool read_value(reader *reader, value *found, order *order)
{
    char name[NAME_SIZE];
    bool read;

    skip_space(reader);
    if (reader->at == reader->end)
        return not_json(reader, "a missing value");
    if (reader->depth == MAX_DEPTH)
        return fail(reader->fault, "the payload is nested deeper than %d levels", MAX_DEPTH);
    reader->depth++;
    const char *start = reader->at;
    switch (*start) {
    case '{':
        found->kind = AN_OBJECT;
        read = read_object(reader, order);
        break;
    case '[':
        found->kind = A_LIST;
        read = read_list(reader);
        break;
    case '"':
        found->kind = A_STRING;
        read = read_string(reader, name);
        break;
    case 't':
        found->kind = A_BOOLEAN;
        read = read_word(reader, "true");
        break;
    case 'f':
        found->kind = A_BOOLEAN;
        read = read_word(reader, "false");
        break;
    case 'n':
        found->kind = NULL_VALUE;
        read = read_word(reader, "null");
        break;
    default:
        if (*start != '-' && !at_digit(reader))
            return not_json(reader, "no value");
        found->kind = A_NUMBER;
        read = read_number(reader);
    }
    reader->depth--;
    found->bytes = start;
    found->length = (size_t)(reader->at - start);
    return read;
}

static bool has_number(bool present, const value *member, const char *name, char *fault)
{
    if (!present)
        return fail(fault, "the order has no \"%s\"", name);
    if (member->kind != A_NUMBER)
        return fail(fault, "\"%s\" is %s; it must be a number", name, kind_names[member->kind]);
    return true;
}

/* Decided by the digits, since a number as text has no limits: 1e-400 is above 0, though no double is it. */
static bool is_positive(const value *number)
{
    for (size_t i = 0; i < number->length; i++) {
        char byte = number->bytes[i];
        if (byte == '-' || byte == 'e' || byte == 'E')
            return false;
        if (byte >= '1' && byte <= '9')
            return true;
    }
    return false;
}

bool order_is_valid(const char *payload, size_t length, char fault[ORDER_FAULT_SIZE])
{
    if (length == 0)
        return fail(fault, "the payload is empty");

    reader reader = { .start = payload, .at = payload, .end = payload + length, .fault = fault };
    order order = { 0 };
    value whole;
    if (!read_value(&reader, &whole, &order))
        return false;
    skip_space(&reader);
    if (reader.at < reader.end)
        return not_json(&reader, "something after the value");
    if (whole.kind != AN_OBJECT)
        return fail(fault, "the payload is %s; an order is an object", kind_names[whole.kind]);

    if (!has_number(order.has_id, &order.id, "order_id", fault) || !has_number(order.has_total, &order.total, "total", fault))
        return false;
    if (!is_positive(&order.total))
        return fail(fault, "\"total\" is %.*s; it must be more than 0",
            order.total.length < NUMBER_SHOWN ? (int)order.total.length : NUMBER_SHOWN, order.total.bytes);
    return true;
}
