//! Signatures of webhooks. Source: Standard Webhooks 1.0, symmetric signatures.

use data_encoding::{BASE64, BASE64_NOPAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::Secret;

/// Signs with one key.
#[derive(Clone)]
pub(super) struct Signer(Hmac<Sha256>);

impl Signer {
    /// `None` when the secret is not `whsec_` and base64 of 24 to 64 bytes.
    pub(super) fn new(secret: &Secret) -> Option<Self> {
        let text = secret.reveal().trim().strip_prefix("whsec_")?.trim_end_matches('=');
        let key = BASE64_NOPAD.decode(text.as_bytes()).ok()?;
        if !(24..=64).contains(&key.len()) {
            return None;
        }
        Some(Self(Hmac::new_from_slice(&key).ok()?))
    }

    /// `v1,` and the base64 of the code over `id.timestamp.body`.
    pub(super) fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let mut code = self.0.clone();
        code.update(format!("{id}.{timestamp}.").as_bytes());
        code.update(body);
        format!("v1,{}", BASE64.encode(&code.finalize().into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_the_published_vector() {
        // Source: the specification's own libraries, https://github.com/standard-webhooks/standard-webhooks.
        let signer = Signer::new(&Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")).expect("a key");
        let signature = signer.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in
            ["", "whsec_", "whsec_c2hvcnQ=", "whsec_not base64 but long enough for a key", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]
        {
            assert!(Signer::new(&Secret::new(text)).is_none(), "{text}");
        }
    }
}
