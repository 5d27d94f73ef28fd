"""A shop in another language: it writes orders and the events that tell of them, with plain SQL and its database's own driver.

    languages.py DATABASE ADDRESS INSERT

DATABASE is `sqlite`, `postgres` or `mysql`, ADDRESS a file or a URL, INSERT the statement that the README documents. One
transaction is rolled back, one is committed. What is in them is checked by languages.rs beside this file.
"""

import json
import sys
import time
from urllib.parse import unquote, urlsplit

# Text with all that a careless quotation would break, and bytes that are no text at all.
TEXT = '{"note": "a\\nb \\\\ \' \\" %s ? ünï ☃ 🦀"}'
BYTES = bytes(range(256))
HEADERS = json.dumps({"source": "python", "grüße": "aus Köln ☃"})


def connect(database, address):
    """A connection; the drivers open a transaction by themselves, and leave its end to us."""
    if database == "sqlite":
        import sqlite3

        return sqlite3.connect(address)
    if database == "postgres":
        import psycopg

        return psycopg.connect(address)
    import pymysql

    url = urlsplit(address)
    return pymysql.connect(
        host=url.hostname,
        port=url.port or 3306,
        user=unquote(url.username or ""),
        password=unquote(url.password or ""),
        database=url.path.lstrip("/"),
        charset="utf8mb4",
    )


# How each database writes what is not the same everywhere: a value's place, the bytes of a text, and a time in an hour.
MARK = {"sqlite": "?", "postgres": "%s", "mysql": "%s"}
TEXT_BYTES = {"sqlite": "?", "postgres": "convert_to(%s, 'UTF8')", "mysql": "%s"}
IN_AN_HOUR = {
    "sqlite": str(time.time_ns() // 1_000 + 3_600_000_000),  # microseconds since 1970
    "postgres": "now() + interval '1 hour'",
    "mysql": "UTC_TIMESTAMP(6) + INTERVAL 1 HOUR",
}


def place_order(cursor, database, number, documented=None):
    """Writes an order and one event that tells of it: the change and the event are in one transaction, both or neither."""
    mark, text = MARK[database], TEXT_BYTES[database]
    cursor.execute(f"INSERT INTO orders (id, total) VALUES ({mark}, {mark})", (number, 99.5))
    if documented:
        cursor.execute(documented)
        return
    cursor.execute(
        "INSERT INTO outbox_event (event_type, aggregate_type, aggregate_id, payload) "
        f"VALUES ('OrderPlaced', 'Order', {mark}, {text})",
        (str(number), TEXT),
    )


def main(database, address, documented):
    connection = connect(database, address)
    cursor = connection.cursor()
    mark = MARK[database]

    place_order(cursor, database, 13)
    connection.rollback()

    place_order(cursor, database, 42, documented)
    place_order(cursor, database, 43)
    cursor.execute(
        "INSERT INTO outbox_event (event_type, aggregate_type, aggregate_id, tenant_id, headers, content_type, payload) "
        f"VALUES ('OrderPlaced', 'Order', {mark}, {mark}, {mark}, {mark}, {mark})",
        ("ördér 44", "☃", HEADERS, "application/octet-stream", BYTES),
    )
    cursor.execute(
        "INSERT INTO outbox_event (event_type, aggregate_type, aggregate_id, payload, available_at) "
        f"VALUES ('OrderPlaced', 'Order', 'later', {mark}, {IN_AN_HOUR[database]})",
        (b"1",),
    )
    connection.commit()
    connection.close()


main(*sys.argv[1:])
