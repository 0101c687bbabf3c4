//! A stage whose refusals are recorded.

use std::sync::Arc;

use async_trait::async_trait;
use weft_core::attr::{Changed, SetAttr};
use weft_core::form::{At, Call, Entry, Guard, Part, PartPage, Source, Stage};
use weft_core::{Result, StageId};

use super::{About, Inner, watched};

pub(super) struct AuditedStage {
    pub(super) inner: Arc<Inner>,
    pub(super) below: Arc<dyn Stage>,
    /// Where it was begun; unknown of one that was gone on with.
    pub(super) target: Option<At>,
}

impl AuditedStage {
    fn about(&self) -> About<'_> {
        About::Stage(self.below.id(), self.target.as_ref())
    }
}

#[async_trait]
impl Stage for AuditedStage {
    fn id(&self) -> StageId {
        self.below.id()
    }

    async fn put(&self, call: &Call, number: u32, offset: u64, data: &mut dyn Source) -> Result<Part> {
        watched!(self.inner, call, "put", self.about(), self.below.put(call, number, offset, data))
    }

    async fn parts(&self, call: &Call, from: u32) -> Result<PartPage> {
        watched!(self.inner, call, "parts", self.about(), self.below.parts(call, from))
    }

    async fn publish(
        &self,
        call: &Call,
        parts: &[Part],
        set: &SetAttr,
        guard: &Guard,
    ) -> Result<Changed<Entry>> {
        watched!(self.inner, call, "publish", self.about(), self.below.publish(call, parts, set, guard))
    }

    async fn discard(&self, call: &Call) -> Result<()> {
        watched!(self.inner, call, "discard", self.about(), self.below.discard(call))
    }
}
