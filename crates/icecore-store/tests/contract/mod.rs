//! The contract of a store as functions: one for each sentence, each given a
//! fresh store, each a panic where the sentence does not hold.

mod api_keys;
mod append;
mod bounds;
pub(crate) mod commitments;
mod derivation;
pub(crate) mod dreams;
mod entries;
mod erasure;
pub(crate) mod fixtures;
pub(crate) mod handoffs;
mod leases;
pub(crate) mod links;
mod log;
mod pyramid;
mod recall;
mod rewriting;
pub(crate) mod runs;
pub(crate) mod schedules;
mod secrets;
mod workspace;

pub(crate) use workspace::file as new_file;

use std::future::Future;
use std::pin::Pin;

use crate::store::Store;

/// A sentence of the contract, tried on a fresh store.
pub type Sentence = for<'a> fn(&'a Store) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

macro_rules! sentences {
    ($($module:ident: $($name:ident)+;)+) => {
        /// Every sentence, by name.
        pub const ALL: &[(&str, Sentence)] = &[
            $($((stringify!($name), |store| Box::pin($module::$name(store))),)+)+
        ];
    };
}

sentences! {
    append:
        a_session_begins_with_its_first_turn
        seq_is_dense_and_rows_keep_what_was_given
        a_failed_append_leaves_nothing
        a_known_id_with_the_same_body_is_known
        a_known_id_with_another_body_is_a_conflict
        the_nth_occurrence_of_a_body_is_known
        repeated_content_is_kept
        a_head_is_continued_and_any_other_parent_forks
        an_explicit_empty_list_of_parents_begins_a_tree
        a_parent_may_be_named_by_our_id
        parents_must_exist_and_come_first
        cuts_come_with_the_append
        micros_are_bound_by_tokens
        branches_have_cuts_of_their_own
        new_sizes_begin_at_the_next_macro
        sessions_are_listed_by_number
        recent_sessions_come_first
        turns_are_read_by_range_branch_and_end
        a_snapshot_shows_what_was_there
        turns_are_found_by_lookup
        tenants_and_memories_are_apart
        the_identity_key_stays
        concurrent_appends_are_all_there_in_order;
    links:
        a_turn_with_a_link_is_there_once
        an_answer_is_told_from_what_a_client_made_up
        a_turn_without_its_words_is_told_from_others
        turns_with_links_are_one_path
        a_path_goes_on_from_what_is_there
        turns_are_found_by_their_links
        so_many_turns_of_a_link_are_answered
        links_outlast_what_was_forgotten
        links_are_of_one_memory_and_tenant
        places_are_told_without_bodies
        two_at_one_head_do_not_overwrite_each_other
        what_was_recalled_stands_where_it_was
        what_was_recalled_goes_with_what_it_may_tell_of;
    pyramid:
        chunks_are_read_by_range_and_end
        a_hot_body_is_in_its_rows
        warm_demotion_moves_bodies_to_text
        warm_demotion_compares_before_it_moves
        cold_demotion_moves_bodies_to_a_pack
        cold_demotion_compares_before_it_moves
        cold_text_may_stay
        a_dropped_body_is_expired
        packs_are_listed_oldest_first_and_expire
        summaries_are_put_with_their_watermark
        summaries_of_what_changed_are_not_put
        derived_text_can_be_dropped
        a_branch_is_settled_unless_it_changed
        stats_add_up;
    erasure:
        selectors_name_turns
        a_tombstone_keeps_its_place
        chunks_count_what_is_left
        an_open_tail_forgets_too
        warm_text_is_replaced
        packs_are_rewritten
        summaries_of_the_erased_go
        an_erasure_compares_before_it_erases
        a_turn_is_erased_once
        the_epoch_rises
        the_erased_stay_forgotten_unless_insisted
        a_forgotten_session_has_no_name
        a_name_stays_while_a_turn_does
        a_nameless_subject_is_not_found
        kept_answers_that_may_quote_go;
    log:
        events_merge_turns_and_records_in_order
        paging_misses_nothing
        events_can_be_of_one_memory
        events_hold_no_content
        an_erasure_is_logged
        entries_are_put_and_listed
        entries_expire_and_are_erased
        a_claim_is_kept_with_its_effect
        outcomes_are_kept_for_a_day
        notes_are_kept
        the_first_note_stands
        what_is_of_a_tenant_alone_is_logged
        what_is_there_outlasts_a_scrub
        counts_of_work_only_grow;
    api_keys:
        api_keys_are_found_by_hash
        api_keys_are_listed
        a_key_is_valid_until_it_ends
        a_revoked_key_stays_revoked
        the_last_admin_key_can_be_kept
        a_rotated_key_has_another_in_its_place
        the_last_admin_key_is_rotated_with_an_overlap
        a_key_that_ended_is_not_rotated
        names_of_keys_are_redacted_again;
    entries:
        an_entry_gets_an_id_of_ours
        entries_are_listed_newest_first
        entries_are_found_by_tag
        an_ended_entry_is_gone_at_once
        the_past_can_be_read_until_it_is_purged
        what_expired_is_never_read
        the_expired_and_the_long_ended_are_purged
        a_purge_leaves_other_answers_alone
        an_entry_keeps_its_claim
        an_erasure_ends_the_past
        what_has_gone_can_be_told
        old_outcomes_are_purged;
    derivation:
        a_derived_entry_stands_for_others
        one_that_stays_can_stand_for_another
        nothing_is_derived_of_what_is_not_in_force
        what_expires_shows_what_it_stood_for
        what_is_back_can_be_replaced_again
        a_deleted_entry_takes_what_it_stands_for
        what_was_overtaken_comes_back
        a_value_comes_back_only_after_all_later_ones
        what_ended_with_an_entry_is_forgotten_with_it
        a_deletion_that_brings_back_raises_the_epoch
        no_reader_sees_an_entry_beside_what_stands_for_it
        what_has_expired_takes_nothing_with_it
        what_quotes_a_rewritten_entry_is_dropped
        a_deleted_entry_takes_what_quotes_it
        a_deletion_reaches_down_and_up
        an_erasure_takes_what_quotes_it
        an_erased_entry_takes_what_it_stands_for
        own_entries_are_seen_although_they_are_later
        crowded_memories_are_found;
    recall:
        a_scope_has_a_head
        turns_of_a_scope_come_in_order
        turns_are_read_by_id
        bodies_are_found_one_by_one
        chunks_are_read_by_key
        summaries_have_numbers
        entries_come_in_order
        facts_are_put_with_their_watermark
        facts_of_what_changed_are_not_put
        facts_go_with_their_source
        dropped_facts_are_drawn_anew
        the_last_verdict_stands
        a_verdict_quotes_what_is_there
        facts_and_verdicts_are_erased;
    secrets:
        secrets_are_registered
        a_rotated_secret_keeps_its_older_values
        a_name_tells_no_value
        secrets_are_removed
        what_was_redacted_with_other_secrets_is_refused
        what_was_hidden_is_counted
        counts_go_with_what_they_count;
    rewriting:
        a_rewritten_turn_keeps_its_place
        counts_follow_a_rewrite
        warm_text_and_packs_are_put_anew
        what_was_made_of_a_rewritten_turn_goes
        a_rewrite_compares_before_it_writes
        what_was_told_is_redacted_again
        names_that_become_the_same_are_numbered
        the_last_of_verdicts_that_become_the_same_stands
        derived_text_with_a_secret_goes
        what_holds_no_secret_is_left_alone;
    bounds:
        what_is_kept_is_counted
        entries_and_files_are_counted
        no_turn_goes_beyond_a_bound
        no_byte_goes_beyond_a_bound
        what_takes_away_goes_on_at_a_bound
        bounds_are_of_a_tenant
        a_day_is_counted_by_itself
        counts_that_are_right_stay;
    runs:
        a_run_begins_where_the_log_stands
        a_runs_id_is_taken_once
        a_step_does_all_it_says
        a_step_compares_before_it_is_done
        a_refused_step_leaves_nothing
        events_of_a_run_are_paged
        a_fork_repeats_what_has_ended
        only_what_has_ended_is_repeated
        a_run_keeps_its_claim
        unfinished_runs_are_listed_in_turns
        a_tenant_has_so_many_unfinished
        of_an_expired_run_its_name_stays
        an_expired_run_goes_for_good_later
        runs_are_erased_with_what_repeats_them
        a_run_outlasts_what_it_names
        runs_are_redacted_again;
    commitments:
        a_commitment_is_made_with_its_intention
        a_refused_commitment_leaves_nothing
        a_memory_has_so_many_pending
        a_commitment_keeps_its_claim
        commitments_are_listed_newest_first
        commitments_are_listed_page_by_page
        commitments_are_due_by_their_moment
        a_commitment_waits_for_an_entry
        tenants_wait_in_turn
        a_commitment_fires_once
        a_cancelled_commitment_stays_so
        without_its_intention_it_is_void
        an_intention_may_be_stood_for
        a_commitment_goes_with_its_intention
        a_settled_commitment_tells_nothing
        a_settled_commitment_is_let_go
        what_is_waited_for_is_forgotten
        commitments_are_redacted_again;
    schedules:
        a_schedule_is_kept_and_removed
        schedules_are_listed_oldest_first
        a_tenant_has_so_many_schedules
        a_schedule_keeps_its_claim
        schedules_are_due_by_their_moment
        a_tick_is_claimed_once
        an_instant_has_one_tick
        hosts_that_claim_at_once_share_the_instants
        a_tick_that_runs_is_not_overlapped
        a_failure_holds_up_what_comes_next
        a_holder_gives_signs_until_it_ends
        a_dead_holder_is_taken_over
        a_paused_schedule_is_not_due
        old_ticks_are_purged
        a_schedule_has_so_many_ticks
        a_schedule_follows_its_memory;
    dreams:
        one_dreams_at_a_time
        what_is_due_to_be_dreamt_is_found
        a_dream_is_kept_with_all_it_says
        a_dream_compares_before_it_is_kept
        a_refused_dream_leaves_nothing
        a_run_that_was_made_before_ends_with_its_dream
        an_archive_that_is_there_stays
        a_dream_is_taken_back
        what_was_made_of_a_dream_goes_with_it
        nothing_is_written_that_was_read_before_a_loss
        a_forgotten_turn_takes_dreams_along
        a_rewritten_turn_takes_dreams_along
        a_dream_without_its_archive_does_not_come_back
        a_dream_without_its_archive_is_lost_with_the_next
        what_an_undone_dream_told_goes_with_what_it_read
        a_deleted_entry_takes_dreams_along
        an_erased_entry_takes_dreams_along
        forgotten_facts_take_dreams_along
        what_was_taken_back_is_forgotten_too
        a_lost_index_is_missed_until_it_is_written
        an_archive_past_its_retention_goes
        dreams_are_listed_newest_first
        dreams_are_redacted_again;
    handoffs:
        a_handoff_is_kept_and_in_force
        handoffs_have_ids_of_their_own
        a_handoff_compares_before_it_is_kept
        a_fork_has_what_was_kept_before_it
        handoffs_are_redacted_with_the_secrets_of_now
        a_branch_corrects_what_is_in_force_on_it
        a_person_corrects_a_handoff
        handoffs_are_logged_without_words
        a_forgotten_turn_takes_handoffs_along
        a_handoff_goes_with_the_one_before
        a_handoff_further_back_leaves_those_behind_it
        nothing_of_a_forgotten_session_is_left
        a_rewritten_turn_takes_handoffs_along
        handoffs_are_redacted_again
        the_last_count_of_a_provider_stands
        an_answer_is_found_by_its_key
        answers_go_with_what_they_were_made_of
        spending_is_summed_up;
    leases:
        one_holds_a_lease_until_it_is_past
        who_renews_keeps_the_number
        a_lease_of_a_wrong_clock_is_nobodys
        a_lease_that_is_given_back_is_free
        nothing_is_written_under_a_lost_lease;
    workspace:
        a_file_has_versions_from_one
        so_many_versions_are_kept
        a_file_is_written_as_expected
        one_of_two_writers_wins
        files_are_listed_by_path
        a_deleted_file_begins_anew
        a_workspace_has_so_many_files
        workspaces_are_apart
        a_file_keeps_its_claim
        writing_a_file_is_logged
        files_are_redacted_with_the_secrets_of_now
        what_was_hidden_in_files_is_counted
        files_are_redacted_again
        a_path_that_tells_is_another;
}

