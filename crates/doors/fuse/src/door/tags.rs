//! Extended attributes: the `user.` ones are Weft's user attributes, but for the few that Weft
//! itself answers ([`Own`]), and there are no others.

use bytes::{BufMut, Bytes};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use weft_core::attr::{TagEdit, TagMust, TagName};
use weft_core::form::Guard;
use weft_core::{Error, limits};

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
        let mut value = None;
        self.each_tag(node, |other, found| {
            value = (*other == name).then_some(found);
            value.is_none()
        })
        .await?;
        sized(value.ok_or(Errno::NODATA)?.to_vec(), size)
    }

    pub(super) async fn list_tags(&self, node: u64, size: u32) -> Outcome {
        let mut names = Vec::new();
        self.each_tag(node, |name, _| {
            if Own::named(name).is_none() {
                names.put_slice(PREFIX);
                names.put_slice(name.as_bytes());
                names.put_u8(0);
            }
            names.len() <= limits::TAGS_BYTES_MAX
        })
        .await?;
        sized(names, size)
    }

    /// Shows the user attributes of a file, for as long as more are asked for.
    async fn each_tag(
        &self,
        node: u64,
        mut show: impl FnMut(&TagName, Bytes) -> bool,
    ) -> Result<(), Failure> {
        let (at, mut from) = (self.at(node)?, None::<TagName>);
        loop {
            let page = self.fs.tags(&self.call(), &at, from.clone()).await?;
            for (name, value) in page.tags {
                if !show(&name, value) {
                    return Ok(());
                }
            }
            match page.next {
                // They come in the order of their names.
                Some(next) if from.as_ref().is_some_and(|from| next <= *from) => {
                    return Err(Error::internal("the node tells of user attributes without end").into());
                }
                Some(next) => from = Some(next),
                None => return Ok(()),
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
