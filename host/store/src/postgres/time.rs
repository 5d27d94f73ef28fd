//! Times as PostgreSQL carries them.

use outbox_event::time::Timestamp;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueFormat, PgValueRef};
use sqlx::{Decode, Encode, Postgres, Type};

/// A point in time as a column: TIMESTAMPTZ.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment(pub(super) Timestamp);

/// 2000-01-01T00:00:00Z, from which PostgreSQL counts, in microseconds since 1970-01-01T00:00:00Z.
const EPOCH: i64 = 946_684_800_000_000;
/// The earliest time that PostgreSQL can count: 24 November 4714 BC.
const EARLIEST: i64 = -210_866_803_200_000_000;

const TIMESTAMPTZ: PgTypeInfo = PgTypeInfo::with_oid(Oid(1184));
const TIMESTAMPTZ_ARRAY: PgTypeInfo = PgTypeInfo::with_oid(Oid(1185));

impl Type<Postgres> for Moment {
    fn type_info() -> PgTypeInfo {
        TIMESTAMPTZ
    }
}

impl PgHasArrayType for Moment {
    fn array_type_info() -> PgTypeInfo {
        TIMESTAMPTZ_ARRAY
    }
}

impl Encode<'_, Postgres> for Moment {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let micros = self.0.as_micros().max(EARLIEST).saturating_sub(EPOCH);
        <i64 as Encode<Postgres>>::encode(micros, buffer)
    }
}

impl<'r> Decode<'r, Postgres> for Moment {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        match value.format() {
            // `infinity` and `-infinity` are the ends of what can be counted, here as there.
            PgValueFormat::Binary => {
                let micros = <i64 as Decode<Postgres>>::decode(value)?;
                Ok(Self(Timestamp::from_micros(micros.saturating_add(EPOCH))))
            }
            PgValueFormat::Text => Err("times are read in the binary format".into()),
        }
    }
}
