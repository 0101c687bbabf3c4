//! The laws of an object store, for anything that implements one.
//!
//! An implementation says how to run a law over a fresh instance of itself ([`Subject`]), on
//! whatever runtime it needs, and [`object_store_suite!`](crate::object_store_suite) makes one
//! test for each law. [`oracle`] follows random operations beside a plain vector of bytes.
//!
//! ```text
//! fn run(law: Law) { runtime().block_on(async { law(&MySubject::fresh().await).await }) }
//! weft_conformance::object_store_suite!(run);
//! ```

pub mod bench;
pub mod content;
pub mod extents;
pub mod members;
pub mod oracle;
pub mod permits;
pub mod together;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use weft_core::service::ObjectStore;

use crate::TestDomain;

/// A fresh instance of a store, and what laws need around it.
#[async_trait]
pub trait Subject: Send + Sync {
    /// Returns the store.
    fn store(&self) -> Arc<dyn ObjectStore>;

    /// Returns the domain whose capabilities it believes, going by the store's clock.
    fn domain(&self) -> &Arc<TestDomain>;

    /// Whether `Punch` gives space back and `seek` finds it.
    fn holes(&self) -> bool {
        true
    }

    /// Whether two answers, for a missing object and for one of another container, are one.
    fn hides_existence(&self) -> bool {
        true
    }

    /// Whether a write that waits for its source hears of a right withdrawn meanwhile.
    fn stops_waiting(&self) -> bool {
        true
    }

    /// Lets time pass on the store's clocks.
    async fn pass(&self, span: Duration);

    /// Stops it cleanly and starts it again over what it kept. Returns `false` if it keeps
    /// nothing.
    async fn restart(&self) -> bool {
        false
    }
}

/// A law at work on a subject.
pub type AtWork<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// A law: panics if it does not hold.
pub type Law = for<'a> fn(&'a dyn Subject) -> AtWork<'a>;

/// Makes a test of every law. `$run` is a `fn(Law)`.
#[macro_export]
macro_rules! object_store_suite {
    ($run:path) => {
        $crate::object_store_laws! { $run;
            content: what_is_written_is_read_back,
            content: bytes_never_written_read_as_zeros,
            content: a_range_is_cut_at_the_end,
            content: appends_follow_each_other_and_say_where_they_went,
            content: what_was_pulled_before_an_error_is_kept,
            content: pieces_are_never_larger_than_asked,
            content: sealing_changes_no_byte_and_syncing_no_verifier,
            content: digests_are_those_of_the_bytes_sealed_or_not,
            content: an_overwrite_of_a_sealed_object_is_seen,
            content: writes_are_counted,
            content: everything_synced_outlives_a_restart,
            extents: cutting_and_growing_leave_zeros,
            extents: a_hole_reads_as_zeros_and_is_found,
            extents: zeros_keep_the_size_if_asked,
            extents: allocated_space_is_taken_and_reads_as_zeros,
            extents: nothing_may_be_longer_than_the_limit,
            extents: copies_follow_the_source_and_refuse_to_overlap,
            members: an_id_is_made_once_and_comes_again_after_removal,
            members: listing_pages_through_a_container_in_order,
            members: a_removed_object_is_read_to_its_end_by_who_began,
            members: a_new_label_moves_an_object_to_the_other_container,
            members: what_is_missing_is_not_found,
            permits: each_operation_demands_its_right,
            permits: a_proof_for_one_container_opens_no_other,
            permits: a_proof_for_one_object_makes_reads_and_removes_just_that,
            permits: a_withdrawn_right_stops_a_read_within_a_piece,
            permits: a_withdrawn_right_stops_a_write_within_a_piece,
            permits: a_withdrawn_right_ends_the_wait_for_a_source,
            permits: a_proof_handed_on_ends_with_a_credential_behind_it,
            permits: an_expired_proof_stops_a_read,
            permits: a_relabelled_object_is_lost_to_old_proofs,
            together: appends_at_once_never_tear_each_other,
            together: writers_of_disjoint_ranges_do_not_wait_for_each_other,
            together: one_of_many_makers_wins,
            together: readers_see_whole_writes_of_a_block_or_none_once_sealed,
        }
    };
}

/// Makes a test of each law it is given.
#[doc(hidden)]
#[macro_export]
macro_rules! object_store_laws {
    ($run:path; $($file:ident: $law:ident),* $(,)?) => {
        $(
            #[test]
            fn $law() {
                $run(|subject| Box::pin($crate::object_store::$file::$law(subject)));
            }
        )*
    };
}
