//! Whether the other end of an HTTP/2 connection has said that it closes it.

/// Number of bytes that are kept: a GOAWAY frame with a short reason.
const KEPT: usize = 64;
/// Size of the head of a frame: a length of three bytes, the type, flags, and a stream of four bytes.
const HEAD: usize = 9;
const GOAWAY: u8 = 7;

/// The last bytes that came over a connection.
#[derive(Debug)]
pub struct LastBytes {
    bytes: [u8; KEPT],
    len: usize,
}

impl Default for LastBytes {
    fn default() -> Self {
        Self { bytes: [0; KEPT], len: 0 }
    }
}

impl LastBytes {
    /// Adds bytes.
    pub fn add(&mut self, new: &[u8]) {
        let new = &new[new.len().saturating_sub(KEPT)..];
        let kept = self.len.min(KEPT - new.len());
        self.bytes.copy_within(self.len - kept..self.len, 0);
        self.bytes[kept..kept + new.len()].copy_from_slice(new);
        self.len = kept + new.len();
    }

    /// Whether the last frame was a GOAWAY. A program that is killed sends none.
    pub fn say_goodbye(&self) -> bool {
        let bytes = &self.bytes[..self.len];
        (0..self.len.saturating_sub(HEAD - 1)).any(|start| {
            let head = &bytes[start..start + HEAD];
            let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
            head[3] == GOAWAY && head[4..] == [0; 5] && length >= 8 && start + HEAD + length == self.len
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A GOAWAY frame with this reason.
    fn goaway(reason: &[u8]) -> Vec<u8> {
        let length = 8 + reason.len() as u8;
        [&[0, 0, length, GOAWAY, 0, 0, 0, 0, 0], &[0; 8][..], reason].concat()
    }

    #[test]
    fn a_goodbye_is_found_however_it_arrives() {
        for reason in [&b""[..], b"Client is gone"] {
            let frame = goaway(reason);
            for before in [0, 1, 40, 500] {
                for split in 0..=frame.len() {
                    let mut last = LastBytes::default();
                    last.add(&vec![9; before]);
                    last.add(&frame[..split]);
                    assert_eq!(last.say_goodbye(), split == frame.len(), "{split} after {before}");
                    last.add(&frame[split..]);
                    assert!(last.say_goodbye(), "{split} after {before}");
                }
            }
        }
    }

    #[test]
    fn other_ends_are_no_goodbye() {
        let mut last = LastBytes::default();
        assert!(!last.say_goodbye());
        last.add(&[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(!last.say_goodbye(), "a ping");
        last.add(&goaway(b""));
        last.add(&[0]);
        assert!(!last.say_goodbye(), "something came after it");
    }
}
