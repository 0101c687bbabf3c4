//! What can be configured: the one table.

use tracing_subscriber::EnvFilter;
use weft_core::limits;
use weft_remote::Network;

/// Something that can be configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Where HTTP listens.
    Http,
    /// Where HTTPS listens.
    Https,
    /// Where monitors ask.
    Monitor,
    /// The certificate that HTTPS shows.
    Certificate,
    /// Its key.
    CertificateKey,
    /// Whether HTTPS offers HTTP/2.
    Http2,
    /// Authorities whose certificates are taken of clients.
    ClientAuthorities,
    /// Host names that requests may use.
    Hosts,
    /// The address that people reach it at.
    Public,
    /// Networks that third-party copies may reach besides the Internet.
    ThirdPartyTo,
    /// Authorities that third-party copies believe besides the machine's.
    ThirdPartyAuthorities,
    /// Issuers whose tokens are taken.
    Issuers,
    /// How fast the scrubber reads.
    Scrub,
    /// What is logged.
    Log,
    /// How a line of the log is written.
    LogFormat,
    /// Where the log is written.
    LogTo,
    /// How long a file of the log gets.
    LogBytes,
    /// How many files before it are kept.
    LogKept,
}

/// What a value of a key is, in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One text.
    Text,
    /// A list of texts; in the environment they stand between commas.
    List,
    /// Tables by names, each with settings of its own; in the environment one object of JSON. Those of several places
    /// stand together.
    Tables,
}

/// What is to be known of a key.
pub struct About {
    /// As it is written in a file: table and name.
    pub name: &'static str,
    /// As it is written in the environment.
    pub variable: &'static str,
    /// As it is written on the command line, if it can be.
    pub flag: Option<&'static str>,
    /// What its value is.
    pub kind: Kind,
    /// What holds if nobody says anything; nothing if it is empty.
    pub default: &'static str,
    /// Whether a node that runs takes up a change of it.
    pub live: bool,
    /// What it is for.
    pub meaning: &'static str,
}

