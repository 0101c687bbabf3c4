//! The list of laws, and the macro that makes a test of each.

/// Makes one test for each law of [`file_system`](crate::file_system), for an
/// implementation that an async function of this module makes fresh instances of. Its
/// crate needs `tokio` and `weft-conformance` as dev-dependencies.
///
/// `file_system_suite!(fresh)`, where `async fn fresh() -> impl Subject`.
#[macro_export]
macro_rules! file_system_suite {
    ($fresh:ident) => {
        $crate::file_system_laws!(@tests $fresh);
    };
}

macro_rules! laws {
    ($d:tt $($module:ident: [$($law:ident),* $(,)?])*) => {
        /// Every law, by the module that holds it.
        pub const LAWS: &[(&str, &[&str])] = &[$((stringify!($module), &[$(stringify!($law)),*])),*];

        /// Carries the list of laws to where tests are made of it.
        #[doc(hidden)]
        #[macro_export]
        macro_rules! file_system_laws {
            (@tests $d fresh:ident) => { $(
                mod $module {
                    $(
                        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                        async fn $law() {
                            let subject = super::$d fresh().await;
                            let law = $d crate::file_system::$module::$law(&subject);
                            $d crate::file_system::try_law(stringify!($law), &subject, law).await;
                        }
                    )*
                }
            )* };
        }
    };
}

use futures_util::FutureExt;

/// Tries one law of a subject; one that it declares not to keep must fail.
#[allow(clippy::print_stderr)]
pub async fn try_law(name: &str, subject: &dyn super::Subject, law: impl Future<Output = ()>) {
    let Some((_, reason)) = subject.exceptions().into_iter().find(|(law, _)| *law == name) else {
        return law.await;
    };
    eprintln!("declared not to be kept: {reason}");
    let kept = std::panic::AssertUnwindSafe(law).catch_unwind().await.is_ok();
    assert!(!kept, "{name} is kept after all: it is no exception");
}

