//! How a node is to be run: one file, pieces beside it, the environment, the command line.
//!
//! **Problem.** An operator must be able to say once how a node runs, a package or a deployment to add a piece without
//! editing what somebody wrote by hand, and everybody to find out where a value came from. A slip of the pen must be
//! told with its line, before the node is restarted into it.
//!
//! **Shape.** What can be set is a table ([`settings`]); everything else follows from it:
//!
//! ```text
//!  default ◀ weft.toml ◀ weft.toml.d/*.toml ◀ environment ◀ command line      the later wins
//!            (file: text to values with lines)
//!  layers: every value with its origin ─▶ Config: typed, or every mistake at once
//! ```
//!
//! Values are kept as the text they were given as, with their origin, until the last moment: so that `weft config
//! show` tells what was said, and a mistake is told where it was made.
//!
//! **Ways to get it wrong.** Starting with half of a file: a node whose configuration has a mistake does not start, and one that
//! runs keeps what it has. Reading a key that nobody can set: the table is the only place that names them.

mod clients;
mod file;
mod issuers;
mod layers;
mod settings;
mod tables;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use weft_doors_listener::Files;
use weft_remote::{Network, Url};

pub use clients::ClientAuthority;
pub use issuers::Issuer;
pub use layers::{Flags, Layers, Mistake, Origin, Place};
pub use settings::{Kind, Setting};

use crate::log::{Format, Logging};
use crate::node::{HttpsSettings, NodeSettings, is_name};
use crate::sizes;

/// A configuration that can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    http: SocketAddr,
    https: Listen,
    monitor: Listen,
    /// The certificate that was given, and its key.
    given: Option<(PathBuf, PathBuf)>,
    /// Whether HTTPS offers HTTP/2.
    http2: bool,
    /// With the host of the public address.
    hosts: Vec<String>,
    /// The address that people reach it at, if somebody said.
    public: Option<Url>,
    third_party: ThirdParty,
    issuers: Vec<Issuer>,
    client_authorities: Vec<ClientAuthority>,
    /// Bytes in a second; 0 is off.
    scrub: u64,
    logging: Logging,
}

/// How third-party copies are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThirdParty {
    /// Networks that they may reach besides the Internet.
    pub to: Vec<Network>,
    /// Authorities that are believed besides the machine's.
    pub authorities: Option<PathBuf>,
}

/// Whether and where something listens beside HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Nowhere.
    Off,
    /// There.
    At(SocketAddr),
    /// On a port that follows that of HTTP.
    Beside,
}

impl Config {
    /// Makes the configuration that these layers come to. Fails with every mistake that is in them.
    pub fn of(layers: &Layers) -> Result<Self, Vec<Mistake>> {
        let mut mistakes = layers.mistakes.clone();
        let mut one = |key: Setting| {
            let set = layers.effective(key);
            let wrong = key.check(&set.values).err();
            mistakes.extend(wrong.map(|why| Mistake::of(&set, why)));
            set.values
        };
        let http = one(Setting::Http).first().and_then(|text| text.parse().ok());
        let https = one(Setting::Https).first().and_then(|text| listen(text));
        let monitor = one(Setting::Monitor).first().and_then(|text| listen(text));
        let (chain, key) = (one(Setting::Certificate).pop(), one(Setting::CertificateKey).pop());
        let http2 = one(Setting::Http2).iter().any(|text| text == "on");
        let mut hosts = one(Setting::Hosts);
        let public = one(Setting::Public).pop().and_then(|text| public(&text));
        let host = public.as_ref().map(Url::host).filter(|host| hosts.iter().all(|own| own != host));
        hosts.extend(host.map(str::to_owned));
        let to = one(Setting::ThirdPartyTo).iter().filter_map(|text| text.parse().ok()).collect();
        let authorities = one(Setting::ThirdPartyAuthorities).pop().map(PathBuf::from);
        let third_party = ThirdParty { to, authorities };
        let issuers = issuers::read(&one(Setting::Issuers)).unwrap_or_default();
        let client_authorities = clients::read(&one(Setting::ClientAuthorities)).unwrap_or_default();
        let scrub = one(Setting::Scrub).pop().and_then(|text| scrub_rate(&text).ok()).unwrap_or(0);
        let filter = one(Setting::Log).pop().unwrap_or_default();
        let format = one(Setting::LogFormat).pop().and_then(|text| log_format(&text)).unwrap_or(Format::Text);
        let file = one(Setting::LogTo).pop().filter(|text| text != "stderr").map(PathBuf::from);
        let bytes = one(Setting::LogBytes).pop().and_then(|text| sizes::read(&text).ok()).unwrap_or(u64::MAX);
        let kept = one(Setting::LogKept).pop().and_then(|text| text.parse().ok()).unwrap_or(0);
        let logging = Logging { filter, format, file, bytes, kept };
        if chain.is_some() != key.is_some() {
            let (there, missing) = match chain.is_some() {
                true => (Setting::Certificate, Setting::CertificateKey),
                false => (Setting::CertificateKey, Setting::Certificate),
            };
            let why = format!("needs `{}` beside it", missing.about().name);
            mistakes.push(Mistake::of(&layers.effective(there), why));
        }
        if let Some(issuer) = issuers.iter().find(|issuer| issuer.audiences.is_empty() && !has_name(&hosts)) {
            let why = format!(
                "`{}` needs `audiences`, or `hosts` must say what others call this node",
                issuer.name
            );
            mistakes.push(Mistake::of(&layers.effective(Setting::Issuers), why));
        }
        let given = chain.zip(key).map(|(chain, key)| (chain.into(), key.into()));
        match (http, https, monitor) {
            (Some(http), Some(https), Some(monitor)) if mistakes.is_empty() => Ok(Self {
                http,
                https,
                monitor,
                given,
                http2,
                hosts,
                public,
                third_party,
                issuers,
                client_authorities,
                scrub,
                logging,
            }),
            _ => Err(mistakes),
        }
    }

