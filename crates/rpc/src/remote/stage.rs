//! `Stage` over a connection.

use std::sync::Arc;

use async_trait::async_trait;
use weft_core::attr::{Changed, SetAttr};
use weft_core::form::{Call, Entry, Guard, Part, PartPage, Source, Stage};
use weft_core::{Result, StageId};

use super::file::{fits_one_frame, send};
use super::{Shared, take};
use crate::message::{Answer, CallBody, StageAsk};

pub(super) struct RemoteStage {
    shared: Arc<Shared>,
    id: StageId,
}

impl RemoteStage {
    pub(super) fn new(shared: Arc<Shared>, id: StageId) -> Self {
        Self { shared, id }
    }

    async fn ask(&self, call: &Call, ask: StageAsk) -> Result<Answer> {
        self.shared.call(call, CallBody::OnStage(self.id, ask)).await
    }
}

#[async_trait]
impl Stage for RemoteStage {
    fn id(&self) -> StageId {
        self.id
    }

    async fn put(&self, call: &Call, number: u32, offset: u64, data: &mut dyn Source) -> Result<Part> {
        let whole = fits_one_frame(data);
        let body = CallBody::OnStage(self.id, StageAsk::Put { number, offset, whole });
        let header = self.shared.header(call).await?;
        take!(send(&self.shared, call, header, body, data).await?, Answer::Part(part) => part)
    }

    async fn parts(&self, call: &Call, from: u32) -> Result<PartPage> {
        take!(self.ask(call, StageAsk::Parts(from)).await?, Answer::Parts(page) => page)
    }

    async fn publish(
        &self,
        call: &Call,
        parts: &[Part],
        set: &SetAttr,
        guard: &Guard,
    ) -> Result<Changed<Entry>> {
        let ask = StageAsk::Publish { parts: parts.to_vec(), set: Box::new(set.clone()), guard: *guard };
        take!(self.ask(call, ask).await?, Answer::Published(changed) => changed)
    }

    async fn discard(&self, call: &Call) -> Result<()> {
        take!(self.ask(call, StageAsk::Discard).await?, Answer::Done => ())
    }
}
