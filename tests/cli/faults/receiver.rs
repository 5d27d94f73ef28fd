//! The receivers of relayed events, one for each host, so that a delivery shows its host.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use super::ledger::{Ledger, lock};

/// The path of the sink that faults disturb.
const ROUGH: &str = "/rough";

pub(super) struct Receiver {
    addresses: Vec<SocketAddr>,
    shared: Arc<Shared>,
}

struct Shared {
    ledger: Arc<Ledger>,
    /// The hosts that cannot reach the sink `rough`.
    cut_off: Mutex<BTreeSet<usize>>,
    /// The IDs of events that are refused.
    refused: Mutex<BTreeSet<String>>,
}

impl Receiver {
    /// Its threads end with the process of the test.
    pub(super) fn start(hosts: usize, ledger: Arc<Ledger>) -> Self {
        let shared = Arc::new(Shared { ledger, cut_off: Mutex::default(), refused: Mutex::default() });
        let listen = |host: usize| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
            let address = listener.local_addr().expect("it is bound");
            let shared = shared.clone();
            thread::spawn(move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    let shared = shared.clone();
                    thread::spawn(move || shared.answer(stream, host));
                }
            });
            address
        };
        Self { addresses: (0..hosts).map(listen).collect(), shared }
    }

    /// The origin for this host, such as `http://127.0.0.1:40123`.
    pub(super) fn origin(&self, host: usize) -> String {
        format!("http://{}", self.addresses[host])
    }

    /// Cuts a host off from the sink `rough`, or lets it through again.
    pub(super) fn set_cut_off(&self, host: usize, is_cut_off: bool) {
        let mut cut_off = lock(&self.shared.cut_off);
        if is_cut_off {
            cut_off.insert(host);
        } else {
            cut_off.remove(&host);
        }
    }

    /// Refuses an event from now on, or takes it again.
    pub(super) fn set_refused(&self, id: &str, is_refused: bool) {
        let mut refused = lock(&self.shared.refused);
        if is_refused {
            refused.insert(id.to_owned());
        } else {
            refused.remove(id);
        }
    }
}

impl Shared {
    /// Reads one request and answers it. A host that is cut off gets no answer.
    fn answer(&self, mut stream: TcpStream, host: usize) {
        let Some(head) = head_of_request(&mut stream) else { return };
        let mut lines = head.lines();
        let path = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default();
        if path == ROUGH && lock(&self.cut_off).contains(&host) {
            return;
        }
        let id = lines.find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("event-id").then(|| value.trim())
        });
        let Some(id) = id else { return };
        let is_refused = lock(&self.refused).contains(id);
        if !is_refused {
            self.ledger.delivered(id, host);
        }
        let status = if is_refused { "422 Refused" } else { "200 Taken" };
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        // The host may be gone.
        let _ = stream.write_all(answer.as_bytes());
    }
}

/// Reads a whole request; returns its head. `None` if the connection ends before.
fn head_of_request(stream: &mut TcpStream) -> Option<String> {
    let (mut taken, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut piece).ok().filter(|count| *count > 0)?;
        taken.extend(&piece[..count]);
        let text = String::from_utf8_lossy(&taken);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        if body.len() >= length.unwrap_or(0) {
            return Some(head.to_owned());
        }
    }
}
