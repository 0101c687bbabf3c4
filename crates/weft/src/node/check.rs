//! Checking, and mending, a node that does not run.

use std::collections::HashSet;
use std::sync::Arc;

use weft_auth::{Auth, Settings as AuthSettings};
use weft_core::service::{CheckReport, Finding, Severity};
use weft_core::{Error, ObjectId, Result};
use weft_kv::Engine;
use weft_store::{Check, Directory};
use weft_sys::Sys;
use weft_volume::export::{self, Beside};
use weft_volume::managed::{self, Config, Junction, PathsOfObjects};

use super::{AUTH_SPACE, NodeDirectory, SHARES_SPACE, VOLUME, volume_config};
use crate::paths;

/// Checks every structure: the engine's pages and log, the tables of identities, keys, the audit
/// log's chain, the store's records, files and blocks, the volume's tables. With `repair`, mends what
/// can be mended; without it `directory` is a shadow, for what cannot be looked at as it is.
pub async fn check(sys: &Sys, directory: &NodeDirectory, repair: bool) -> Result<CheckReport> {
    if !directory.is_founded() {
        return Err(Error::not_found("there is no node").op("check").about(directory.path().display()));
    }
    directory.check_metadata()?;
    directory.check_engine(sys)?;
    if repair {
        directory.upgrade()?;
    }
    let engine = directory.engine(sys)?;
    let auth_disk = directory.disk("auth")?;
    // Also of a shadow: the rest is looked at through keys, and by callers.
    let of_auth = weft_auth::mend(sys, engine.clone(), AUTH_SPACE, &*auth_disk, &[VOLUME]).await?;
    let rest = rest(sys, directory, &engine, repair).await;
    engine.close().await?;
    match rest {
        Err(error) if of_auth.is_empty() => Err(error),
        Err(error) => {
            // What was found is more than what became of looking further.
            let mut report = CheckReport { findings: of_auth, ..CheckReport::default() };
            report.findings.push(Finding {
                severity: Severity::Loss,
                structure: "node".to_owned(),
                detail: format!("objects and names could not be looked at: {error}"),
                repair: "see to the above first".to_owned(),
                object: None,
            });
            Ok(report)
        }
        Ok(mut report) => {
            report.findings.splice(0..0, of_auth);
            Ok(report)
        }
    }
}

/// Checks what needs the node's keys to be looked at: the store, and the volume.
async fn rest(
    sys: &Sys,
    directory: &NodeDirectory,
    engine: &Arc<dyn Engine>,
    repair: bool,
) -> Result<CheckReport> {
    let settings = AuthSettings { volumes: vec![VOLUME], replace_keys: false, ..AuthSettings::default() };
    let auth =
        Auth::open(sys.clone(), engine.clone(), AUTH_SPACE, directory.disk("auth")?, settings).await?.0;
    let auth = Arc::new(auth);
    let options = weft_store::Options::default();
    let store =
        Arc::new(Directory::open(sys.clone(), directory.disk("objects")?, engine.clone(), options).await?);
    let mut report = store.check(Check { repair, blocks: true }).await?;
    let config = volume_config(sys, engine, &auth, store.clone());
    let tables = volume(&config, &auth, repair, &mut report.findings).await?;
    report.inodes += tables.inodes;
    report.findings.extend(tables.findings);
    // What is wrong in the volume may keep it from saying where shares hang; then they are left alone.
    if let Ok(junctions) = managed::junctions_at_rest(config).await {
        report.findings.extend(shares(sys, engine, &auth, &junctions, repair).await?);
    }
    store.close().await?;
    auth.close().await?;
    Ok(report)
}

/// Checks what is shared.
pub async fn shares(
    sys: &Sys,
    engine: &Arc<dyn Engine>,
    auth: &Auth,
    junctions: &[Junction],
    repair: bool,
) -> Result<Vec<Finding>> {
    let beside = Beside { junctions, administrators: auth.administrators(), now: sys.clock().now() };
    export::check(engine.clone(), SHARES_SPACE, &beside, repair).await
}

async fn volume(config: &Config, auth: &Auth, repair: bool, in_store: &mut [Finding]) -> Result<CheckReport> {
    let report = match repair {
        true => managed::mend(config.clone(), auth.administrators().clone()).await?,
        false => managed::check_at_rest(config.clone()).await?,
    };
    let objects = objects_of(in_store);
    // What is wrong may keep it from saying where a file lies: then objects stay unnamed.
    if !objects.is_empty()
        && let Ok(paths) = managed::paths_at_rest(config.clone(), &objects).await
    {
        name_files(&paths, in_store);
    }
    Ok(report)
}

/// Returns the objects that findings are about.
pub fn objects_of(findings: &[Finding]) -> HashSet<ObjectId> {
    findings.iter().filter_map(|finding| finding.object).collect()
}

/// Says of each finding about an object which file that is.
pub fn name_files(paths: &PathsOfObjects, findings: &mut [Finding]) {
    for finding in findings {
        let found = finding.object.and_then(|object| paths.get(&object));
        if let Some(found) = found.filter(|found| !found.is_empty()) {
            let shown: Vec<_> = found.iter().map(paths::show).collect();
            finding.detail = format!("{}: {}", shown.join(" and "), finding.detail);
        }
    }
}
