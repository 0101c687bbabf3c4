//! Extended attributes: the `user.` ones are Weft's user attributes, but for the few that Weft
//! itself answers ([`Own`]), and there are no others.

use bytes::{BufMut, Bytes};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use weft_core::attr::{TagEdit, TagMust, TagName};
use weft_core::form::{At, Guard};
use weft_core::{Error, ErrorKind, limits};

use super::own::{Own, too_large, unchangeable};
use super::{Door, Outcome, done, refuse};
use crate::abi::reply;
use crate::errno::Failure;

const PREFIX: &[u8] = b"user.";

impl Door {
    pub(super) async fn set_tag(&self, node: u64, name: &Bytes, value: Bytes, flags: u32) -> Outcome {
        let name = tag_name(name)?;
        let must = match XattrFlags::from_bits(flags) {
            Some(flags) if flags.is_empty() => TagMust::Any,
            Some(XattrFlags::CREATE) => TagMust::BeNew,
            Some(XattrFlags::REPLACE) => TagMust::Exist,
            _ => return refuse(Errno::INVAL),
        };
        if let Some(own) = Own::named(&name) {
            return self.set_own(node, own, &value, must).await;
        }
        self.edit_tag(node, TagEdit::Put { name, value, must }).await
    }

    pub(super) async fn remove_tag(&self, node: u64, name: &Bytes) -> Outcome {
        let name = tag_name(name)?;
        if Own::named(&name).is_some() {
            return Err(unchangeable());
        }
        self.edit_tag(node, TagEdit::Remove(name)).await
    }

    async fn edit_tag(&self, node: u64, edit: TagEdit) -> Outcome {
        let _unsettled = self.mounted.fresh.unsettle();
        let edited = self.fs.tag(&self.change(), &self.at(node)?, &[edit], &Guard::NONE).await;
        edited.map_err(too_large)?;
        done()
    }

    pub(super) async fn get_tag(&self, node: u64, name: &Bytes, size: u32) -> Outcome {
        let name = tag_name(name)?;
        if let Some(own) = Own::named(&name) {
            return sized(self.own(node, own).await?.into_bytes(), size);
        }
        let tags = self.all_tags(&self.at(node)?).await?;
        let value = tags.into_iter().find(|(other, _)| *other == name).ok_or(Errno::NODATA)?.1;
        sized(value.to_vec(), size)
    }

    pub(super) async fn list_tags(&self, node: u64, size: u32) -> Outcome {
        let mut names = Vec::new();
        let tags = self.all_tags(&self.at(node)?).await?;
        for (name, _) in tags.into_iter().filter(|(name, _)| Own::named(name).is_none()) {
            names.put_slice(PREFIX);
            names.put_slice(name.as_bytes());
            names.put_u8(0);
        }
        sized(names, size)
    }

    /// Returns all user attributes of a file. A share's can have more than one that Weft keeps.
    async fn all_tags(&self, at: &At) -> Result<Vec<(TagName, Bytes)>, Failure> {
        let (mut tags, mut from, mut bytes) = (Vec::new(), None, 0);
        loop {
            let page = self.fs.tags(&self.call(), at, from).await?;
            bytes += page.tags.iter().map(|(name, value)| name.as_bytes().len() + value.len()).sum::<usize>();
            if bytes > limits::MOUNT_TAGS_BYTES_MAX {
                let many = "the file has more user attributes than a mount looks through";
                return Err(too_large(Error::new(ErrorKind::TooLarge, many)));
            }
            tags.extend(page.tags);
            match page.next {
                Some(next) => from = Some(next),
                None => return Ok(tags),
            }
        }
    }
}

/// Returns a user attribute's name. Other families are `EOPNOTSUPP`.
fn tag_name(name: &Bytes) -> Result<TagName, Failure> {
    match name.strip_prefix(PREFIX) {
        Some(rest) => Ok(TagName::new(name.slice_ref(rest))?),
        None => Err(Errno::OPNOTSUPP.into()),
    }
}

/// Answers with bytes, or with how many there are if the program only asks that.
fn sized(bytes: Vec<u8>, size: u32) -> Outcome {
    match bytes.len() {
        length if size == 0 => Ok(reply::size(length as u32).into()),
        length if length > size as usize => refuse(Errno::RANGE),
        _ => Ok(bytes.into()),
    }
}
