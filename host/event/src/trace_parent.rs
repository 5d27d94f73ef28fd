//! The header `traceparent` of the W3C: which trace something belongs to, and what its parent is.

/// A `traceparent` that was checked: version 00, 55 characters. Anybody may have written the header: what is not exactly of
/// this form counts as none.
///
/// Source: W3C Trace Context, 3.2.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TraceParent([u8; LENGTH]);

const LENGTH: usize = 55;
/// Where the parts stand: `00-TRACE-PARENT-FLAGS`.
const TRACE: std::ops::Range<usize> = 3..35;
const PARENT: std::ops::Range<usize> = 36..52;
const FLAGS: std::ops::Range<usize> = 53..55;

impl TraceParent {
    /// Reads a header; `None` when it is not one. Of a later version what this one knows is taken.
    #[must_use]
    pub fn parse(header: &str) -> Option<Self> {
        let header = header.trim().as_bytes();
        let known: [u8; LENGTH] = header.get(..LENGTH)?.try_into().ok()?;
        let is_hex = |part: &[u8]| part.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let is_zero = |part: &[u8]| part.iter().all(|byte| *byte == b'0');
        let hyphens = [2, 35, 52].iter().all(|place| known[*place] == b'-');
        let (version, trace, parent) = (&known[..2], &known[TRACE], &known[PARENT]);
        let ends = match version {
            b"00" => header.len() == LENGTH,
            // A later version may say more.
            _ => header.get(LENGTH).is_none_or(|next| *next == b'-'),
        };
        let is_good = hyphens && ends && [version, trace, parent, &known[FLAGS]].into_iter().all(is_hex);
        (is_good && version != b"ff" && !is_zero(trace) && !is_zero(parent)).then(|| {
            let mut of_this_version = known;
            of_this_version[..2].copy_from_slice(b"00");
            Self(of_this_version)
        })
    }

    /// The header.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("checked to be hexadecimal digits and hyphens")
    }
}

#[cfg(feature = "opentelemetry")]
impl TraceParent {
    /// Of a span; `None` when it has no ids.
    #[must_use]
    pub fn of(span: &opentelemetry::trace::SpanContext) -> Option<Self> {
        use std::io::Write as _;
        let mut text = [0; LENGTH];
        let flags = span.trace_flags().to_u8();
        write!(&mut text[..], "00-{:032x}-{:016x}-{flags:02x}", span.trace_id(), span.span_id())
            .expect("the ids have 32 and 16 digits, the flags 2");
        span.is_valid().then_some(Self(text))
    }

    /// The parent, as one that is somewhere else.
    #[must_use]
    pub fn span_context(&self, state: opentelemetry::trace::TraceState) -> opentelemetry::trace::SpanContext {
        use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId};
        let part = |range| &self.as_str()[range];
        let (trace, parent) = (TraceId::from_hex(part(TRACE)), SpanId::from_hex(part(PARENT)));
        // Of the flags only the one that this version knows is passed on.
        let flags = u8::from_str_radix(part(FLAGS), 16)
            .map_or(TraceFlags::NOT_SAMPLED, |flags| TraceFlags::new(flags & TraceFlags::SAMPLED.to_u8()));
        SpanContext::new(trace.unwrap_or(TraceId::INVALID), parent.unwrap_or(SpanId::INVALID), flags, true, state)
    }
}

impl std::fmt::Debug for TraceParent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_header_of_the_standard_is_read() {
        let read = |header: &str| TraceParent::parse(header).map(|parent| parent.as_str().to_owned());
        assert_eq!(read(GOOD).as_deref(), Some(GOOD));
        assert_eq!(read(&format!(" {GOOD} ")).as_deref(), Some(GOOD));
        let later = GOOD.replacen("00", "cc", 1);
        assert_eq!(read(&later).as_deref(), Some(GOOD), "passed on as what we know of it");
        assert_eq!(read(&format!("{later}-more")).as_deref(), Some(GOOD));
    }

    #[test]
    fn whatever_else_stands_there_is_none() {
        let zero_trace = GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32));
        let zero_parent = GOOD.replace("00f067aa0ba902b7", &"0".repeat(16));
        let bad = [
            String::new(),
            "00-1".to_owned(),
            GOOD[..54].to_owned(),
            format!("{GOOD}-more"),
            format!("{GOOD}0"),
            GOOD.to_uppercase(),
            GOOD.replacen("00", "ff", 1),
            GOOD.replace('-', "_"),
            GOOD.replace('b', "g"),
            GOOD.replace("4b", "é"),
            "é".repeat(100),
            "-".repeat(200_000),
            zero_trace,
            zero_parent,
        ];
        for header in &bad {
            assert_eq!(TraceParent::parse(header), None, "{}", header.chars().take(80).collect::<String>());
        }
    }

    #[cfg(feature = "opentelemetry")]
    #[test]
    fn it_is_the_same_after_a_way_through_a_span_but_for_flags_that_nobody_knows() {
        let parent = TraceParent::parse(&GOOD.replace("-01", "-ff")).expect("good");
        let span = parent.span_context(opentelemetry::trace::TraceState::default());
        assert!(span.is_valid() && span.is_remote() && span.is_sampled());
        assert_eq!(TraceParent::of(&span).map(|parent| parent.as_str().to_owned()).as_deref(), Some(GOOD));
        assert_eq!(TraceParent::of(&opentelemetry::trace::SpanContext::empty_context()), None);
    }
}
