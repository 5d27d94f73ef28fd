//! Rows for tests that differ from others in a few fields.

/// `changed!(Record { attempts: 3, ..record })`: the row with other values in these fields. Rust itself accepts this syntax only in the
/// package that declares the type, because the rows are `#[non_exhaustive]`.
macro_rules! changed {
    ($row:ident { $($field:ident $(: $value:expr)?,)+ ..$base:expr }) => {{
        let mut changed: $row = $base;
        $(changed.$field = changed!(@ $field $($value)?);)+
        changed
    }};
    (@ $field:ident) => { $field };
    (@ $field:ident $value:expr) => { $value };
}
