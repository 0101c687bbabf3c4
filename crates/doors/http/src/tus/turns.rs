//! Who is at work on an upload: one at a time, and the newest. And what is remembered of uploads beside their stages, as long
//! as the process runs.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quick_cache::sync::Cache;
use sha2::{Digest, Sha256};
use tokio::sync::{OwnedMutexGuard, watch};
use weft_core::{CallerId, Error, ErrorKind, FileId, Name, Result, StageId, limits};
use weft_sys::Random;

use crate::codec::upload::STAMP_BYTES;

/// The uploads of a door.
pub struct Uploads {
    /// What stamps are made with.
    key: [u8; 32],
    seats: Mutex<HashMap<StageId, Arc<Seat>>>,
    /// Those that became files, and whose they were: who did not hear of it asks again.
    published: Cache<StageId, CallerId>,
}

/// Where those stand who would work on one upload.
struct Seat {
    alone: Arc<tokio::sync::Mutex<()>>,
    /// The number of who came last.
    newest: watch::Sender<u64>,
}

/// The turn of one request to work on an upload. The next may begin when it is dropped.
pub struct Turn {
    uploads: Arc<Uploads>,
    id: StageId,
    seat: Option<Arc<Seat>>,
    number: u64,
    alone: Option<OwnedMutexGuard<()>>,
}

impl Uploads {
    /// Begins with none.
    pub fn new(random: &dyn Random) -> Arc<Self> {
        let mut key = [0; 32];
        random.fill(&mut key);
        let published = Cache::new(limits::UPLOADS_PUBLISHED_KEPT);
        Arc::new(Self { key, seats: Mutex::default(), published })
    }

    /// Returns what shows that a stage is for a name in a directory. Nobody else can make it.
    pub fn stamp(&self, id: StageId, dir: FileId, name: &Name) -> [u8; STAMP_BYTES] {
        let mut hash = Sha256::new();
        hash.update(b"weft upload\0");
        hash.update(self.key);
        hash.update(id.0.to_be_bytes());
        hash.update(dir.volume().0.to_be_bytes());
        hash.update(dir.serial().to_be_bytes());
        hash.update(dir.generation().to_be_bytes());
        hash.update(name.as_bytes());
        // Half of it is kept back, so that nobody goes on with the hash where it was left.
        let mut stamp = [0; STAMP_BYTES];
        stamp.copy_from_slice(&hash.finalize()[..STAMP_BYTES]);
        stamp
    }

    /// Tells whoever works on an upload to end, and waits until they have. `Busy` if too many are worked on.
    pub async fn turn(self: &Arc<Self>, id: StageId) -> Result<Turn> {
        let (mut turn, alone) = self.stand_in_line(id)?;
        turn.alone = Some(alone.lock_owned().await);
        Ok(turn)
    }

    fn stand_in_line(self: &Arc<Self>, id: StageId) -> Result<(Turn, Arc<tokio::sync::Mutex<()>>)> {
        let mut seats = lock(&self.seats);
        if seats.len() >= limits::UPLOADS_AT_ONCE_MAX && !seats.contains_key(&id) {
            return Err(Error::new(ErrorKind::Busy, "as many uploads are gone on with as may be at once"));
        }
        let new = || Arc::new(Seat { alone: Arc::default(), newest: watch::Sender::new(0) });
        let seat = seats.entry(id).or_insert_with(new).clone();
        let mut number = 0;
        seat.newest.send_modify(|newest| {
            *newest += 1;
            number = *newest;
        });
        let alone = seat.alone.clone();
        Ok((Turn { uploads: self.clone(), id, seat: Some(seat), number, alone: None }, alone))
    }

    /// Notes that an upload became a file.
    pub fn published(&self, id: StageId, whose: CallerId) {
        self.published.insert(id, whose);
    }

    /// Returns whether an upload of theirs became a file.
    pub fn has_published(&self, id: StageId, whose: CallerId) -> bool {
        self.published.get(&id) == Some(whose)
    }
}

