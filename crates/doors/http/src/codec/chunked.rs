//! The chunked coding, taken off as the bytes come.

use weft_core::limits;

use super::{Refusal, is_token};

/// What to do with the bytes at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Framing to drop.
    pub skip: usize,
    /// Content after it; 0 if there is none yet.
    pub content: usize,
    /// Whether the body ends here.
    pub done: bool,
}

/// Where a chunked body stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunked {
    state: State,
    /// Content so far: a body has a bound even if it never says its length.
    content: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size,
    Content { left: u64 },
    AfterContent,
    Trailers { bytes: usize },
    Done,
}

impl Default for Chunked {
    fn default() -> Self {
        Self { state: State::Size, content: 0 }
    }
}

impl Chunked {
    /// Looks at the bytes at hand and says what they are. The caller drops `skip` bytes, takes
    /// `content` bytes, and comes back with more; if both are 0 and it is not done, with more than
    /// these.
    pub fn step(&mut self, bytes: &[u8]) -> Result<Step, Refusal> {
        let mut skip = 0;
        loop {
            let at_hand = &bytes[skip..];
            match self.state {
                State::Done => return Ok(Step { skip, content: 0, done: true }),
                State::Content { left } => {
                    let content = left.min(at_hand.len() as u64);
                    self.state = match left - content {
                        0 => State::AfterContent,
                        left => State::Content { left },
                    };
                    if content > 0 || at_hand.is_empty() {
                        return Ok(Step { skip, content: content as usize, done: false });
                    }
                }
                State::Size | State::AfterContent | State::Trailers { .. } => match line(at_hand)? {
                    None => return Ok(Step { skip, content: 0, done: false }),
                    Some(line) => {
                        skip += line.len() + 2;
                        self.state = self.after_line(line)?;
                    }
                },
            }
        }
    }

    fn after_line(&mut self, line: &[u8]) -> Result<State, Refusal> {
        match self.state {
            State::AfterContent if line.is_empty() => Ok(State::Size),
            State::AfterContent => Err(Refusal::malformed("a chunk is longer than its size")),
            State::Trailers { .. } if line.is_empty() => Ok(State::Done),
            State::Trailers { bytes } => {
                check_trailer(line)?;
                let bytes = bytes + line.len() + 2;
                if bytes > limits::HTTP_CHUNK_LINE_BYTES_MAX {
                    return Err(Refusal::malformed("the trailers are longer than their limit"));
                }
                Ok(State::Trailers { bytes })
            }
            _ => {
                let size = size(line)?;
                self.content = self.content.saturating_add(size);
                if self.content > limits::FILE_BYTES_MAX {
                    return Err(Refusal::malformed("the chunks are more than a file may hold"));
                }
                Ok(if size == 0 { State::Trailers { bytes: 0 } } else { State::Content { left: size } })
            }
        }
    }
}

/// Returns the line at the front, without its end; `None` if it is not whole yet.
fn line(bytes: &[u8]) -> Result<Option<&[u8]>, Refusal> {
    let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
    match end {
        Some(end) if bytes[end] == b'\n' => {
            Err(Refusal::malformed("a line among the chunks ends without CR"))
        }
        Some(end) if end > limits::HTTP_CHUNK_LINE_BYTES_MAX => Err(TOO_LONG),
        Some(end) => match bytes.get(end + 1) {
            None => Ok(None),
            Some(b'\n') => Ok(Some(&bytes[..end])),
            Some(_) => Err(Refusal::malformed("a CR stands alone among the chunks")),
        },
        None if bytes.len() > limits::HTTP_CHUNK_LINE_BYTES_MAX => Err(TOO_LONG),
        None => Ok(None),
    }
}

const TOO_LONG: Refusal = Refusal::malformed("a line among the chunks is longer than its limit");

