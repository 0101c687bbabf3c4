//! The catalogue: everything that is measured, its name outside, unit, labels and stability.
//!
//! `docs/reference/metrics.md` is written from it. Names are `weft_PART_WHAT_UNIT`, where the part is a crate, `node` or `process`; what is
//! counted ends in `_total`.

use super::{Counter, Entry, Flow, Gauge, Kind, LoginBy, Outcome, Sample, Stability, Unit, Version, Way};
use super::{Labels, Withdrawn, Work};
use crate::error::ErrorKind;

macro_rules! catalogue {
    ($($(#[doc = $help:literal])+ $field:ident: $kind:ident<$labels:ty> = $name:literal, $unit:ident, $stability:ident;)*) => {
        /// Everything that is measured.
        #[derive(Debug, Default)]
        pub struct Metrics { $( $(#[doc = $help])+ pub $field: $kind<$labels>, )* }

        impl Metrics {
            /// What there is.
            pub const CATALOGUE: &[Entry] = &[ $( Entry {
                field: stringify!($field),
                name: $name,
                kind: Kind::$kind,
                unit: Unit::$unit,
                stability: Stability::$stability,
                help: concat!($($help),+),
                labels: <$labels as Labels>::LABELS,
            } ),* ];

            /// Returns every value, in the order of the catalogue.
            pub fn families(&self) -> Vec<(&'static Entry, Vec<Sample>)> {
                let samples = [ $( self.$field.samples() ),* ];
                Self::CATALOGUE.iter().zip(samples).collect()
            }
        }
    };
}

catalogue! {
    /// Requests that have ended.
    doors_requests: Counter<(Way, Work, Outcome)> = "weft_doors_requests_total", Count, Stable;
    /// Time from a request's beginning to the end of its answer: what was moved and waited for meanwhile counts.
    doors_took: Counter<(Way, Work)> = "weft_doors_request_seconds_total", Seconds, Stable;
    /// Requests that were answered with an error, by its kind.
    doors_errors: Counter<(Way, ErrorKind)> = "weft_doors_errors_total", Count, Stable;
    /// Connections that are open.
    doors_connections: Gauge<(Way,)> = "weft_doors_connections", Count, Stable;
    /// Connections that were let in.
    doors_connections_opened: Counter<(Way,)> = "weft_doors_connections_opened_total", Count, Stable;
    /// Connections that were turned away: their machine or uid had as many as it may have.
    doors_turned_away: Counter<(Way,)> = "weft_doors_turned_away_total", Count, Stable;
    /// TLS handshakes that came to nothing.
    doors_handshakes_failed: Counter<()> = "weft_doors_handshakes_failed_total", Count, Stable;
    /// Bytes of the protocols, TLS apart, that went in or out.
    doors_moved: Counter<(Way, Flow)> = "weft_doors_moved_bytes_total", Bytes, Stable;
    /// Transfers over HTTP that are under way, small ones apart.
    mover_transfers: Gauge<(Flow,)> = "weft_mover_transfers", Count, Stable;
    /// Those of them that wait for their turn.
    mover_waiting: Gauge<()> = "weft_mover_waiting", Count, Stable;
    /// Bytes of files that transfers over HTTP moved.
    mover_moved: Counter<(Flow,)> = "weft_mover_moved_bytes_total", Bytes, Stable;
    /// Commits of the metadata.
    kv_commits: Counter<()> = "weft_kv_commits_total", Count, Stable;
    /// Bytes that were written to the metadata log.
    kv_log: Counter<()> = "weft_kv_log_bytes_total", Bytes, Stable;
    /// Flushes of the metadata log.
    kv_flushes: Counter<()> = "weft_kv_flushes_total", Count, Stable;
    /// Time that these took.
    kv_flush: Counter<()> = "weft_kv_flush_seconds_total", Seconds, Stable;
    /// Folds of changed metadata into the tree.
    kv_folds: Counter<(Outcome,)> = "weft_kv_folds_total", Count, Trial;
    /// Bytes that the disk of the objects has.
    store_size: Gauge<()> = "weft_store_size_bytes", Bytes, Stable;
    /// Bytes of it that are free.
    store_free: Gauge<()> = "weft_store_free_bytes", Bytes, Stable;
    /// Objects that the scrubber looked at.
    store_scrubbed: Counter<()> = "weft_store_scrubbed_total", Count, Stable;
    /// Bytes that the scrubber compared with what was written.
    store_scrubbed_bytes: Counter<()> = "weft_store_scrubbed_bytes_total", Bytes, Stable;
    /// When a round of the scrubber last came to its end, in seconds since 1970; 0 if none did.
    store_scrub_ended: Gauge<()> = "weft_store_scrub_ended_seconds", Seconds, Stable;
    /// Objects that are known to be damaged: must stay 0.
    store_damaged: Gauge<()> = "weft_store_damaged", Count, Stable;
    /// Sessions.
    auth_sessions: Gauge<()> = "weft_auth_sessions", Count, Stable;
    /// Logins: evidence that was looked at anew.
    auth_logins: Counter<(LoginBy, Outcome)> = "weft_auth_logins_total", Count, Stable;
    /// Logins that had to wait, or were not heard, after too many wrong ones.
    auth_throttled: Counter<()> = "weft_auth_throttled_total", Count, Stable;
    /// Capabilities that were signed.
    auth_capabilities: Counter<()> = "weft_auth_capabilities_total", Count, Stable;
    /// Withdrawals of capabilities, by a changed policy too.
    auth_withdrawals: Counter<(Withdrawn,)> = "weft_auth_withdrawals_total", Count, Stable;
    /// Revocations that somebody asked for, and that were made.
    auth_revocations: Counter<()> = "weft_auth_revocations_total", Count, Stable;
    /// When the first of the signing keys runs out, in seconds since 1970: nobody is let in after that.
    auth_key_end: Gauge<()> = "weft_auth_key_end_seconds", Seconds, Stable;
    /// Audit records that could not be kept: must stay 0.
    auth_audit_lost: Counter<()> = "weft_auth_audit_lost_total", Count, Stable;
    /// Files that are open.
    volume_opens: Gauge<()> = "weft_volume_opens", Count, Stable;
    /// Sweeps, once an hour, for what crashes and abandoned uploads left.
    volume_sweeps: Counter<(Outcome,)> = "weft_volume_sweeps_total", Count, Stable;
    /// Whether the node is ready: what `/readyz` says.
    node_ready: Gauge<()> = "weft_node_ready", Flag, Stable;
    /// When the node was started, in seconds since 1970.
    node_start: Gauge<()> = "weft_node_start_seconds", Seconds, Stable;
    /// The version that runs.
    node_build: Gauge<(Version,)> = "weft_node_build_info", Flag, Stable;
    /// Memory that the process has.
    process_resident: Gauge<()> = "weft_process_resident_bytes", Bytes, Stable;
    /// Time of processors that it took.
    process_cpu: Counter<()> = "weft_process_cpu_seconds_total", Seconds, Stable;
    /// Threads that it has.
    process_threads: Gauge<()> = "weft_process_threads", Count, Stable;
    /// Files and sockets that it has open.
    process_descriptors: Gauge<()> = "weft_process_descriptors", Count, Stable;
    /// How many of them it may have open.
    process_descriptors_max: Gauge<()> = "weft_process_descriptors_max", Count, Stable;
}