impl Turn {
    /// Waits until somebody else would work on the upload.
    pub fn over(&self) -> impl Future<Output = ()> + Send + use<> {
        let (newest, number) = (self.seat.as_ref().map(|seat| seat.newest.subscribe()), self.number);
        async move {
            if let Some(mut newest) = newest
                && newest.wait_for(|newest| *newest > number).await.is_ok()
            {
                return;
            }
            std::future::pending().await
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.alone = None;
        let mut seats = lock(&self.uploads.seats);
        // Let go of here, where nobody counts meanwhile.
        self.seat = None;
        if seats.get(&self.id).is_some_and(|seat| Arc::strong_count(seat) == 1) {
            seats.remove(&self.id);
        }
    }
}

fn lock(seats: &Mutex<HashMap<StageId, Arc<Seat>>>) -> MutexGuard<'_, HashMap<StageId, Arc<Seat>>> {
    seats.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use weft_core::VolumeId;
    use weft_sys::Sys;

    use super::*;

    fn uploads() -> Arc<Uploads> {
        Uploads::new(Sys::real().random())
    }

    #[tokio::test]
    async fn who_comes_last_has_the_turn_next_and_nobody_is_left_in_the_table() {
        let uploads = uploads();
        let first = uploads.turn(StageId(1)).await.expect("there is room");
        let others = uploads.turn(StageId(2)).await.expect("there is room");
        let over = first.over();
        let own = uploads.clone();
        let second = tokio::spawn(async move { own.turn(StageId(1)).await.expect("there is room") });
        over.await;
        assert!(!second.is_finished(), "not before the first has ended");
        drop(first);
        let second = second.await.expect("it did not panic");
        assert!(
            tokio::time::timeout(std::time::Duration::from_millis(20), second.over()).await.is_err(),
            "nobody came since"
        );
        // One who goes away before its turn leaves nothing, but has the turn ended.
        let given_up =
            tokio::time::timeout(std::time::Duration::from_millis(20), uploads.turn(StageId(1))).await;
        assert!(given_up.is_err());
        second.over().await;
        drop((second, others));
        assert!(lock(&uploads.seats).is_empty());
    }

    #[tokio::test]
    async fn only_so_many_uploads_are_gone_on_with_at_once() {
        let uploads = uploads();
        let mut held = Vec::new();
        for id in 0..limits::UPLOADS_AT_ONCE_MAX as u128 {
            held.push(uploads.turn(StageId(id)).await.expect("there is room"));
        }
        let refused = uploads.turn(StageId(u128::MAX)).await.err().expect("there is none");
        assert_eq!(refused.kind(), ErrorKind::Busy);
        held.pop();
        uploads.turn(StageId(u128::MAX)).await.expect("there is room again");
    }

    #[test]
    fn a_stamp_is_of_one_upload_one_directory_one_name_and_one_process() {
        let (uploads, name) = (uploads(), Name::try_from("a").expect("a name"));
        let dir = |serial| FileId::new(VolumeId(0), serial, 1);
        let stamp = uploads.stamp(StageId(1), dir(1), &name);
        assert_eq!(stamp, uploads.stamp(StageId(1), dir(1), &name));
        let other = Name::try_from("b").expect("a name");
        for another in [
            uploads.stamp(StageId(2), dir(1), &name),
            uploads.stamp(StageId(1), dir(2), &name),
            uploads.stamp(StageId(1), dir(1), &other),
            self::uploads().stamp(StageId(1), dir(1), &name),
        ] {
            assert_ne!(stamp, another);
        }
    }

    #[test]
    fn that_an_upload_became_a_file_is_told_to_whose_it_was() {
        let uploads = uploads();
        uploads.published(StageId(1), CallerId(7));
        assert!(uploads.has_published(StageId(1), CallerId(7)));
        assert!(
            !uploads.has_published(StageId(1), CallerId(8))
                && !uploads.has_published(StageId(2), CallerId(7))
        );
    }
}
