//! The statements that read events, each with and without payloads.

/// Whether payloads and headers are read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Payloads {
    Included,
    LeftOut,
}

/// A statement that reads events, in both variants.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadStatement {
    pub(super) with_payloads: &'static str,
    pub(super) without_payloads: &'static str,
}

impl ReadStatement {
    /// The SQL of one variant.
    pub(super) const fn sql(self, payloads: Payloads) -> &'static str {
        match payloads {
            Payloads::Included => self.with_payloads,
            Payloads::LeftOut => self.without_payloads,
        }
    }
}
