//! The kinds of databases, and what an address of each looks like.

use clap::ValueEnum;
use outbox::StoreError;
#[cfg(feature = "mysql")]
use outbox::store::mysql::MySqlOptions;
#[cfg(feature = "postgres")]
use outbox::store::postgres::PostgresOptions;
use outbox::store::sqlite::SqliteOptions;

/// A kind of database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A file
    #[default]
    Sqlite,
    /// A PostgreSQL server
    Postgres,
    /// A MySQL or MariaDB server
    Mysql,
}

impl Kind {
    /// The kind that an address asks for; `None` when it is the address of none.
    pub(crate) fn of(url: &str) -> Option<Self> {
        match url.split_once(':')?.0 {
            "sqlite" => Some(Self::Sqlite),
            "postgres" | "postgresql" => Some(Self::Postgres),
            "mysql" | "mariadb" => Some(Self::Mysql),
            _ => None,
        }
    }

    /// Its name, as its makers write it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
            Self::Mysql => "MySQL",
        }
    }

    /// What an address of it looks like.
    pub(super) const fn example(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite:outbox.db",
            Self::Postgres => "postgres://user:password@host:5432/database",
            Self::Mysql => "mysql://user:password@host:3306/database",
        }
    }

    /// What the driver says of an address of this kind.
    pub(super) fn checked(self, url: &str) -> Result<(), StoreError> {
        match self {
            Self::Sqlite => SqliteOptions::from_url(url).map(drop),
            #[cfg(feature = "postgres")]
            Self::Postgres => PostgresOptions::from_url(url).map(drop),
            #[cfg(feature = "mysql")]
            Self::Mysql => MySqlOptions::from_url(url).map(drop),
            #[cfg(not(all(feature = "mysql", feature = "postgres")))]
            _ => Ok(()), // opening it is refused
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_of_an_address_tells_the_kind() {
        assert_eq!(Kind::of("sqlite:outbox.db"), Some(Kind::Sqlite));
        assert_eq!(Kind::of("postgresql://db/shop"), Some(Kind::Postgres));
        assert_eq!(Kind::of("mariadb://db/shop"), Some(Kind::Mysql));
        assert_eq!((Kind::of("outbox.db"), Kind::of("oracle://db")), (None, None));
    }
}
