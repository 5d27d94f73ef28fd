//! Where requests may go: to the granted hosts and to public addresses, however they are spelt.

use super::*;

#[tokio::test]
async fn what_is_not_granted_is_refused_with_the_line_to_add_and_nothing_is_connected() {
    let server = Server::echoing().await;
    let mut guest = guest("allow = ['https://api.example.com']", &server, None);
    let (kind, message) = refused(&mut guest, request(server.url("localhost"))).await;
    assert_eq!(kind, RefusalKind::NotGranted);
    let line = format!("add `\"http://localhost:{}\"` to http.allow in mailer.toml", server.port);
    assert!(message.ends_with(&line), "{message}");
    assert_eq!(server.connections.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn no_spelling_of_a_local_address_is_connected_to() {
    let server = Server::echoing().await;
    let hosts = [
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "0x7f000001",
        "0x7f.1",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "0177.1",
        "2130706433",
        "017700000001",
        "127.000.000.001",
        "127.0.0.1.",
        "127.255.255.254",
        "0.0.0.0",
        "0",
        "0x0",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "LocalHost.",
        "ip6-localhost",
    ];
    for host in hosts {
        // Granted by its text, so that only the address is left to refuse it.
        let url = server.url(host);
        let Ok(mut guest) = std::panic::catch_unwind(|| guest(&format!("allow = ['http://{host}:PORT']"), &server, None))
        else {
            panic!("{host} is no host that can be granted");
        };
        let (kind, message) = refused(&mut guest, request(url)).await;
        let by_address = kind == RefusalKind::NotGranted && message.contains("not public");
        // Some systems do not take every spelling for an address.
        let unknown = kind == RefusalKind::Unavailable && message.contains("could not be resolved");
        assert!(by_address || unknown, "{host}: {kind:?} {message}");
    }
    assert_eq!(server.connections.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn no_spelling_of_another_host_passes_for_a_granted_one() {
    let server = Server::echoing().await;
    let mut guest = guest("allow = ['http://good.example:PORT']\nallow_private = ['0.0.0.0/0', '::/0']", &server, None);
    let port = server.port;
    for url in [
        format!("http://localhost:{port}/"),
        format!("http://good.example@localhost:{port}/"),
        format!("http://good.example:{port}@localhost:{port}/"),
        format!("http://good.example%40localhost:{port}/"),
        format!("http://localhost:{port}#good.example:{port}/"),
        format!("http://localhost:{port}?good.example:{port}/"),
        format!("http://localhost:{port}\\@good.example:{port}/"),
        format!("http://good.example:{port}.localhost/"),
        format!("http://good.example.localhost:{port}/"),
        format!("http://good.example\t@localhost:{port}/"),
        format!("http://good.example\r\nHost: localhost:{port}/"),
        format!("http://good.example:{port}\u{3002}localhost/"),
        format!("//good.example:{port}/"),
        format!("good.example:{port}"),
        "http:///etc/passwd".to_owned(),
        "file:///etc/passwd".to_owned(),
        "gopher://good.example/".to_owned(),
        "http://good.example/".to_owned(),
        format!("https://good.example:{port}/"),
        format!("http://good.example:{}/", u32::from(port) + 65_536),
        format!("http://g\u{43e}\u{43e}d.example:{port}/"),
        String::new(),
        "/".to_owned(),
    ] {
        let (kind, message) = refused(&mut guest, request(url.clone())).await;
        assert!(matches!(kind, RefusalKind::NotGranted | RefusalKind::Invalid), "{url:?}: {kind:?} {message}");
    }
    assert_eq!(server.connections.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_name_is_resolved_once_for_each_connection_and_every_answer_is_looked_at() {
    let server = Server::start(|_, mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").await;
        None
    })
    .await;
    let granted = "allow = ['http://api.example:PORT']\nallow_private = ['127.0.0.1']";
    let flipping = resolver(&[&["127.0.0.1"], &["127.0.0.2"], &["169.254.169.254", "10.0.0.1"]]);
    let mut guest = guest(granted, &server, Some(flipping.clone()));
    assert_eq!(sent(&mut guest, request(server.url("api.example"))).await.unwrap().status, 200);
    assert_eq!(flipping.1.load(Ordering::Relaxed), 1, "what was looked at is what was connected to");
    for _ in 0..2 {
        let (kind, message) = refused(&mut guest, request(server.url("api.example"))).await;
        assert_eq!(kind, RefusalKind::NotGranted);
        assert!(message.contains("not public") && !message.contains("169.254") && !message.contains("127.0"), "{message}");
    }
    assert_eq!(server.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_private_address_beside_a_public_one_is_left_out() {
    let server = Server::echoing().await;
    let granted = "allow = ['http://api.example:PORT']\nallow_private = ['127.0.0.1']";
    // 127.0.0.2 would answer too.
    let mut guest = guest(granted, &server, Some(resolver(&[&["127.0.0.2", "::ffff:127.0.0.1"]])));
    let response = sent(&mut guest, request(server.url("api.example"))).await.unwrap();
    assert_eq!(response.status, 200);
}

#[tokio::test]
async fn a_redirect_is_a_response_and_nobody_follows_it() {
    let metadata = "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest/\r\nContent-Length: 0\r\n\r\n";
    let server = Server::answering(metadata).await;
    let mut guest = guest(LOCAL, &server, None);
    let response = sent(&mut guest, request(server.url("localhost"))).await.unwrap();
    assert_eq!(response.status, 302);
    assert!(response.headers.contains(&("location".to_owned(), "http://169.254.169.254/latest/".to_owned())));
    let location = response.headers.iter().find(|(name, _)| name == "location").unwrap().1.clone();
    assert_eq!(refused(&mut guest, request(location)).await.0, RefusalKind::NotGranted);
}
