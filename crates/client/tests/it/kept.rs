//! What a process goes on with that comes after one that was killed: its files, its locks, its session.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use weft_client::steady::{OpenNote, OpenNotes, Steady, TakenUp};
use weft_core::attr::SetAttr;
use weft_core::form::{
    At, BytesSource, Call, Expect, FileSystem, Guard, Lock, LockKind, LockOwner, LockRange, LockScope, Make,
    OpenFile, OpenHow, Range, Wait, WriteAt, collect,
};
use weft_core::service::SessionGrant;
use weft_core::{ErrorKind, Rights};

use crate::node::Node;

/// What outlives a process.
#[derive(Default)]
struct Notes(Mutex<Noted>);

#[derive(Default)]
struct Noted {
    life: u32,
    last: u64,
    open: BTreeMap<u64, OpenNote>,
    grant: Option<SessionGrant>,
}

impl Notes {
    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().expect("nobody panics here")
    }

    fn note(&self, kept: u64) -> OpenNote {
        self.noted().open[&kept]
    }
}

impl OpenNotes for Notes {
    fn life(&self) -> u32 {
        self.noted().life
    }

    fn begin_life(&self, life: u32) {
        self.noted().life = life;
    }

    fn is_in(&self, grant: &SessionGrant) {
        self.noted().grant = Some(grant.clone());
    }

    fn add(&self, note: &OpenNote) -> Option<u64> {
        let mut noted = self.noted();
        noted.last += 1;
        let kept = noted.last;
        noted.open.insert(kept, *note);
        Some(kept)
    }

    fn set(&self, kept: u64, life: u32, number: u32) {
        let mut noted = self.noted();
        let note = noted.open.get_mut(&kept).expect("it is noted");
        (note.life, note.number) = (life, number);
    }

    fn remove(&self, kept: u64) {
        self.noted().open.remove(&kept);
    }

    fn list(&self) -> Vec<(u64, OpenNote)> {
        self.noted().open.iter().map(|(kept, note)| (*kept, *note)).collect()
    }
}

/// A process that begins, with a file of each name whose text is its name.
async fn process(node: &Node, notes: &Arc<Notes>, files: &[&str]) -> (Steady, Vec<Arc<dyn OpenFile>>) {
    let steady = node.keeping(notes.clone()).await;
    steady.begin(&node.alice).await.expect("a session");
    let mut open = Vec::new();
    for name in files {
        let make = Some(Make { exclusive: true, set: SetAttr::default() });
        let how = OpenHow { need: Rights::READ | Rights::WRITE, make, ..OpenHow::default() };
        let at = At::root((*name).try_into().expect("a name"));
        let opened = steady.open(&node.call(), &at, &how).await.expect("opened");
        let mut text = BytesSource::new((*name).to_owned().into_bytes());
        opened.file.write(&node.call(), WriteAt::Offset(0), &mut text).await.expect("written");
        open.push(opened.file);
    }
    (steady, open)
}

/// Kills it: nobody is told anything.
fn kill(process: (Steady, Vec<Arc<dyn OpenFile>>)) {
    std::mem::forget(process);
}

async fn next(node: &Node, notes: &Arc<Notes>, locks: Vec<(At, Lock)>) -> (Steady, TakenUp) {
    let steady = node.keeping(notes.clone()).await;
    let grant = notes.noted().grant.clone().expect("it is in a session");
    let files = steady.take_up(&node.call(), &grant, locks).await.expect("taken up");
    (steady, files)
}

async fn text(file: &dyn OpenFile, call: &Call) -> Result<String, ErrorKind> {
    let mut source = file.read(call, Range::ALL).await.map_err(|error| error.kind())?;
    let bytes = collect(&mut *source, usize::MAX).await.expect("read");
    Ok(String::from_utf8(bytes.to_vec()).expect("text"))
}

async fn remove(node: &Node, name: &str) {
    let at = At::root(name.try_into().expect("a name"));
    node.model.remove(&node.other(), &at, Expect::NotDirectory, &Guard::NONE).await.expect("removed");
}

