//! A host whose connections to its server are encrypted, and what it says of a certificate that it has no reason to trust.

use std::fs;
use std::path::PathBuf;

use servers::{Database, Durability, Server};
use sqlx::{Connection, Executor, MySqlConnection, PgConnection};

use crate::program::{Place, mailed, run};

/// A server that takes encrypted connections, and the certificate of its authority in a file.
struct Encrypted {
    database: Database,
    server: Server,
    place: Place,
    authority: PathBuf,
}

impl Encrypted {
    fn start(database: Database) -> Self {
        let mut server = Server::start(database, Durability::Volatile).expect("`cargo xtask test` installs the servers");
        let certificate = server.encrypt().expect("openssl is installed");
        let place = Place::at(&server.url());
        let authority = place.path().join("authority.crt");
        fs::write(&authority, certificate).expect("written");
        Self { database, server, place, authority }
    }

    /// The server's address, where a connection is encrypted and the server's name is proven by an authority that the machine
    /// knows, or by this one.
    fn verified(&self, authority: bool) -> String {
        let (mode, file) = match self.database {
            Database::PostgreSql => ("sslmode=verify-full", "&sslrootcert="),
            Database::MariaDb => ("ssl-mode=VERIFY_IDENTITY", "&ssl-ca="),
        };
        let file = if authority { format!("{file}{}", self.authority.display()) } else { String::new() };
        format!("{}?{mode}{file}", self.server.url())
    }

    /// The server's address, where it is encrypted and nothing is proven.
    fn unverified(&self) -> String {
        let mode = match self.database {
            Database::PostgreSql => "sslmode=require",
            Database::MariaDb => "ssl-mode=REQUIRED",
        };
        format!("{}?{mode}", self.server.url())
    }

    /// What an address says where the certificate of the authority belongs.
    fn parameter(&self) -> &'static str {
        match self.database {
            Database::PostgreSql => "sslrootcert",
            Database::MariaDb => "ssl-ca",
        }
    }

    /// From now on the server takes no connection that is not encrypted.
    fn refuse_others(&self) {
        if self.database == Database::MariaDb {
            run(async {
                let mut admin = MySqlConnection::connect(&self.unverified()).await.expect("it answers");
                admin.execute("SET GLOBAL require_secure_transport = ON").await.expect("the account may do everything");
            });
        }
    }

    /// How many sessions of the program are encrypted, and how many are not. MariaDB does not tell, and refuses the others.
    fn sessions(&self) -> (i64, i64) {
        const SESSIONS: &str = "SELECT count(*) FILTER (WHERE ssl), count(*) FILTER (WHERE NOT ssl)
            FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'outbox'";
        if self.database == Database::MariaDb {
            return (1, 0);
        }
        run(async {
            let mut admin = PgConnection::connect(&self.server.url()).await.expect("it answers");
            sqlx::query_as(SESSIONS).fetch_one(&mut admin).await.expect("it can be asked")
        })
    }
}

#[test]
fn a_host_delivers_over_encrypted_connections_alone_when_it_is_told_to_on_postgres() {
    a_host_delivers_over_encrypted_connections_alone_when_it_is_told_to(&Encrypted::start(Database::PostgreSql));
}

#[test]
fn a_host_delivers_over_encrypted_connections_alone_when_it_is_told_to_on_mariadb() {
    a_host_delivers_over_encrypted_connections_alone_when_it_is_told_to(&Encrypted::start(Database::MariaDb));
}

fn a_host_delivers_over_encrypted_connections_alone_when_it_is_told_to(encrypted: &Encrypted) {
    encrypted.refuse_others();
    let place = Place::at(&encrypted.verified(true));
    place.ok(&["migrate", "up"]);
    let order = r#"{"order_id":42,"total":9.5}"#;
    place.ok(&["event", "emit", "--type", "OrderPlaced", "--aggregate-type", "Order", "--payload", order]);

    let mut host = place.host(&[("OUTBOX_POLLER__INTERVAL", "100ms")]);
    host.wait_until_it_said("the mail", |line| mailed(line).is_some()); // maybe before it was ready
    place.wait_for("done", 1);

    let (safe, open) = encrypted.sessions();
    assert!(safe > 0 && open == 0, "{safe} encrypted sessions and {open} others");
    host.signal("TERM");
    assert_eq!(host.end().0.code(), Some(0));
}

#[test]
fn a_certificate_of_an_unknown_authority_or_for_another_name_is_refused_without_a_word_of_the_password_on_postgres() {
    a_certificate_that_proves_nothing_is_refused(&Encrypted::start(Database::PostgreSql));
}

#[test]
fn a_certificate_of_an_unknown_authority_or_for_another_name_is_refused_without_a_word_of_the_password_on_mariadb() {
    a_certificate_that_proves_nothing_is_refused(&Encrypted::start(Database::MariaDb));
}

fn a_certificate_that_proves_nothing_is_refused(encrypted: &Encrypted) {
    encrypted.place.ok(&["migrate", "up"]);
    let (unverified, unknown) = (encrypted.unverified(), encrypted.verified(false));
    let elsewhere = encrypted.verified(true).replace("@127.0.0.1:", "@localhost:");
    let password = unverified.split([':', '@']).nth(2).expect("the URL has one");

    assert_eq!(encrypted.place.run(&["stats", "--database-url", &unverified]).code, Some(0), "asked for no proof");
    encrypted.place.plugin("order-mailer");
    for (command, url) in [(&["stats"][..], &unknown), (&["stats"], &elsewhere), (&["run", "--plugins", "plugins"], &unknown)] {
        let refused = encrypted.place.run(&[command, &["--database-url", url]].concat());

        assert_eq!(refused.code, Some(5), "{command:?}, which does not wait either: {}", refused.stderr);
        let names_it = refused.stderr.contains("certificate") && refused.stderr.contains(encrypted.parameter());
        assert!(names_it, "{command:?} {url}: {}", refused.stderr);
        assert!(!refused.stderr.contains(password) && !refused.stdout.contains(password), "{}", refused.stderr);
    }
}