impl Setting {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 18] = [
        Self::Http,
        Self::Https,
        Self::Certificate,
        Self::CertificateKey,
        Self::Http2,
        Self::ClientAuthorities,
        Self::Monitor,
        Self::Hosts,
        Self::Public,
        Self::ThirdPartyTo,
        Self::ThirdPartyAuthorities,
        Self::Issuers,
        Self::Scrub,
        Self::Log,
        Self::LogFormat,
        Self::LogTo,
        Self::LogBytes,
        Self::LogKept,
    ];

    /// Returns what is to be known of it.
    pub const fn about(self) -> &'static About {
        match self {
            Self::Http => &About {
                name: "http.listen",
                variable: "WEFT_HTTP",
                flag: Some("--http"),
                kind: Kind::Text,
                default: "127.0.0.1:8420",
                live: false,
                meaning: "where HTTP listens: an address and a port; port 0 lets the machine choose",
            },
            Self::Https => &About {
                name: "https.listen",
                variable: "WEFT_HTTPS",
                flag: Some("--https"),
                kind: Kind::Text,
                default: "beside",
                live: false,
                meaning: "where HTTPS listens: an address and a port, `off`, or `beside`: as HTTP, on the next port",
            },
            Self::Monitor => &About {
                name: "monitor.listen",
                variable: "WEFT_MONITOR",
                flag: Some("--monitor"),
                kind: Kind::Text,
                default: "beside",
                live: false,
                meaning: "where /metrics, /healthz and /readyz are: an address and a port, `off`, or `beside`: on the loopback, \
                          two ports above HTTP; whoever reaches it may read it",
            },
            Self::Certificate => &About {
                name: "https.certificate",
                variable: "WEFT_TLS_CERT",
                flag: Some("--tls-cert"),
                kind: Kind::Text,
                default: "",
                live: false,
                meaning: "a PEM file with the certificate that HTTPS shows, and those between it and its authority; the \
                          node makes its own without one",
            },
            Self::CertificateKey => &About {
                name: "https.key",
                variable: "WEFT_TLS_KEY",
                flag: Some("--tls-key"),
                kind: Kind::Text,
                default: "",
                live: false,
                meaning: "a PEM file with the key of that certificate, which nobody but the node's user can read",
            },
            Self::Http2 => &About {
                name: "https.http2",
                variable: "WEFT_HTTP2",
                flag: None,
                kind: Kind::Text,
                default: "on",
                live: false,
                meaning: "whether HTTPS offers HTTP/2: `on`, or `off` for clients that ask for it and fail, as XRootD 5.5 \
                          where it pushes files",
            },
            Self::Hosts => &About {
                name: "hosts",
                variable: "WEFT_HOSTS",
                flag: Some("--host"),
                kind: Kind::List,
                default: "",
                live: false,
                meaning: "host names that requests may use, besides those of the machine itself; `*` is any",
            },
            Self::Public
            | Self::ClientAuthorities
            | Self::ThirdPartyTo
            | Self::ThirdPartyAuthorities
            | Self::Issuers => self.about_others(),
            Self::Scrub => &About {
                name: "scrub",
                variable: "WEFT_SCRUB",
                flag: None,
                kind: Kind::Text,
                default: "8M",
                live: true,
                meaning: "how many bytes of files the node reads in a second, at most, to find what is no longer as it was \
                          written: once a week, slower while it is in use; `off` for not at all",
            },
            Self::Log => &About {
                name: "log",
                variable: "WEFT_LOG",
                flag: None,
                kind: Kind::Text,
                default: "info",
                live: true,
                meaning: "what is logged: error, warn, info, debug or trace; `warn,weft_kv=debug` says it of a part",
            },
            Self::LogFormat | Self::LogTo | Self::LogBytes | Self::LogKept => self.about_log_files(),
        }
    }

    /// The same of other people: of those who vouch for callers, and of servers.
    const fn about_others(self) -> &'static About {
        match self {
            Self::ClientAuthorities => &About {
                name: "https.client-authorities",
                variable: "WEFT_CLIENT_AUTHORITIES",
                flag: None,
                kind: Kind::Tables,
                default: "",
                live: true,
                meaning: "authorities whose certificates clients may show over HTTPS, by a name for each: `certificates`, a PEM \
                          file of its own; `user`, for whom its certificates act, or a table `users` of subjects and \
                          users; and if need be `revoked`, a PEM file of what it has revoked",
            },
            Self::Public => &About {
                name: "http.public",
                variable: "WEFT_PUBLIC",
                flag: Some("--public"),
                kind: Kind::Text,
                default: "",
                live: false,
                meaning: "the address that people reach the node at, such as https://files.example.org, where a server in front \
                          of it ends TLS: links begin with it, its host is one that requests may use, and logins on the page \
                          are sent over TLS alone if it is https",
            },
            Self::Issuers => &About {
                name: "issuers",
                variable: "WEFT_ISSUERS",
                flag: None,
                kind: Kind::Tables,
                default: "",
                live: true,
                meaning: "issuers whose tokens are taken, by a name for each: `url`, its address; `user`, for whom its tokens \
                          act, or a table `users` of subjects and users; and if need be `base`, where its paths begin, \
                          `groups`, a table of groups and users, `audiences`, for whom tokens must be, and `keys`, a \
                          file of its keys",
            },
            Self::ThirdPartyTo => &About {
                name: "http.third-party-to",
                variable: "WEFT_THIRD_PARTY_TO",
                flag: None,
                kind: Kind::List,
                default: "",
                live: false,
                meaning: "networks, such as 10.1.0.0/16, where this node may read and write files of other servers for its \
                          callers; those of the Internet it may always, its own machine and private networks only if they \
                          stand here",
            },
            _ => &About {
                name: "http.third-party-authorities",
                variable: "WEFT_THIRD_PARTY_AUTHORITIES",
                flag: None,
                kind: Kind::Text,
                default: "",
                live: false,
                meaning: "a PEM file, or a directory of them named by their hashes, of authorities that may vouch for \
                          those servers besides the machine's own",
            },
        }
    }

    /// The same of how and where the log is written.
    const fn about_log_files(self) -> &'static About {
        match self {
            Self::LogFormat => &About {
                name: "log_format",
                variable: "WEFT_LOG_FORMAT",
                flag: None,
                kind: Kind::Text,
                default: "text",
                live: false,
                meaning: "how a line of the log is written: `text`, or `json`: one object a line",
            },
            Self::LogTo => &About {
                name: "log_to",
                variable: "WEFT_LOG_TO",
                flag: None,
                kind: Kind::Text,
                default: "stderr",
                live: false,
                meaning: "where the log is written: `stderr`, or the path of a file, which is opened again on SIGHUP",
            },
            Self::LogBytes => &About {
                name: "log_bytes",
                variable: "WEFT_LOG_BYTES",
                flag: None,
                kind: Kind::Text,
                default: "64M",
                live: false,
                meaning: "how long a file of the log gets before it is put aside, as FILE.1, and another is begun",
            },
            _ => &About {
                name: "log_kept",
                variable: "WEFT_LOG_KEPT",
                flag: None,
                kind: Kind::Text,
                default: "8",
                live: false,
                meaning: "how many files of the log that were put aside are kept",
            },
        }
    }

    /// Returns the key of that name in a file.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.about().name == name)
    }

    /// Returns the name that is most like one that is no setting's: what was meant, likely.
    pub fn like(name: &str) -> Option<&'static str> {
        let names = || Self::ALL.into_iter().map(|setting| setting.about().name);
        let begun = names().find(|own| name.len() > 2 && own.starts_with(name));
        begun.or_else(|| {
            let nearest = names().min_by_key(|own| distance(own, name))?;
            (distance(nearest, name) <= 2).then_some(nearest)
        })
    }

    /// Fails, with the reason, unless these can be its values.
    pub fn check(self, values: &[String]) -> Result<(), String> {
        let first = values.first().map(String::as_str);
        match (self, first) {
            (Self::Http, Some(text)) => match text.parse::<std::net::SocketAddr>() {
                Ok(_) => Ok(()),
                Err(_) => {
                    Err(format!("`{text}` is no address with a port, such as 127.0.0.1:8420 or [::]:8420"))
                }
            },
            (Self::Https | Self::Monitor, Some(text)) => match super::listen(text) {
                Some(_) => Ok(()),
                None => Err(format!("`{text}` is neither an address with a port, nor `off`, nor `beside`")),
            },
            (Self::Http | Self::Https | Self::Monitor, None) => Err("is set to nothing".to_owned()),
            (Self::Certificate | Self::CertificateKey, Some("")) => Err("names no file".to_owned()),
            (Self::Certificate | Self::CertificateKey, _) => Ok(()),
            (Self::Http2, Some("on" | "off")) => Ok(()),
            (Self::Http2, text) => Err(format!("`{}` is neither `on` nor `off`", text.unwrap_or_default())),
            (Self::Hosts, _) => match values.iter().find(|host| !is_host(host)) {
                Some(host) => Err(format!("`{host}` is no host name: it holds no port, no `/` and no space")),
                None => Ok(()),
            },
            (Self::Public, Some(text)) => match super::public(text) {
                Some(_) => Ok(()),
                None => {
                    Err(format!("`{text}` is no address of a whole host, such as https://files.example.org"))
                }
            },
            (Self::Public, None) => Ok(()),
            (Self::Scrub, text) => match super::scrub_rate(text.unwrap_or_default()) {
                Ok(0 | limits::SCRUB_BYTES_PER_SECOND_MIN..) => Ok(()),
                Ok(_) => Err("is too slow to come to an end: 64K at least, or `off`".to_owned()),
                Err(why) => Err(format!("is neither `off` nor a size: {why}")),
            },
            (Self::LogFormat, text) => match super::log_format(text.unwrap_or_default()) {
                Some(_) => Ok(()),
                None => Err(format!("`{}` is neither `text` nor `json`", text.unwrap_or_default())),
            },
            (Self::LogTo, text) => match text {
                Some("") | None => Err("names no file".to_owned()),
                Some(_) => Ok(()),
            },
            (Self::LogBytes, text) => match crate::sizes::read(text.unwrap_or_default()) {
                Ok(bytes) if bytes >= limits::LOG_BYTES_MIN => Ok(()),
                Ok(_) => Err("is too little for a file: 64K at least".to_owned()),
                Err(why) => Err(why.to_owned()),
            },
            (Self::LogKept, text) => match text.and_then(|text| text.parse::<u32>().ok()) {
                Some(0..=limits::LOG_FILES_MAX) => Ok(()),
                _ => Err(format!("is no number from 0 to {}", limits::LOG_FILES_MAX)),
            },
            (Self::ThirdPartyTo, _) => match values.iter().find_map(|text| text.parse::<Network>().err()) {
                Some(error) => Err(error.detail().to_owned()),
                None => Ok(()),
            },
            (Self::Issuers, _) => super::issuers::read(values).map(drop),
            (Self::ClientAuthorities, _) => super::clients::read(values).map(drop),
            (Self::ThirdPartyAuthorities, Some("")) => Err("names no file".to_owned()),
            (Self::ThirdPartyAuthorities, _) => Ok(()),
            (Self::Log, text) => match EnvFilter::builder().parse(text.unwrap_or_default()) {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("it cannot be read: {error}")),
            },
        }
    }
}

fn is_host(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._*:[]".contains(&byte))
        && (text.parse::<std::net::IpAddr>().is_ok() || text.starts_with('[') || !text.contains(':'))
}

/// How many letters are to be changed to make one text of the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_told_what_was_meant() {
        for (written, meant) in [
            ("http.listne", Some("http.listen")),
            ("https.cert", Some("https.certificate")),
            ("host", Some("hosts")),
            ("logg", Some("log")),
            ("", None),
            ("something.else", None),
        ] {
            assert_eq!(Setting::like(written), meant, "{written}");
        }
    }

    #[test]
    fn every_default_is_good_and_every_name_is_of_one_key() {
        for key in Setting::ALL {
            let about = key.about();
            let values: Vec<String> =
                Some(about.default).filter(|text| !text.is_empty()).map(str::to_owned).into_iter().collect();
            assert_eq!(key.check(&values), Ok(()), "{}", about.name);
            assert_eq!(Setting::named(about.name), Some(key));
        }
    }
}
