//! What a node tells monitors: `/metrics`, `/healthz` and `/readyz`, on a listener of their own.
//!
//! It stops after the doors do, so that whoever sends requests to the node hears that it drains while it
//! does.

mod text;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_auth::Auth;
use weft_core::metrics::{Flow, Version};
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
    pub sys: Sys,
    pub started: Time,
    pub engine: Arc<dyn Engine>,
    pub auth: Arc<Auth>,
    pub store: Arc<Directory>,
    pub mover: Arc<Mover>,
    /// Whether the node has been told to stop.
    pub stopping: AtomicBool,
}

/// The bounds of its listener: monitors are few.
pub fn bounds() -> Bounds {
    let most = limits::MONITOR_CONNECTIONS_MAX;
    Bounds { connections: most, connections_each: most, connections_loopback: most, ..Bounds::default() }
}

impl Monitor {
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

/// Makes a monitor of a node that has just started.
pub fn of(sys: &Sys, node: &super::Running) -> Monitor {
    Monitor {
        sys: sys.clone(),
        started: sys.now(),
        engine: node.engine.clone(),
        auth: node.auth.clone(),
        store: node.store.clone(),
        mover: node.mover.clone(),
        stopping: AtomicBool::new(false),
    }
}