#[tokio::test]
async fn the_next_process_has_the_very_opens_of_the_one_before_also_of_what_has_no_name() {
    let (node, notes) = (Node::up(), Arc::new(Notes::default()));
    let first = process(&node, &notes, &["a", "b"]).await;
    remove(&node, "a").await;
    let before = notes.list();
    kill(first);
    let (_steady, files) = next(&node, &notes, Vec::new()).await;
    assert_eq!(notes.list(), before, "nothing was opened anew");
    for (kept, name) in [(1, "a"), (2, "b")] {
        let (file, attr) = &files[&kept];
        assert_eq!(text(&**file, &node.call()).await.as_deref(), Ok(name));
        assert_eq!(attr.as_ref().map(|attr| attr.id), Some(notes.note(kept).file));
        assert_eq!(file.kept_as(), Some(kept));
    }
}

#[tokio::test]
async fn after_a_restart_of_the_node_files_are_opened_again_in_another_life() {
    let (node, notes) = (Node::up(), Arc::new(Notes::default()));
    let first = process(&node, &notes, &["a", "b"]).await;
    let life = notes.life();
    kill(first);
    node.restart().await;
    let (_steady, files) = next(&node, &notes, Vec::new()).await;
    for (kept, name) in [(1, "a"), (2, "b")] {
        assert_eq!(text(&*files[&kept].0, &node.call()).await.as_deref(), Ok(name));
        assert_eq!((notes.note(kept).life, notes.life()), (life + 1, life + 1));
    }
}

/// Killed while it opened its files again: some are noted under numbers of the new life, the others under
/// those of the old one, which by now are other files'.
#[tokio::test]
async fn a_number_of_another_life_is_not_believed() {
    let (node, notes) = (Node::up(), Arc::new(Notes::default()));
    let first = process(&node, &notes, &["a", "b"]).await;
    let life = notes.life();
    kill(first);
    node.restart().await;
    let (steady, files) = next(&node, &notes, Vec::new()).await;
    // Of the two numbers, that of `b` comes to be `a`'s as well.
    notes.set(1, life, notes.note(2).number);
    std::mem::forget((steady, files));
    let (_steady, files) = next(&node, &notes, Vec::new()).await;
    for (kept, name) in [(1, "a"), (2, "b")] {
        assert_eq!(text(&*files[&kept].0, &node.call()).await.as_deref(), Ok(name));
        assert_eq!(notes.note(kept).life, life + 1);
    }
    assert_ne!(notes.note(1).number, notes.note(2).number);
}

#[tokio::test]
async fn a_file_that_is_closed_is_not_kept_and_one_that_cannot_be_had_again_says_so() {
    let (node, notes) = (Node::up(), Arc::new(Notes::default()));
    let (steady, mut open) = process(&node, &notes, &["a", "b"]).await;
    drop(open.pop());
    assert_eq!(notes.list().len(), 1, "one was closed");
    remove(&node, "a").await;
    kill((steady, open));
    node.restart().await;
    let (_steady, files) = next(&node, &notes, Vec::new()).await;
    let (file, attr) = &files[&1];
    assert!(attr.is_none());
    assert_eq!(text(&**file, &node.call()).await, Err(ErrorKind::Stale));
}

#[tokio::test]
async fn a_lock_is_held_on_by_the_next_process_and_taken_again_after_a_restart() {
    let (node, notes) = (Node::up(), Arc::new(Notes::default()));
    let (steady, open) = process(&node, &notes, &["a"]).await;
    let at = At::id(open[0].id());
    let scope = LockScope::Range(LockRange { at: 0, length: 10 });
    let mine = Lock { scope, kind: LockKind::Exclusive, owner: LockOwner(Bytes::from_static(b"me")) };
    steady.lock(&node.call(), &at, &mine, Wait::No).await.expect("free");
    kill((steady, open));
    let locks = vec![(at.clone(), mine.clone())];
    for restarts in [false, true] {
        if restarts {
            node.restart().await;
        }
        let (steady, files) = next(&node, &notes, locks.clone()).await;
        let other = node.model.lock(&node.other(), &at, &mine, Wait::No).await;
        assert_eq!(other.expect_err("it is held").kind(), ErrorKind::Locked);
        if restarts {
            steady.unlock(&node.call(), &at, &mine).await.expect("given up");
            node.model.lock(&node.other(), &at, &mine, Wait::No).await.expect("free");
        }
        std::mem::forget((steady, files));
    }
}
