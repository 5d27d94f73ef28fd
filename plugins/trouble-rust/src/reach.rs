//! Trouble that reaches for what no listener has: files, the network, names, the environment. Dead with the reason `reached
//! nothing`, or with what it reached.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind::ConnectionRefused;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};

use outbox_sdk::prelude::*;

pub(crate) fn files(_: &Event) -> Answer {
    told([
        ("read a file", File::open("/etc/passwd").is_ok()),
        ("read a file beside it", File::open("outbox.db").is_ok()),
        ("wrote a file", OpenOptions::new().create(true).append(true).open("/tmp/reached").is_ok()),
        ("listed a directory", std::fs::read_dir("/").is_ok()),
        ("made a directory", std::fs::create_dir("reached").is_ok()),
        ("knew where it is", std::fs::metadata(".").is_ok()),
    ])
}

pub(crate) fn sockets(_: &Event) -> Answer {
    let any = SocketAddr::from(([0, 0, 0, 0], 0));
    let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
    told([
        ("listened", TcpListener::bind(any).is_ok()),
        // Refused is an answer too: of a machine, and not of the host.
        ("connected", TcpStream::connect(local(1)).map_or_else(|error| error.kind() == ConnectionRefused, |_| true)),
        ("sent", UdpSocket::bind(any).and_then(|socket| socket.send_to(b"x", local(9))).is_ok()),
    ])
}

pub(crate) fn names(_: &Event) -> Answer {
    told(["localhost:80", "example.com:443"].map(|name| ("looked a name up", name.to_socket_addrs().is_ok())))
}

pub(crate) fn environment(_: &Event) -> Answer {
    told([
        ("read a variable", std::env::vars_os().next().is_some()),
        ("read an argument", std::env::args_os().next().is_some()),
    ])
}

fn told<const N: usize>(tries: [(&str, bool); N]) -> Answer {
    let reached: Vec<&str> = tries.into_iter().filter(|(_, reached)| *reached).map(|(what, _)| what).collect();
    Ok(dead(if reached.is_empty() { "reached nothing".to_owned() } else { reached.join(", ") }))
}