    /// Returns how the node is to be run.
    pub fn settings(&self) -> NodeSettings {
        let address = match self.https {
            Listen::Off => None,
            Listen::At(address) => Some(address),
            Listen::Beside => Some(SocketAddr::new(self.http.ip(), port_beside(self.http.port(), 1))),
        };
        let monitor = match self.monitor {
            Listen::Off => None,
            Listen::At(address) => Some(address),
            // Whatever others may reach, this is for this machine unless somebody says otherwise.
            Listen::Beside => Some((Ipv4Addr::LOCALHOST, port_beside(self.http.port(), 2)).into()),
        };
        let given = self.given.clone().map(|(chain, key)| Files { chain, key });
        let https = address.map(|address| HttpsSettings { address, given, http2: self.http2 });
        NodeSettings {
            http: self.http,
            https,
            monitor,
            hosts: self.hosts.clone(),
            public: self.public.clone(),
            third_party: self.third_party.clone(),
            issuers: self.issuers.clone(),
            client_authorities: self.client_authorities.clone(),
            scrub: self.scrub,
        }
    }

    /// Returns what is logged, how and where.
    pub fn logging(&self) -> &Logging {
        &self.logging
    }

    /// Returns what of `new` needs a restart to take effect.
    pub fn needs_restart(&self, new: &Self) -> Vec<Setting> {
        let changed = [
            (Setting::Http, self.http != new.http),
            (Setting::Https, self.https != new.https),
            (Setting::Certificate, self.given != new.given),
            (Setting::Http2, self.http2 != new.http2),
            (Setting::Monitor, self.monitor != new.monitor),
            (Setting::Hosts, self.hosts != new.hosts),
            (Setting::Public, self.public != new.public),
            (Setting::ThirdPartyTo, self.third_party.to != new.third_party.to),
            (Setting::ThirdPartyAuthorities, self.third_party.authorities != new.third_party.authorities),
            (Setting::LogFormat, self.logging.format != new.logging.format),
            (Setting::LogTo, self.logging.file != new.logging.file),
            (Setting::LogBytes, self.logging.bytes != new.logging.bytes),
            (Setting::LogKept, self.logging.kept != new.logging.kept),
        ];
        changed.into_iter().filter(|(_, changed)| *changed).map(|(key, _)| key).collect()
    }
}

/// Returns whether one of these is what others call the machine.
fn has_name(hosts: &[String]) -> bool {
    hosts.iter().any(|host| is_name(host))
}

/// Reads the address that people reach a node at: of a host, with nothing behind it.
fn public(text: &str) -> Option<Url> {
    let is_web = text.starts_with("https://") || text.starts_with("http://");
    text.parse().ok().filter(|url: &Url| is_web && url.target() == "/")
}

/// Reads how many bytes are scrubbed in a second; 0 for none.
fn scrub_rate(text: &str) -> Result<u64, &'static str> {
    match text {
        "off" => Ok(0),
        size => match sizes::read(size)? {
            0 => Err("0 bytes is `off`"),
            bytes => Ok(bytes),
        },
    }
}

/// Reads how a line of the log is written.
fn log_format(text: &str) -> Option<Format> {
    match text {
        "text" => Some(Format::Text),
        "json" => Some(Format::Json),
        _ => None,
    }
}

/// Reads where something listens beside HTTP.
fn listen(text: &str) -> Option<Listen> {
    match text {
        "off" => Some(Listen::Off),
        "beside" => Some(Listen::Beside),
        address => address.parse().ok().map(Listen::At),
    }
}

/// Returns the port so many above that of HTTP, or below where there is none above; one that the machine
/// chooses beside one that it chooses.
fn port_beside(http: u16, by: u16) -> u16 {
    match http {
        0 => 0,
        port => port.checked_add(by).unwrap_or(port - by),
    }
}

#[cfg(test)]
mod tests;