laws! { $
    names: [
        all_legal_single_bytes_are_names,
        names_keep_their_bytes_and_are_never_normalised,
        a_taken_name_is_not_made_again,
        making_needs_a_directory_that_is_there,
        every_kind_is_made_and_shown,
        a_junction_is_not_made_by_a_request,
        an_exclusive_verifier_finds_what_it_made,
        hard_links_are_one_file,
        a_file_has_so_many_names_and_no_more,
        a_link_is_refused_for_directories_and_taken_names,
        remove_takes_only_what_it_expects,
        rename_moves_the_name_and_keeps_the_id,
        rename_replaces_as_posix_says,
        rename_onto_another_name_of_itself_changes_nothing,
        exchange_swaps_two_names,
        a_directory_counts_its_entries_and_subdirectories,
        ids_are_never_used_again,
        the_root_is_neither_removed_nor_renamed,
    ]
    symlinks: [
        links_inside_a_path_are_followed,
        the_last_link_is_followed_only_on_demand,
        too_many_links_are_a_loop,
        a_dangling_link_is_not_found_when_followed,
        a_link_to_a_file_is_no_directory,
        targets_keep_their_bytes_within_their_limit,
    ]
    listing: [
        cookies_rise_and_are_never_used_again,
        names_present_throughout_a_scan_come_exactly_once,
        a_cookie_outlives_its_entry,
        name_order_is_byte_order,
        a_page_shows_the_directory_and_its_parent,
        a_page_has_a_largest_size,
    ]
    files: [
        what_was_written_is_read,
        digests_are_those_of_each_block,
        digests_need_read_and_keep_to_a_pinned_version,
        a_source_gives_pieces_no_larger_than_asked,
        overwriting_changes_only_what_it_covers,
        an_append_goes_to_the_end,
        gaps_and_extensions_read_as_zeros,
        holes_are_found_and_cost_nothing,
        punching_and_zeroing_clear_exactly_their_range,
        allocating_keeps_bytes,
        a_copy_brings_the_bytes_of_a_range,
        what_was_pulled_before_an_error_is_written,
        versions_change_with_bytes_and_counters_with_anything,
        a_write_tells_what_a_sync_confirms,
        sizes_beyond_the_limit_are_too_large,
        only_files_have_bytes,
        a_write_of_nothing_changes_nothing,
    ]
    opens: [
        an_open_that_makes_carries_its_rights_whatever_the_mode,
        an_exclusive_open_refuses_what_is_there,
        a_truncating_open_needs_write,
        an_open_carries_only_what_it_asked_for,
        an_open_unlinked_file_lives_until_it_is_closed,
        a_replaced_file_lives_while_it_is_open,
        a_dropped_open_lets_go,
        a_sessions_end_closes_its_opens_only,
        a_closed_file_is_stale,
        a_pinned_open_never_mixes_versions,
        a_pinned_open_outlives_a_publish,
        a_file_by_id_sees_changes_and_dies_with_the_file,
    ]
    attributes: [
        what_is_set_is_shown_and_the_rest_stays,
        what_is_made_has_what_was_asked_for,
        only_who_may_gives_files_away,
        before_and_after_are_of_the_change_itself,
        one_changes_after_is_the_nexts_before,
        a_guard_that_does_not_hold_stops_the_change,
        a_renames_guard_speaks_of_the_target,
        user_attributes_change_together_or_not_at_all,
        user_attributes_have_limits,
        a_directory_changes_with_its_names,
        space_is_told,
        a_walk_shows_rights_when_wanted,
    ]
    replays: [
        a_make_sent_again_is_made_once,
        a_remove_sent_again_spares_what_came_after,
        every_kind_of_change_is_made_once,
        an_id_used_for_another_request_is_invalid,
        another_sessions_ids_are_its_own,
        as_many_answers_are_kept_as_there_is_room_for,
        a_failed_request_may_be_made_again,
        a_batch_answers_in_order_and_is_made_once,
    ]
    stages: [
        parts_become_the_file_in_number_order,
        a_part_is_replaced_or_gone_on_with,
        a_stage_is_found_again_by_its_maker_only,
        a_discarded_stage_is_gone,
        publishing_onto_a_file_keeps_what_it_is,
        versions_of_published_files_never_meet,
        a_refused_publish_leaves_the_stage,
        publishing_sets_what_was_asked_for,
        two_stages_for_one_name_do_not_mix,
        a_stage_whose_directory_is_gone_is_not_published,
        a_stage_follows_its_directory,
        a_stage_needs_its_rights_to_the_end,
        a_put_whose_right_ends_in_its_middle_is_refused_as_the_next_is,
        an_abandoned_stage_is_swept,
        an_anonymous_stage_is_its_holders_alone,
        a_stage_is_not_for_a_credential_that_carries_less,
        a_page_of_stages_that_are_not_shown_is_followed_by_others,
        a_brief_stage_becomes_the_file_however_its_bytes_come,
        a_brief_stage_is_refused_what_any_other_is,
        a_brief_stage_needs_its_rights_to_the_end,
    ]
    locks: [
        ranges_split_and_merge_like_a_map_of_bytes,
        whole_and_range_locks_do_not_see_each_other,
        own_locks_are_never_in_the_way,
        locks_die_with_their_session,
        a_lock_stays_with_its_file,
        a_waiter_gets_the_lock_when_it_is_given_up,
        a_wait_ends_at_its_deadline,
        a_circle_of_waiters_is_a_deadlock,
        locks_need_their_right,
    ]
    rights: [
        each_method_works_with_exactly_what_it_needs,
        each_method_is_refused_without_one_right_it_needs,
        what_a_caller_may_not_know_of_does_not_exist,
        what_is_listed_is_denied_and_not_hidden,
        a_listing_shows_attributes_of_what_may_be_seen,
        a_negative_entry_wins,
        entries_mean_groups_domains_and_anyone,
        mode_bits_narrow_and_never_widen,
        where_classes_count_the_mode_is_the_owners,
        where_classes_count_a_directory_is_used_by_who_may_bring_something,
        a_mode_changed_later_does_not_end_an_open,
        a_changed_acl_takes_effect_on_open_files,
        a_running_read_stops_when_the_right_goes,
        a_revoked_credential_stops_everything_of_its_caller,
        an_expired_credential_can_do_nothing_more,
        a_call_past_its_deadline_is_not_begun,
        a_condition_counts_while_it_holds,
        a_credential_limited_to_a_path_reaches_nothing_else,
        what_leaves_a_limited_path_is_out_of_reach,
        a_credential_limited_otherwise_carries_nothing_beyond,
        why_answers_what_is_decided,
        why_answers_for_others_to_whoever_administers,
    ]
    confined: [
        a_credential_confined_to_a_directory_reaches_nothing_above_it,
        a_confined_credential_follows_the_id_and_not_the_name,
        a_credential_for_one_version_ends_with_it,
        what_was_removed_is_out_of_a_confined_credentials_reach,
        a_credential_with_scopes_may_at_each_path_what_those_say,
        scopes_do_not_add_up_by_another_name,
    ]
    narrowed: [
        a_right_reaches_bytes_of_any_size_and_no_further,
        a_condition_ends_what_carries_a_right_out,
    ]
    policies: [
        what_is_made_joins_its_directorys_container,
        a_split_moves_what_lies_below,
        a_file_may_have_a_container_of_its_own,
        a_grant_lets_its_callers_pass_above,
        a_grant_changes_no_acl_that_its_maker_may_not_change,
        a_credential_limited_to_paths_edits_no_policy_that_reaches_beyond_them,
        an_edit_of_the_container_is_felt_by_all_members,
        an_edit_from_an_older_acl_is_a_conflict,
        an_edit_that_leaves_nobody_in_charge_is_refused,
        what_an_edit_does_not_speak_of_stays,
        hard_links_do_not_cross_containers,
        a_rename_across_containers_changes_the_members,
        a_moved_container_stays_itself,
        a_limit_on_bytes_refuses_growth,
        a_limit_on_bytes_counts_what_fills_holes,
        policy_is_not_for_everybody,
        a_split_of_many_members_binds_them_at_once,
    ]
    watching: [
        every_change_is_told_in_order,
        a_watch_is_of_its_place_only,
        a_reader_is_told_only_of_what_it_may_know,
        a_position_that_is_no_longer_kept_is_stale,
        what_may_not_be_listed_is_not_named,
        of_what_is_only_listed_the_names_are_told,
        a_rename_shows_only_the_sides_that_may_be_listed,
        a_limited_credential_is_told_of_its_paths_only,
        a_file_of_several_names_is_told_of_at_each_of_them,
        a_watch_waits_until_something_changes,
        a_watch_ends_at_its_deadline_with_an_empty_page,
        what_did_not_happen_is_not_told,
    ]
    concurrency: [
        creators_in_one_directory_all_succeed,
        of_many_who_make_one_name_one_makes_it,
        appends_land_whole,
        of_many_who_rename_one_file_one_does,
        renames_at_once_never_make_a_circle,
        readers_never_meet_a_mixture_while_publishers_replace,
        counts_stay_true_under_many_hands,
    ]
    history: [
        changes_by_many_callers_can_be_put_into_an_order,
    ]
    oracle: [
        random_requests_are_answered_as_the_model_answers,
    ]
    durable: [
        everything_is_what_it_was_after_a_restart,
        ids_and_cookies_go_on_after_a_restart,
        replays_survive_a_restart,
        a_stage_is_taken_up_after_a_restart,
        verifiers_and_versions_change_with_a_restart,
    ]
}
