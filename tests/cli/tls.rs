//! A host whose connections to its server are encrypted, and what it says of a certificate that it has no reason to trust.

use std::fs;
use std::path::PathBuf;

use servers::{Database, Durability, Server};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::program::{Place, mailed};

/// Makes an authority and a certificate of it for 127.0.0.1, in the server's own directory, whose names PostgreSQL expects.
const CERTIFICATES: &str = "umask 077
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.crt
printf subjectAltName=IP:127.0.0.1 > server.ext
openssl req -newkey rsa:2048 -nodes -subj /CN=server -keyout server.key -out server.csr
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile server.ext -out server.crt";

/// A PostgreSQL that takes encrypted connections, and the certificate of its authority in a file.
struct Encrypted {
    server: Server,
    place: Place,
    authority: PathBuf,
}

impl Encrypted {
    fn start() -> Self {
        let server =
            Server::start(Database::PostgreSql, Durability::Volatile).expect("`cargo xtask test` installs the servers");
        let place = Place::at(&server.url());
        let authority = place.path().join("authority.crt");
        let certificate = run(async {
            let mut admin = PgConnection::connect(&server.url()).await.expect("it answers");
            // The server's own account makes the files, since it reads a key only if nobody else can.
            let make = format!("COPY (SELECT) TO PROGRAM 'set -e; {}'", CERTIFICATES.replace('\n', "; "));
            admin.execute(AssertSqlSafe(make)).await.expect("openssl is installed");
            for statement in ["ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()"] {
                admin.execute(statement).await.expect("the account is a superuser's");
            }
            sqlx::query_scalar::<_, String>("SELECT pg_read_file('ca.crt')").fetch_one(&mut admin).await.expect("it was made")
        });
        fs::write(&authority, certificate).expect("written");
        Self { server, place, authority }
    }

    /// The server's address with these parameters.
    fn url(&self, parameters: &str) -> String {
        format!("{}?{parameters}", self.server.url())
    }

    /// How many sessions of the program are encrypted, and how many are not.
    fn sessions(&self) -> (i64, i64) {
        const SESSIONS: &str = "SELECT count(*) FILTER (WHERE ssl), count(*) FILTER (WHERE NOT ssl)
            FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'outbox'";
        run(async {
            let mut admin = PgConnection::connect(&self.server.url()).await.expect("it answers");
            sqlx::query_as(SESSIONS).fetch_one(&mut admin).await.expect("it can be asked")
        })
    }
}

#[test]
fn a_host_delivers_over_encrypted_connections_alone_when_it_is_told_to() {
    let encrypted = Encrypted::start();
    let verified = encrypted.url(&format!("sslmode=verify-full&sslrootcert={}", encrypted.authority.display()));
    let place = Place::at(&verified);
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
fn a_certificate_of_an_unknown_authority_is_refused_without_a_word_of_the_password() {
    let encrypted = Encrypted::start();
    encrypted.place.ok(&["migrate", "up"]);
    let unverified = encrypted.url("sslmode=require");
    let unknown = encrypted.url("sslmode=verify-full");
    let elsewhere = encrypted.url(&format!("sslmode=verify-full&sslrootcert={}", encrypted.authority.display()));
    let elsewhere = elsewhere.replace("@127.0.0.1:", "@localhost:");
    let password = unverified.split([':', '@']).nth(2).expect("the URL has one");

    assert_eq!(encrypted.place.run(&["stats", "--database-url", &unverified]).code, Some(0), "asked for no proof");
    encrypted.place.plugin("order-mailer");
    for (command, url) in [(&["stats"][..], &unknown), (&["stats"], &elsewhere), (&["run", "--plugins", "plugins"], &unknown)] {
        let refused = encrypted.place.run(&[command, &["--database-url", url]].concat());

        assert_eq!(refused.code, Some(5), "{command:?}, which does not wait either: {}", refused.stderr);
        assert!(refused.stderr.contains("certificate") && refused.stderr.contains("sslrootcert"), "{}", refused.stderr);
        assert!(!refused.stderr.contains(password), "{}", refused.stderr);
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be made").block_on(future)
}
