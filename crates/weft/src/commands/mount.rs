//! `weft mount` and `weft umount`

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use weft_client::Client;
use weft_core::{Error, ErrorKind, Result};
use weft_doors_fuse::{MountSettings, OneCaller, mount};
use weft_sys::{fault, process};

use crate::commands::up::run_detached;
use crate::context::Context;
use crate::paths;

/// Options of `weft mount`.
#[derive(Args)]
pub struct MountArgs {
    /// The directory of the tree to mount
    path: OsString,
    /// An empty directory of this machine
    dir: PathBuf,
    /// Go on in the background once the mount stands
    #[arg(long)]
    daemon: bool,
}

/// Options of `weft umount`.
#[derive(Args)]
pub struct UmountArgs {
    /// Where it is mounted
    dir: PathBuf,
    /// Take it away even while it is used
    #[arg(long)]
    lazy: bool,
}

pub fn run(context: &Context, args: &MountArgs) -> Result<()> {
    if args.daemon {
        let path =
            std::env::temp_dir().join(format!("weft-mount-{}-{}.log", process::uid(), std::process::id()));
        let failed = |e| fault::error(e, "write", path.display());
        let log = std::fs::File::options().create_new(true).append(true).open(&path).map_err(failed)?;
        return run_detached(log, &path);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| Error::new(ErrorKind::Unavailable, "no runtime could be made").caused_by(e))?;
    runtime.block_on(serve(context, args))
}

async fn serve(context: &Context, args: &MountArgs) -> Result<()> {
    let client = Client::connect(context.sys(), &context.place()?).await?;
    let caller = client.own_caller().await?;
    let root = paths::at(&args.path)?;
    let settings = MountSettings {
        mountpoint: args.dir.clone(),
        name: String::from("weft"),
        fs: client.fs(),
        root,
        calls: Arc::new(OneCaller { caller, session: client.session() }),
        uid: process::uid(),
        gid: process::gid(),
        clock: Arc::new(context.sys().clone()),
        patience: weft_core::limits::CALL_DEADLINE,
    };
    let mounted = mount(settings).await.map_err(|e| e.op("mount").about(args.path.to_string_lossy()))?;
    println!("ready");
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .map_err(|e| fault::error(e, "listen for", "signals"))?;
    tokio::select! {
        () = mounted.wait() => return Ok(()),
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    match mounted.unmount().await {
        Err(e) if e.kind() == ErrorKind::Busy => mounted.unmount_lazily().await,
        outcome => outcome,
    }
}

pub fn umount(args: &UmountArgs) -> Result<()> {
    let mut command = std::process::Command::new("fusermount3");
    command.arg(if args.lazy { "-uz" } else { "-u" }).arg("--").arg(&args.dir);
    let output = command
        .output()
        .map_err(|e| fault::error(e, "run", "fusermount3").hint("install the package fuse3"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::new(ErrorKind::Busy, said).op("unmount").about(args.dir.display()))
}
