//! Checking, and mending, a node that does not run.

use std::sync::Arc;

use weft_auth::{Auth, Settings as AuthSettings};
use weft_core::service::{CheckReport, ObjectStore};
use weft_core::{Error, Result};
use weft_kv::{Embedded, Engine};
use weft_store::{Check, Directory};
use weft_sys::Sys;
use weft_volume::managed::{self, Managed};

use super::{AUTH_SPACE, NodeDirectory, VOLUME, call_of, volume_config};

/// Checks every structure: the engine's pages and log, the store's records, files and
/// blocks, the volume's tables. With `repair`, mends what can be mended.
pub async fn check(sys: &Sys, directory: &NodeDirectory, repair: bool) -> Result<CheckReport> {
    if !directory.is_founded() {
        return Err(Error::not_found("there is no node").op("check").about(directory.path().display()));
    }
    let meta = directory.disk("meta")?;
    Embedded::check(sys, &meta, weft_kv::Options::default())?;
    let engine: Arc<dyn Engine> = Arc::new(Embedded::open(sys.clone(), meta, weft_kv::Options::default())?);
    let settings = AuthSettings { volumes: vec![VOLUME], ..AuthSettings::default() };
    let auth =
        Auth::open(sys.clone(), engine.clone(), AUTH_SPACE, directory.disk("auth")?, settings).await?.0;
    let auth = Arc::new(auth);
    let options = weft_store::Options::default();
    let store =
        Arc::new(Directory::open(sys.clone(), directory.disk("objects")?, engine.clone(), options).await?);
    let mut report = store.check(Check { repair, blocks: true }).await?;
    let tables = volume(sys, &engine, &auth, store.clone(), repair).await?;
    report.inodes += tables.inodes;
    report.findings.extend(tables.findings);
    store.close().await?;
    auth.close().await?;
    engine.close().await?;
    Ok(report)
}

async fn volume(
    sys: &Sys,
    engine: &Arc<dyn Engine>,
    auth: &Arc<Auth>,
    store: Arc<dyn ObjectStore>,
    repair: bool,
) -> Result<CheckReport> {
    let config = volume_config(sys, engine, auth, store);
    if repair {
        return managed::mend(config, auth.administrators().clone()).await;
    }
    let volume = Managed::open(config).await?;
    volume.check(&call_of(sys, &auth.node_caller()?)).await
}
