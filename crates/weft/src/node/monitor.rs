//! What a node tells monitors: `/metrics`, `/healthz` and `/readyz`, on a listener of their own.
//!
//! It stops after the doors do, so that whoever sends requests to the node hears that it drains while it
//! does.

mod text;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_auth::Auth;
use weft_core::metrics::{Flow, Outcome, Version};
use weft_core::service::ObjectStore;
use weft_core::{Clock, Time, limits};
use weft_doors_http::notices::{Notice, Notices};
use weft_doors_http::status::Status;
use weft_doors_listener::Bounds;
use weft_kv::Engine;
use weft_mover::{Direction, Mover};
use weft_store::Directory;
use weft_sys::{Sys, process};

/// What is looked at to tell how the node is.
pub struct Monitor {
    sys: Sys,
    started: Time,
    engine: Arc<dyn Engine>,
    auth: Arc<Auth>,
    store: Arc<Directory>,
    mover: Arc<Mover>,
    /// Whether the node has been told to stop.
    stopping: AtomicBool,
}

/// The bounds of its listener: monitors are few.
pub fn bounds() -> Bounds {
    let most = limits::MONITOR_CONNECTIONS_MAX;
    Bounds { connections: most, connections_each: most, connections_loopback: most, ..Bounds::default() }
}

impl Monitor {
    /// Makes it of the parts of a node that starts.
    pub fn new(
        sys: &Sys,
        engine: &Arc<dyn Engine>,
        auth: &Arc<Auth>,
        store: &Arc<Directory>,
        mover: &Arc<Mover>,
    ) -> Self {
        Self {
            sys: sys.clone(),
            started: sys.now(),
            engine: engine.clone(),
            auth: auth.clone(),
            store: store.clone(),
            mover: mover.clone(),
            stopping: AtomicBool::new(false),
        }
    }

    /// Says that the node is about to stop.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Returns why the node should be sent no requests, if that is so.
    pub fn trouble(&self) -> Option<String> {
        if self.stopping.load(Ordering::Acquire) {
            return Some("the node is stopping: what is under way ends".to_owned());
        }
        if let Some(error) = self.engine.failed() {
            return Some(format!("the metadata cannot be written: {}", error.detail()));
        }
        match self.store.space() {
            Err(error) => Some(format!("the disk cannot be asked how full it is: {}", error.detail())),
            Ok(space) if space.bytes_free < limits::READY_BYTES_FREE => {
                Some(format!("the disk is full: {} bytes are free", space.bytes_free))
            }
            Ok(_) => None,
        }
    }

    /// Returns what does not work as it should, while the node goes on.
    pub fn degraded(&self) -> Vec<String> {
        let metrics = self.sys.metrics();
        let lost = metrics.auth_audit_lost.value(());
        let sweeps = metrics.volume_sweeps.value((Outcome::Failed,));
        let folds = metrics.kv_folds.value((Outcome::Failed,));
        let all = [
            (lost, "audit records were lost since the start: the disk did not take them"),
            (sweeps, "sweeps did not come to their end since the start: what nobody refers to stays"),
            (folds, "folds of the metadata failed since the start: they wait in memory and log"),
        ];
        all.into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .chain(self.auth.issuer_troubles())
            .collect()
    }

    /// Returns how many transfers are under way.
    pub fn transfers(&self) -> usize {
        self.mover.transfers().len()
    }

    /// Takes up what is looked at, not counted.
    fn look(&self) {
        let metrics = self.sys.metrics();
        metrics.node_build.set((Version,), 1);
        metrics.node_ready.set((), u64::from(self.trouble().is_none()));
        metrics.node_start.set((), u64::try_from(self.started.seconds()).unwrap_or(0) * 1_000_000);
        if let Ok(space) = self.store.space() {
            metrics.store_size.set((), space.bytes_total);
            metrics.store_free.set((), space.bytes_free);
        }
        metrics.auth_sessions.set((), self.auth.session_count());
        let transfers = self.mover.transfers();
        for (flow, direction) in [(Flow::In, Direction::Inbound), (Flow::Out, Direction::Outbound)] {
            let count = transfers.iter().filter(|one| one.direction == direction).count();
            metrics.mover_transfers.set((flow,), count as u64);
        }
        metrics.mover_waiting.set((), self.mover.waiting() as u64);
        let usage = process::usage();
        metrics.process_resident.set((), usage.resident_bytes);
        metrics.process_cpu.follow((), u64::try_from(usage.cpu.as_micros()).unwrap_or(u64::MAX));
        metrics.process_threads.set((), usage.threads);
        metrics.process_descriptors.set((), usage.descriptors);
        metrics.process_descriptors_max.set((), usage.descriptors_max);
    }
}

impl Notices for Monitor {
    fn notice(&self, path: &[u8]) -> Option<Notice> {
        match path {
            b"/metrics" => {
                self.look();
                let text = text::render(&self.sys.metrics().families());
                Some(Notice { status: Status::OK, media: text::MEDIA, text })
            }
            // It answers: that is all that is asked.
            b"/healthz" => Some(Notice::line(Status::OK, "alive")),
            b"/readyz" => Some(match self.trouble() {
                None => Notice::line(Status::OK, "ready"),
                Some(why) => Notice::line(Status::UNAVAILABLE, &why),
            }),
            _ => None,
        }
    }
}