/// Tries every sentence on a store of its own and names those that do not hold.
///
/// Each runs on a thread of its own, so that one that fails hides no other.
pub fn broken_sentences(fresh: impl Fn() -> Store + Sync) -> Vec<&'static str> {
    let holds = |sentence: Sentence| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(sentence(&fresh()));
    };
    let broken = |(_, sentence): &&(&str, Sentence)| {
        std::thread::scope(|scope| scope.spawn(|| holds(*sentence)).join().is_err())
    };
    ALL.iter().filter(broken).map(|(name, _)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::broken_sentences;
    use crate::Store;

    #[test]
    fn the_store_in_memory_keeps_the_contract() {
        assert_eq!(broken_sentences(|| Store::in_memory([3; 32])), [""; 0]);
    }

    /// A rewrite that fails left the old, one whose answer is lost left the new.
    async fn rewriting_is_one_step(store: Store) {
        use super::fixtures::*;
        use crate::store::hooks::Failing;

        let session = add(&store, "of q8Zk2Lm9Xw", &say_many(9)).await;
        warm(&store, session, 4).await;
        for (is_done, seq) in [(false, 3), (true, 3), (true, 9)] {
            let failing = match is_done {
                false => store.hooked(Failing::instead_of(1)),
                true => store.hooked(Failing::after(1)),
            };
            let before = (rows(&store, session).await, places(&store, session).await);
            let branch = icecore_domain::ids::Branch::MAIN;
            let change = rewriting(&store, &scope(), session, branch, &[seq]).await;
            assert!(failing.rewrite(&scope(), change).await.is_err());
            let after = (rows(&store, session).await, places(&store, session).await);
            assert_eq!(after != before, is_done);
            clean(&store).await;
        }
        let (acme, redactor) = (tenant("acme"), redactor_of(&["q8Zk2Lm9Xw"]));
        for is_done in [false, true] {
            let failing = match is_done {
                false => store.hooked(Failing::instead_of(1)),
                true => store.hooked(Failing::after(1)),
            };
            let told = failing.rewrite_stored_text(&acme, redactor.clone(), NOW).await;
            assert!(told.is_err());
            let name = store.sessions(&scope(), None, 1).await.unwrap().remove(0).name.unwrap();
            assert_eq!(name.as_str() == redactor.name("of q8Zk2Lm9Xw").as_str(), is_done);
        }
    }

    #[tokio::test]
    async fn rewriting_is_one_step_everywhere() {
        let dir = tempfile::tempdir().unwrap();
        let sqlite = Store::open(dir.path(), None).unwrap();
        rewriting_is_one_step(sqlite).await;
        rewriting_is_one_step(Store::in_memory([3; 32])).await;
    }

    #[tokio::test]
    async fn deriving_is_one_step_everywhere() {
        let dir = tempfile::tempdir().unwrap();
        let sqlite = Store::open(dir.path(), None).unwrap();
        super::derivation::deriving_is_one_step(sqlite).await;
        let memory = Store::in_memory([3; 32]);
        super::derivation::deriving_is_one_step(memory).await;
    }

    #[tokio::test]
    async fn keeping_a_dream_is_one_step_everywhere() {
        let dir = tempfile::tempdir().unwrap();
        let sqlite = Store::open(dir.path(), None).unwrap();
        super::dreams::keeping_is_one_step(sqlite).await;
        let memory = Store::in_memory([3; 32]);
        super::dreams::keeping_is_one_step(memory).await;
    }

    #[tokio::test]
    async fn keeping_a_handoff_is_one_step_everywhere() {
        let dir = tempfile::tempdir().unwrap();
        let sqlite = Store::open(dir.path(), None).unwrap();
        super::handoffs::keeping_is_one_step(sqlite).await;
        let memory = Store::in_memory([3; 32]);
        super::handoffs::keeping_is_one_step(memory).await;
    }

    #[test]
    fn sqlite_keeps_the_contract() {
        let dir = tempfile::tempdir().unwrap();
        let number = std::sync::atomic::AtomicU32::new(0);
        let fresh = || {
            let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Store::open(&dir.path().join(number.to_string()), None).unwrap()
        };
        assert_eq!(broken_sentences(fresh), [""; 0]);
    }
}
