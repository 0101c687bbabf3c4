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

mod file;
mod layers;
mod settings;

use std::net::SocketAddr;
use std::path::PathBuf;

use weft_doors_listener::Files;
use weft_remote::Network;

pub use layers::{Flags, Layers, Mistake, Origin, Place};
pub use settings::{Kind, Setting};

use crate::node::{HttpsSettings, NodeSettings};

/// A configuration that can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    http: SocketAddr,
    https: Https,
    /// The certificate that was given, and its key.
    given: Option<(PathBuf, PathBuf)>,
    hosts: Vec<String>,
    third_party: ThirdParty,
    log: String,
}

/// How third-party copies are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThirdParty {
    /// Networks that they may reach besides the Internet.
    pub to: Vec<Network>,
    /// Authorities that are believed besides the machine's.
    pub authorities: Option<PathBuf>,
}

/// Whether and where HTTPS listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Https {
    /// Nowhere.
    Off,
    /// There.
    At(SocketAddr),
    /// Beside HTTP, on the next port.
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
        let https = one(Setting::Https).first().and_then(|text| https(text));
        let (chain, key) = (one(Setting::Certificate).pop(), one(Setting::CertificateKey).pop());
        let hosts = one(Setting::Hosts);
        let to = one(Setting::ThirdPartyTo).iter().filter_map(|text| text.parse().ok()).collect();
        let authorities = one(Setting::ThirdPartyAuthorities).pop().map(PathBuf::from);
        let third_party = ThirdParty { to, authorities };
        let log = one(Setting::Log).pop().unwrap_or_default();
        if chain.is_some() != key.is_some() {
            let (there, missing) = match chain.is_some() {
                true => (Setting::Certificate, Setting::CertificateKey),
                false => (Setting::CertificateKey, Setting::Certificate),
            };
            let why = format!("needs `{}` beside it", missing.about().name);
            mistakes.push(Mistake::of(&layers.effective(there), why));
        }
        let given = chain.zip(key).map(|(chain, key)| (chain.into(), key.into()));
        match (http, https) {
            (Some(http), Some(https)) if mistakes.is_empty() => {
                Ok(Self { http, https, given, hosts, third_party, log })
            }
            _ => Err(mistakes),
        }
    }

    /// Returns how the node is to be run.
    pub fn settings(&self) -> NodeSettings {
        let address = match self.https {
            Https::Off => None,
            Https::At(address) => Some(address),
            Https::Beside => Some(next_port(self.http)),
        };
        let given = self.given.clone().map(|(chain, key)| Files { chain, key });
        let https = address.map(|address| HttpsSettings { address, given });
        NodeSettings {
            http: self.http,
            https,
            hosts: self.hosts.clone(),
            third_party: self.third_party.clone(),
        }
    }

    /// Returns what is logged.
    pub fn log(&self) -> &str {
        &self.log
    }

    /// Returns what of `new` needs a restart to take effect.
    pub fn needs_restart(&self, new: &Self) -> Vec<Setting> {
        let changed = [
            (Setting::Http, self.http != new.http),
            (Setting::Https, self.https != new.https),
            (Setting::Certificate, self.given != new.given),
            (Setting::Hosts, self.hosts != new.hosts),
            (Setting::ThirdPartyTo, self.third_party.to != new.third_party.to),
            (Setting::ThirdPartyAuthorities, self.third_party.authorities != new.third_party.authorities),
        ];
        changed.into_iter().filter(|(_, changed)| *changed).map(|(key, _)| key).collect()
    }
}

/// Reads where HTTPS listens.
fn https(text: &str) -> Option<Https> {
    match text {
        "off" => Some(Https::Off),
        "beside" => Some(Https::Beside),
        address => address.parse().ok().map(Https::At),
    }
}

/// Returns the address with the next port; that which the machine chooses beside one it chooses.
fn next_port(http: SocketAddr) -> SocketAddr {
    let port = match http.port() {
        0 => 0,
        u16::MAX => u16::MAX - 1,
        port => port + 1,
    };
    SocketAddr::new(http.ip(), port)
}

#[cfg(test)]
mod tests;
