//! `weft up` and `weft down`

use std::io::IsTerminal;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use weft_auth::Founded;
use weft_core::service::Node;
use weft_core::{Deadline, Error, ErrorKind, Result, limits};
use weft_sys::{Sys, fault};

use crate::commands::detached::{self, LOG_FILE};
use crate::config::{Config, Flags, Layers, Place, Setting};
use crate::context::Context;
use crate::log::{Log, Logging};
use crate::node::{NodeDirectory, Running, write_ready};
use crate::output::{note, out};
use crate::progress::{self, Beside, Shown};
use crate::service;

/// Options of `weft up`.
#[derive(Args)]
pub struct UpArgs {
    /// The node's directory; made, with a domain and an administrator, if it is not there
    dir: Option<PathBuf>,
    /// Where HTTP listens; port 0 lets the machine choose [default: 127.0.0.1:8420]
    #[arg(long, value_name = "ADDRESS", value_parser = of(Setting::Http))]
    http: Option<String>,
    /// Where HTTPS listens, or `off`; beside HTTP if it is not given, on the next port
    #[arg(long, value_name = "ADDRESS", value_parser = of(Setting::Https))]
    https: Option<String>,
    /// Where /metrics, /healthz and /readyz are, or `off`; on the loopback, two ports above HTTP,
    /// if it is not given
    #[arg(long, value_name = "ADDRESS", value_parser = of(Setting::Monitor))]
    monitor: Option<String>,
    /// The certificate that HTTPS shows, and those between it and its authority, in PEM; the
    /// node's own if it is not given
    #[arg(long, value_name = "FILE", value_parser = of(Setting::Certificate), requires = "tls_key")]
    tls_cert: Option<String>,
    /// The key of that certificate, in PEM, which nobody else can read
    #[arg(long, value_name = "FILE", value_parser = of(Setting::CertificateKey), requires = "tls_cert")]
    tls_key: Option<String>,
    /// A host name that HTTP requests may use (may be given again)
    #[arg(long, value_name = "NAME", value_parser = of(Setting::Hosts))]
    host: Vec<String>,
    /// The address that people reach the node at, where a server in front of it ends TLS
    #[arg(long, value_name = "URL", value_parser = of(Setting::Public))]
    public: Option<String>,
    /// The configuration [default: $WEFT_CONFIG, or weft.toml in the node's directory]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Write a JSON object with every address to this file once the node answers
    #[arg(long, value_name = "FILE")]
    ready: Option<PathBuf>,
    /// Go on in the background once the node answers
    #[arg(long)]
    daemon: bool,
}

/// Returns what reads a value of a key from the command line: as it is, if it can be one.
fn of(key: Setting) -> impl Fn(&str) -> std::result::Result<String, String> + Clone + Send + Sync + 'static {
    move |text| {
        let values = [text.to_owned()];
        key.check(&values).map(|()| text.to_owned())
    }
}

impl UpArgs {
    /// Returns what was said here.
    fn flags(&self) -> Flags {
        let one = |key, text: &Option<String>| text.clone().map(|text| (key, vec![text]));
        let hosts = (!self.host.is_empty()).then(|| (Setting::Hosts, self.host.clone()));
        let all = [
            one(Setting::Http, &self.http),
            one(Setting::Https, &self.https),
            one(Setting::Monitor, &self.monitor),
            one(Setting::Certificate, &self.tls_cert),
            one(Setting::CertificateKey, &self.tls_key),
            one(Setting::Public, &self.public),
            hosts,
        ];
        all.into_iter().flatten().collect()
    }

    /// Returns how the node in `dir` is to be run. Tells every mistake, and fails, if there is one.
    fn config(&self, dir: &Path) -> Result<Config> {
        let layers = Layers::gather(&Place::of(self.config.clone(), dir), &self.flags())?;
        Config::of(&layers).map_err(|mistakes| {
            super::config::tell(&mistakes);
            let count = mistakes.len();
            let what = if count == 1 { "a mistake".to_owned() } else { format!("{count} mistakes") };
            Error::invalid(format!("the configuration has {what}"))
                .hint("`weft config check` tells them without starting anything")
        })
    }
}

