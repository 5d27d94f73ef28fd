//! Ids of events as PostgreSQL carries them.

use outbox_event::EventId;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo};
use sqlx::{Encode, Postgres, Type};

/// The id of an event as a parameter: TEXT, without a copy on the heap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Id(pub(super) EventId);

impl Type<Postgres> for Id {
    fn type_info() -> PgTypeInfo {
        <str as Type<Postgres>>::type_info()
    }
}

impl PgHasArrayType for Id {
    fn array_type_info() -> PgTypeInfo {
        <String as PgHasArrayType>::array_type_info()
    }
}

impl Encode<'_, Postgres> for Id {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        <&str as Encode<Postgres>>::encode(self.0.as_str(), buffer)
    }
}
