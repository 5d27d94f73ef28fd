//! Reads due events, even if the database cannot return the payload of one of them.

use super::Claims;
use crate::metrics::Metrics;
use crate::store::{ReadEvent, ReadRequest, Store, StoreError};

/// The most rows of a read without payloads. Their claims return all payloads at once, and MySQL does not tell their sizes before, so that
/// this number also bounds the memory that they take.
const MOST_WITHOUT_PAYLOADS: u32 = 8;

/// Reads due events. Also returns which of them must be claimed.
///
/// If one row may be the reason why the read fails, for example because its payload is damaged, reads the first rows again without
/// payloads. Each of these events is claimed: claims find the row by halving, and let it rest.
pub(super) async fn read_due(
    store: &dyn Store,
    request: &ReadRequest,
    claims: Claims,
    metrics: &Metrics,
) -> Result<(Vec<ReadEvent>, Claims), StoreError> {
    let error = match store.read(request).await {
        Ok(read) => return Ok((read, claims)),
        Err(error) => error,
    };
    metrics.reads_failed.increment();
    if !error.may_concern_rows() {
        return Err(error);
    }
    let limit = request.limit.min(MOST_WITHOUT_PAYLOADS);
    match store.read_without_payloads(&ReadRequest { limit, ..request.clone() }).await {
        Ok(read) => {
            metrics.db_error(&error);
            Ok((read, Claims::AllForPayloads))
        }
        // The rows are not the reason, or cannot be told apart.
        Err(_) => Err(error),
    }
}
