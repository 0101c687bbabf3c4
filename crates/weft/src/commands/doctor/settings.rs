//! The configuration: mistakes in it, and files that it names.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use weft_core::{Clock, Error};
use weft_doors_listener::certificate;
use weft_sys::Sys;

use super::Trouble;
use crate::config::{Config, Mistake};
use crate::show;

/// How long before its end a certificate that somebody gave is worth a word.
const ENDS_SOON_DAYS: i64 = 14;

pub fn check(config: &Result<Result<Config, Vec<Mistake>>, Error>) -> Vec<Trouble> {
    const WHY: &str = "a node whose configuration has a mistake does not start";
    match config {
        Err(error) => vec![Trouble::wrong(error.to_string(), WHY, "weft config check")],
        Ok(Err(mistakes)) => mistakes
            .iter()
            .map(|mistake| {
                Trouble::wrong(
                    mistake.to_string(),
                    WHY,
                    format!("edit {}; weft config check", mistake.origin),
                )
            })
            .collect(),
        Ok(Ok(config)) => {
            let mut found = given_certificate(config);
            found.extend(log_file(config));
            found
        }
    }
}

fn given_certificate(config: &Config) -> Vec<Trouble> {
    const WHY: &str = "HTTPS cannot be spoken: programs refuse the certificate, or the node does not start";
    let settings = config.settings();
    let Some(given) = settings.https.and_then(|https| https.given) else { return Vec::new() };
    let chain = given.chain.display().to_string();
    let said = std::fs::read(&given.chain)
        .map_err(|error| error.to_string())
        .and_then(|pem| certificate::read(&pem).map_err(|error| error.to_string()));
    let said = match said {
        Ok(said) => said,
        Err(why) => {
            let mend = "set https.certificate to a PEM file that the node's user can read";
            return vec![Trouble::wrong(format!("{chain} cannot be used: {why}"), WHY, mend)];
        }
    };
    let mut found = Vec::new();
    let days = (said.until.seconds() - Sys::real().now().seconds()).div_euclid(24 * 3600);
    let renew = "renew it where it comes from; the node takes the new file up by itself";
    if days < 0 {
        found.push(Trouble::wrong(format!("{chain} ended {} days ago", -days), WHY, renew));
    } else if days < ENDS_SOON_DAYS {
        found.push(Trouble::doubtful(format!("{chain} ends in {days} days"), WHY, renew));
    }
    for host in settings.hosts.iter().filter(|host| *host != "*" && !is_for(&said.hosts, host)) {
        let what = format!("{chain} is for {}, not for {host}", said.hosts.join(", "));
        found.push(Trouble::doubtful(what, WHY, format!("have it made for {host} as well")));
    }
    found.extend(key(&given.key));
    found
}

fn key(path: &Path) -> Option<Trouble> {
    let mend = |command: &str| format!("{command} {}", show::argument(path.as_os_str()));
    match std::fs::metadata(path) {
        Err(error) => {
            let what = format!("the certificate's key {} cannot be looked at: {error}", path.display());
            Some(Trouble::wrong(what, "without it HTTPS cannot be spoken", mend("ls -l")))
        }
        Ok(metadata) if metadata.mode() & 0o077 != 0 => {
            let what = format!("the certificate's key {} is open to others", path.display());
            Some(Trouble::wrong(what, "whoever has it can pass for the node", mend("chmod 600")))
        }
        Ok(_) => None,
    }
}

/// Whether a certificate's hosts cover one; `*.` stands for one label.
fn is_for(hosts: &[String], host: &str) -> bool {
    hosts.iter().any(|known| {
        known.eq_ignore_ascii_case(host)
            || known.strip_prefix("*.").is_some_and(|above| {
                host.split_once('.').is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(above))
            })
    })
}

fn log_file(config: &Config) -> Option<Trouble> {
    let file = config.logging().file.as_ref()?;
    let dir = file.parent().filter(|dir| *dir != Path::new("")).unwrap_or(Path::new("."));
    (!dir.is_dir()).then(|| {
        let what = format!("the log is to go to {}, and there is no such directory", file.display());
        let mend = format!("mkdir -p {}", show::argument(dir.as_os_str()));
        Trouble::wrong(what, "the node does not start", mend)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_for_its_names_and_a_star_for_one_label() {
        let hosts = ["files.example".to_owned(), "*.grid.example".to_owned()];
        for (host, covered) in [
            ("files.example", true),
            ("FILES.example", true),
            ("a.grid.example", true),
            ("a.b.grid.example", false),
            ("grid.example", false),
            ("example", false),
        ] {
            assert_eq!(is_for(&hosts, host), covered, "{host}");
        }
    }
}
