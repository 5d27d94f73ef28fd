//! `outbox doctor --grants`, followed to the letter from an empty database on.

use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection};
use url::Url;

use crate::home::Home;
use crate::program::{Ended, Place, run};

const PASSWORD: &str = "for-a-test";

/// An address with another database and another user.
fn address(of: &str, database: &str, user: Option<&str>) -> String {
    let mut url = Url::parse(of).expect("an address");
    url.set_path(database);
    if let Some(user) = user {
        url.set_username(user).expect("it has a host");
        url.set_password(Some(PASSWORD)).expect("it has a host");
    }
    url.to_string()
}

#[expect(clippy::disallowed_methods, reason = "tests are configured by cargo xtask test, through the environment")]
fn server(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} must name a server; `cargo xtask test` starts one"))
}

/// As a DBA runs them.
fn on_postgres(url: &str, sql: &str) {
    run(async {
        let mut dba = PgConnection::connect(url).await.expect("the server answers");
        let ran = dba.execute(AssertSqlSafe(sql.to_owned())).await;
        ran.unwrap_or_else(|error| panic!("{error}: {sql}"));
        dba.close().await.expect("closes");
    });
}

/// A database and users of PostgreSQL, dropped with this value.
struct Empty {
    server: String,
    database: String,
    users: [String; 2],
}

impl Empty {
    fn new() -> Self {
        let server = server("OUTBOX_TEST_POSTGRES_URL");
        let database = format!("outbox_test_{}_grants", std::process::id());
        let users = ["shop", "writer"].map(|user| format!("{database}_{user}"));
        on_postgres(&server, &format!("CREATE DATABASE {database}"));
        for user in &users {
            on_postgres(&server, &format!("CREATE ROLE {user} LOGIN PASSWORD '{PASSWORD}'"));
        }
        let empty = Self { server, database, users };
        // As PostgreSQL has it since its version 15.
        empty.dba("REVOKE CREATE ON SCHEMA public FROM PUBLIC");
        empty
    }

    fn url(&self, user: &str) -> String {
        address(&self.server, &self.database, Some(user))
    }

    fn dba(&self, sql: &str) {
        on_postgres(&address(&self.server, &self.database, None), sql);
    }
}

impl Drop for Empty {
    fn drop(&mut self) {
        on_postgres(&self.server, &format!("DROP DATABASE {} WITH (FORCE)", self.database));
        for user in &self.users {
            on_postgres(&self.server, &format!("DROP ROLE {user}"));
        }
    }
}

/// The statement that an error names as its last step, such as `GRANT outbox_migrator TO shop`.
fn granting(ended: &Ended) -> &str {
    let line = ended
        .stderr
        .lines()
        .find(|line| line.contains("this statement lets the user run the command: "))
        .unwrap_or_else(|| panic!("it does not say what helps: {}", ended.stderr));
    line.split_once("command: ").expect("it was found").1
}

const EMIT: [&str; 6] = ["event", "emit", "--type", "OrderPlaced", "--payload", "{}"];

#[test]
fn an_ordinary_user_of_an_empty_postgresql_database_gets_to_its_first_event_by_the_printed_steps() {
    let empty = Empty::new();
    let (shop, writer) = (Place::at(&empty.url(&empty.users[0])), Place::at(&empty.url(&empty.users[1])));

    let refused = shop.run(&["migrate", "up"]);
    assert!(refused.stderr.contains("outbox doctor --grants"), "{}", refused.stderr);
    let cause = refused.stderr.lines().find(|line| line.contains("permission denied")).expect("it says why");
    assert!(!cause.contains("at line"), "that is a line of the server's source: {cause}");
    let grants = shop.ok(&["doctor", "--grants"]);
    empty.dba(&grants);
    empty.dba(granting(&refused));
    shop.ok(&["migrate", "up"]);
    empty.dba(&grants);

    let refused = writer.run(&EMIT);
    assert_eq!(granting(&refused), format!("GRANT outbox_writer TO {}", empty.users[1]));
    empty.dba(granting(&refused));
    writer.ok(&EMIT);
    shop.ok(&["migrate", "up"]);
}

/// Runs a script line by line until something fails, as the client does; the error of that line.
fn on_mysql(url: &str, script: &str) -> Result<(), String> {
    run(async {
        let mut dba = MySqlConnection::connect(url).await.expect("the server answers");
        let uncommented: String =
            script.lines().map(|line| line.split("--").next().unwrap_or_default().to_owned() + "\n").collect();
        for statement in uncommented.split(';').map(str::trim).filter(|statement| !statement.is_empty()) {
            let ran = sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut dba).await;
            ran.map_err(|error| format!("{statement}: {error}"))?;
        }
        dba.close().await.expect("closes");
        Ok(())
    })
}

/// Accounts of MySQL, dropped with this value.
struct Accounts<'h> {
    home: &'h Home,
    users: [&'h str; 2],
}

impl Accounts<'_> {
    fn each(&self, before: &str, after: &str) {
        self.users.iter().for_each(|user| self.home.execute(&format!("{before} '{user}'@'%' {after}")));
    }
}

impl Drop for Accounts<'_> {
    fn drop(&mut self) {
        self.each("DROP USER", "");
    }
}

#[test]
fn an_ordinary_account_of_an_empty_mysql_database_gets_to_its_first_event_by_the_printed_steps() {
    let home = Home::on_mysql();
    let dba = |sql: &str| on_mysql(home.url(), sql);
    let database = home.url().split('?').next().expect("an address").rsplit_once('/').expect("a database").1.to_owned();
    let place = Place::at(home.url());
    while place.run(&["migrate", "down", "--yes"]).stdout.contains("APPLIED AT") {}
    let [shop, writer] = ["s", "w"].map(|user| format!("outbox_{}_{user}", std::process::id()));
    let accounts = Accounts { home: &home, users: [&shop, &writer] };
    accounts.each("CREATE USER", &format!("IDENTIFIED BY '{PASSWORD}'"));
    // Whoever has no right at all in a database is not let in.
    accounts.each(&format!("GRANT CREATE TEMPORARY TABLES ON {database}.* TO"), "");
    let place_of = |user| Place::at(&address(home.url(), &database, Some(user)));
    let grant = |refused: &Ended| {
        let printed = granting(refused);
        dba(printed).or_else(|_| dba(&printed.replace(" FOR ", " TO "))).expect("MariaDB or MySQL");
    };

    let grants = place.ok(&["doctor", "--grants"]);
    let stopped = dba(&grants).expect_err("the tables are missing, which the script says");
    assert!(stopped.contains("TO outbox_writer"), "the migrator has all of its rights before: {stopped}");
    let (shop, writer) = (place_of(&shop), place_of(&writer));
    grant(&shop.run(&["migrate", "up"]));
    shop.ok(&["migrate", "up"]);
    dba(&grants).expect("the tables are there");

    grant(&writer.run(&EMIT));
    writer.ok(&EMIT);
    let examined = writer.run(&["doctor", "--output", "json"]).stdout;
    assert!(examined.contains(&format!("GRANT outbox_dispatcher TO '{}'@'%'", accounts.users[1])), "{examined}");
}
