//! Laws of pinning that no caller can bring about at will.

use weft_conformance::file_system::ADMINISTRATOR;
use weft_core::form::{BytesSource, FileSystem};
use weft_core::{Name, RelPath};
use weft_sys::simulate;

use super::super::tests::made;
use super::*;

/// A write that ends between the look at the row and the pinning leaves new bytes under the row's
/// old version: nobody is pinned to that.
#[test]
fn nobody_is_pinned_to_a_version_that_was_written_over_since_the_look() {
    simulate(1, |sys| async move {
        let (managed, domain) = made(&sys).await;
        let call = domain.call(&domain.caller(ADMINISTRATOR), 1);
        let path = At::root(RelPath::from(Name::try_from("f").unwrap()));
        let new = New::File { verifier: None };
        let id = managed.make(&call, &path, new, &SetAttr::default()).await.unwrap().value.id;
        let file = managed.file(&call, id, Rights::WRITE).await.unwrap();
        file.write(&call, WriteAt::Offset(0), &mut BytesSource::new(vec![1; 20_000])).await.unwrap();
        let volume = &managed.volume;
        let snapshot = volume.space.snapshot().unwrap();
        let view = View::committed(volume, &snapshot, &call);
        let node = view.node(id).unwrap();
        let unwritten = volume.files.unwritten(id.serial(), node.object());
        assert!(view.pin(&node, unwritten.clone()).unwrap().is_some());
        file.write(&call, WriteAt::Offset(0), &mut BytesSource::new(vec![2; 20_000])).await.unwrap();
        assert!(view.pin(&node, unwritten).unwrap().is_none());
    });
}