pub fn up(context: &Context, args: &UpArgs) -> Result<ExitCode> {
    let dir = context.directory(args.dir.clone())?;
    if args.daemon {
        // Before a log is made in what is somebody's directory.
        NodeDirectory::look(&dir, true)?;
        return detach(context, &dir);
    }
    let config = args.config(&dir)?;
    let shown = progress::waiting(context, "starting");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::new(ErrorKind::Unavailable, "no runtime could be made").caused_by(e))?;
    let ready = args.ready.clone();
    let starting = Starting { sys: context.sys().clone(), dir, config, ready, beside: shown.room() };
    match runtime.block_on(serve(context, args, starting, shown)) {
        // What it was about is left as by a crash, which the next start sees to. It may wait for what never comes.
        Ok(Ended::BeforeReady) => runtime.shutdown_background(),
        served => {
            // A thread that waits for a dead disk does not come back: everything acknowledged is on disk by now.
            runtime.shutdown_timeout(limits::THREADS_END_WITHIN);
            served?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// How a node that nothing was wrong with ended.
enum Ended {
    /// It was told to stop while it started.
    BeforeReady,
    /// It served, and stopped.
    Stopped,
}

/// A start under way: on a thread of its own, since it waits for disks and for what others serve.
struct Starting {
    sys: Sys,
    dir: PathBuf,
    config: Config,
    ready: Option<PathBuf>,
    beside: Beside,
}

/// What a start made.
struct Started {
    running: Running,
    path: PathBuf,
    config: Config,
    log: Log,
}

impl Starting {
    async fn start(self) -> Result<Started> {
        let Self { sys, dir, config, ready, beside } = self;
        // Before the log is made: that may lie in it, and a directory that holds something is no new node's.
        let directory = NodeDirectory::take(&dir, true, "up")?;
        let log = Log::start(beside.clone(), &logging(&config))?;
        let path = directory.path().to_path_buf();
        let tell = |it: &Founded| beside.print(|| tell(&path, it));
        let running = Running::start(&sys, directory, &config.settings(), tell).await?;
        if let Some(file) = &ready {
            write_ready(&sys, file, running.addresses())?;
        }
        Ok(Started { running, path, config, log })
    }
}

async fn serve(context: &Context, args: &UpArgs, starting: Starting, shown: Shown) -> Result<Ended> {
    let mut signals = Signals::new()?;
    let mut starting = context.sys().spawn(starting.start());
    let mut again = false;
    let started = loop {
        tokio::select! {
            started = &mut starting => break started??,
            asked = signals.next() => match asked {
                // What it began with was read before.
                Asked::Reload => again = true,
                Asked::Stop(name) => {
                    drop(shown);
                    note!("stopped by {name} before it was ready");
                    return Ok(Ended::BeforeReady);
                }
            },
        }
    };
    let Started { running, path, config, log } = started;
    drop(shown);
    announce(&path, &running);
    service::ready();
    let lives = service::live(context.sys());
    let take_up = async || {
        let new = reload(args, &path, &config, &log).map(|new| new.settings());
        running.reload(new.as_ref()).await;
    };
    if again {
        take_up().await;
    }
    loop {
        tokio::select! {
            () = running.stop_asked() => tracing::info!("stopping: an administrator asked"),
            asked = signals.next() => match asked {
                Asked::Stop(name) => tracing::info!(signal = name, "stopping"),
                Asked::Reload => {
                    take_up().await;
                    continue;
                }
            },
        }
        break;
    }
    service::stopping();
    let stopped = running.stop(context.sys()).await;
    // Until then it lives, however long that takes.
    drop(lives);
    stopped.map(|()| Ended::Stopped)
}

/// Returns how a node logs: one in the background into the file that its stderr is, so that it is put
/// aside when it is full.
fn logging(config: &Config) -> Logging {
    let mut logging = config.logging().clone();
    let detached = || std::env::var_os(LOG_FILE).map(PathBuf::from);
    logging.file = logging.file.or_else(detached);
    logging
}

/// Tells a person what a first start made.
fn tell(path: &Path, founded: &Founded) {
    note!("made a domain: {}", founded.domain);
    note!("  administrator {}: your uid on this machine, no password needed", founded.administrator.local());
    note!(
        "  root key      {}: put a copy away; it is needed only to change keys",
        path.join("auth").join(&founded.root_key).display()
    );
}

/// Tells a person where everything is. On stdout, so that a parent that waits for a
/// detached node hears when it answers.
fn announce(path: &Path, running: &Running) {
    note!("data     {}", path.display());
    for (door, address) in running.addresses() {
        note!("{door:8} {address}");
    }
    if let Some(shown) = running.shown() {
        note!("         certificate sha256 {}", shown.fingerprint().unwrap_or_default());
        let https = running.addresses().iter().find(|(door, _)| door == "https");
        if let (Some(own), Some((_, address))) = (shown.own(), https) {
            note!("         curl --cacert {} {address}/", own.display());
        }
    }
    // A node serves whether or not somebody listens.
    let _ = out!("ready");
}

/// The signals that stop a node cleanly, and the one that has it read its certificate again.
struct Signals {
    hangup: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

enum Asked {
    Stop(&'static str),
    Reload,
}

impl Signals {
    fn new() -> Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let failed = |e| fault::error(e, "listen for", "signals");
        Ok(Self {
            hangup: signal(SignalKind::hangup()).map_err(failed)?,
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
        })
    }

    async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::Stop("SIGTERM"),
            _ = self.interrupt.recv() => Asked::Stop("SIGINT"),
            // A node in a terminal ends with it.
            _ = self.hangup.recv() => match std::io::stderr().is_terminal() {
                true => Asked::Stop("SIGHUP"),
                false => Asked::Reload,
            },
        }
    }
}

/// Reads the configuration again, and takes up what of it is about the log. Returns it for the rest; nothing if
/// it has a mistake: then what was stays.
fn reload(args: &UpArgs, dir: &Path, config: &Config, log: &Log) -> Option<Config> {
    let place = Place::of(args.config.clone(), dir);
    let new = match Layers::gather(&place, &args.flags()) {
        Ok(layers) => Config::of(&layers),
        Err(error) => {
            tracing::error!(%error, "the configuration could not be read: what was stays");
            return None;
        }
    };
    match new {
        Err(mistakes) => {
            for mistake in mistakes {
                tracing::error!(%mistake, "the configuration has a mistake: what was stays");
            }
            None
        }
        Ok(new) => {
            log.change(&new.logging().filter);
            log.reopen();
            for key in config.needs_restart(&new) {
                tracing::warn!(key = key.about().name, "a changed setting waits for the next start");
            }
            tracing::info!(log = new.logging().filter, "the configuration was read again");
            Some(new)
        }
    }
}

/// Starts the same command as a process of its own session, and returns once it says
/// that it is ready.
fn detach(context: &Context, dir: &Path) -> Result<ExitCode> {
    let failed = |e| fault::error(e, "start", "a node in the background");
    NodeDirectory::make(dir)?;
    let log_path = dir.join("log");
    let log =
        std::fs::File::options().create(true).append(true).mode(0o600).open(&log_path).map_err(failed)?;
    detached::run(context, log, &log_path)
}

pub fn down(context: &Context) -> Result<()> {
    context.wait(async {
        let _shown = progress::waiting(context, "stopping");
        let client = context.client().await?;
        client.remote().stop(client.caller()).await?;
        // It has stopped once nobody holds its directory any more.
        let dir = context.directory(None)?;
        let until = Deadline::within(context.sys().clock(), limits::DRAIN_DEADLINE * 3);
        loop {
            match NodeDirectory::take_any(&dir, false, "down") {
                Ok(directory) => return directory.release(),
                Err(e) if e.kind() != ErrorKind::Busy || until.passed(context.sys().clock()) => {
                    return Err(e);
                }
                Err(_) => context.sys().sleep(std::time::Duration::from_millis(20)).await,
            }
        }
    })
}
