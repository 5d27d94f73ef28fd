//! Kafka's protocol, as far as the [`Relay`](super::relay::Relay) reads and writes it: versions without tagged fields.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The requests that the relay knows, by their number in the protocol.
pub(crate) const PRODUCE: i16 = 0;
pub(crate) const METADATA: i16 = 3;
pub(crate) const API_VERSIONS: i16 = 18;

/// The requests that a relay lets through, with their lowest and highest version. At these the layouts below hold.
pub(crate) const VERSIONS: [(i16, i16, i16); 7] = [
    (PRODUCE, 3, 7),
    (1, 4, 11), // fetch
    (2, 1, 5),  // list offsets
    (METADATA, 8, 8),
    (API_VERSIONS, 0, 0),
    (19, 2, 4), // create topics
    (22, 3, 5), // initialise a producer ID; passed on as it is
];

/// Reads one message, without its length. `None` if the connection ends.
pub(crate) async fn receive(stream: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let length = stream.read_u32().await.ok()?;
    let mut message = vec![0; usize::try_from(length).ok()?];
    stream.read_exact(&mut message).await.ok()?;
    Some(message)
}

/// Writes one message with its length. `None` if the connection ends.
pub(crate) async fn send(stream: &mut (impl AsyncWrite + Unpin), message: &[u8]) -> Option<()> {
    let length = u32::try_from(message.len()).expect("messages are short");
    stream.write_all(&[&length.to_be_bytes(), message].concat()).await.ok()
}

/// The rest of a message. Reading beyond its end is a mistake of the test.
pub(crate) struct Reader<'m>(pub(crate) &'m [u8]);

impl<'m> Reader<'m> {
    fn take(&mut self, count: usize) -> &'m [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    pub(crate) fn i8(&mut self) -> i8 {
        i8::from_be_bytes(self.take(1).try_into().expect("1 byte"))
    }

    pub(crate) fn i16(&mut self) -> i16 {
        i16::from_be_bytes(self.take(2).try_into().expect("2 bytes"))
    }

    pub(crate) fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().expect("4 bytes"))
    }

    /// `None` for null.
    pub(crate) fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.i16()).ok()?;
        Some(String::from_utf8(self.take(length).to_vec()).expect("UTF-8"))
    }

    pub(crate) fn bytes(&mut self) -> &'m [u8] {
        let length = usize::try_from(self.i32()).unwrap_or(0);
        self.take(length)
    }

    /// The elements of a list, read one after the other.
    pub(crate) fn list<T>(&mut self, mut element: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.i32()).map(|_| element(self)).collect()
    }
}

/// A message that is being written.
#[derive(Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn i8(&mut self, value: i8) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    pub(crate) fn i16(&mut self, value: i16) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    pub(crate) fn i32(&mut self, value: i32) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    pub(crate) fn i64(&mut self, value: i64) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    pub(crate) fn text(&mut self, text: Option<&str>) -> &mut Self {
        match text {
            None => self.i16(-1),
            Some(text) => self.i16(i16::try_from(text.len()).expect("short")).raw(text.as_bytes()),
        }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.count(bytes.len()).raw(bytes)
    }

    /// The number of elements of a list, which follow.
    pub(crate) fn count(&mut self, count: usize) -> &mut Self {
        self.i32(i32::try_from(count).expect("few"))
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }
}
