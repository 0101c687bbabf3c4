//! Bytes on their way between a server and the tree: counted, summed up, stopped by Ctrl-C.

use async_trait::async_trait;
use weft_client::copy::Progress;
use weft_core::form::{Piece, Source, Stopped};
use weft_core::{Error, Result};
use weft_doors_http::codec::digest::{self, Algorithm, Sum, Value};
use weft_remote::Said;

use super::{differs, unless_stopped};

/// What a server may give a digest by.
const SUMMED: [Algorithm; 4] = [Algorithm::Adler32, Algorithm::Sha256, Algorithm::Sha512, Algorithm::Md5];

/// A source whose bytes are counted and summed up as they pass.
pub struct Checked<'a, S> {
    source: S,
    shared: &'a Progress,
    sums: Vec<Sum>,
    hasher: blake3::Hasher,
    pub bytes: u64,
}

impl<'a, S: Source> Checked<'a, S> {
    /// Begins with sums by which what a server says can be checked.
    pub fn new(source: S, shared: &'a Progress) -> Self {
        let sums = SUMMED.into_iter().map(Sum::new).collect();
        Self { source, shared, sums, hasher: blake3::Hasher::new(), bytes: 0 }
    }

    /// Returns the digest that the node checks the bytes by.
    pub fn digest(&self) -> [u8; 32] {
        *self.hasher.finalize().as_bytes()
    }

    /// Fails if a server says of the file what is not so of these bytes.
    pub fn check(&self, said: &Said) -> Result<()> {
        let malformed = |_| Error::corrupt("the digest that the server gives is malformed");
        let mut values: Vec<Value> = Vec::new();
        if let Some(text) = &said.repr_digest {
            values.extend(digest::values(text).map_err(malformed)?);
        }
        if let Some(text) = &said.digest {
            values.extend(digest::values_old(text).map_err(malformed)?);
        }
        let own: Vec<Value> = self.sums.iter().cloned().map(Sum::finish).collect();
        let is_other = |value: &Value| own.iter().any(|own| own.algorithm == value.algorithm && own != value);
        if said.length.is_some_and(|length| length != self.bytes) || values.iter().any(is_other) {
            return Err(differs());
        }
        Ok(())
    }
}

#[async_trait]
impl<S: Source> Source for Checked<'_, S> {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        let piece = unless_stopped(self.shared, self.source.next(max)).await?;
        let Some(bytes) = piece.map(Piece::into_bytes).transpose()? else { return Ok(None) };
        self.shared.add_bytes(bytes.len() as u64)?;
        self.hasher.update(&bytes);
        self.sums.iter_mut().for_each(|sum| sum.update(&bytes));
        self.bytes += bytes.len() as u64;
        Ok(Some(Piece::Bytes(bytes)))
    }

    fn length(&self) -> Option<u64> {
        self.source.length()
    }

    fn stopped(&self) -> Stopped {
        self.source.stopped()
    }
}