/// Reads a size line: hexadecimal digits, then nothing or extensions, which nobody here reads.
fn size(line: &[u8]) -> Result<u64, Refusal> {
    const BAD: Refusal = Refusal::malformed("a chunk's size is malformed");
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (number, extension) = line.split_at(digits);
    if digits == 0 || digits > 16 {
        return Err(BAD);
    }
    let mut extension = extension.iter().skip_while(|byte| matches!(byte, b' ' | b'\t'));
    match extension.next() {
        None if number.len() == line.len() => {}
        Some(b';') if extension.all(|byte| matches!(byte, b'\t' | b' '..=b'~' | 0x80..)) => {}
        _ => return Err(BAD),
    }
    let text = std::str::from_utf8(number).map_err(|_| BAD)?;
    u64::from_str_radix(text, 16).map_err(|_| BAD)
}

fn check_trailer(line: &[u8]) -> Result<(), Refusal> {
    let name = line.iter().take_while(|byte| is_token(**byte)).count();
    let good = name > 0 && line.get(name) == Some(&b':');
    if good { Ok(()) } else { Err(Refusal::malformed("a trailer is malformed")) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Content, and what follows the body.
    type Decoded = (Vec<u8>, Vec<u8>);

    /// Decodes a whole body that comes in pieces of `at_once` bytes. Returns content and what is
    /// left over, or `None` if the body does not end.
    pub fn decode(body: &[u8], at_once: usize) -> Result<Option<Decoded>, Refusal> {
        let (mut chunked, mut held, mut content) = (Chunked::default(), Vec::new(), Vec::new());
        let mut pieces = body.chunks(at_once.max(1));
        loop {
            let step = chunked.step(&held)?;
            assert!(step.skip + step.content <= held.len());
            held.drain(..step.skip);
            content.extend(held.drain(..step.content));
            if step.done {
                held.extend(pieces.flatten());
                return Ok(Some((content, held)));
            }
            if step.skip == 0 && step.content == 0 {
                match pieces.next() {
                    Some(piece) => held.extend(piece),
                    None => return Ok(None),
                }
            }
        }
    }

    #[test]
    fn chunks_are_joined_however_they_come() {
        let body = b"5\r\nhello\r\n1;a=\"b\"\r\n \r\n00005 ;x\r\nworld\r\n0\r\nTrailer: x\r\n\r\nnext";
        for at_once in 1..body.len() {
            let (content, rest) = decode(body, at_once).expect("good").expect("whole");
            assert_eq!((&content[..], &rest[..]), (&b"hello world"[..], &b"next"[..]), "{at_once}");
        }
        for cut in 0..body.len() - 4 {
            assert_eq!(decode(&body[..cut], 7), Ok(None), "a body cut at {cut} is not whole");
        }
    }

    #[test]
    fn framing_that_two_servers_could_read_differently_is_refused() {
        for body in [
            "5\nhello\r\n0\r\n\r\n",
            "5\r\nhello\n0\r\n\r\n",
            "5\r\nhello0\r\n\r\n",
            "5\r\nhelloo\r\n0\r\n\r\n",
            "-1\r\n",
            "+1\r\n",
            "0x1\r\n",
            "g\r\n",
            "\r\n",
            " 5\r\nhello\r\n",
            "5 \r\nhello\r\n",
            "12345678901234567\r\n",
            "ffffffffffffffff\r\n",
            "5;\x01\r\nhello\r\n",
            "0\r\nbad trailer\r\n\r\n",
            "0\r\n: x\r\n\r\n",
            "5\r\rhello",
            "0\r\nA : b\r\n\r\n",
        ] {
            assert!(decode(body.as_bytes(), 100).is_err(), "{body:?}");
        }
        let long = format!("5;{}\r\nhello", "x".repeat(limits::HTTP_CHUNK_LINE_BYTES_MAX));
        assert!(decode(long.as_bytes(), 100).is_err());
        let trailers = format!("0\r\n{}\r\n", "a: b\r\n".repeat(1000));
        assert!(decode(trailers.as_bytes(), 100).is_err());
    }
}
