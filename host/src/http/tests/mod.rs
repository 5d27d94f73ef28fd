//! The API over a real socket, in front of a real SQLite store.
