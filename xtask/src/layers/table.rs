//! The crates of Weft: what each holds, which others it may use, and which outside
//! libraries have one home. Adding an edge here is a decision about the design, not
//! a repair of the build.
//!
//! The crate map in `docs/ARCHITECTURE.md` is written from this table by
//! `cargo xtask generate`.

/// One crate of the table.
pub struct Crate {
    /// Its folder, from the root.
    pub folder: &'static str,
    /// Its package.
    pub package: &'static str,
    /// What it holds, for the crate map.
    pub holds: &'static str,
    /// What it must never know, for the crate map.
    pub never: &'static str,
    /// The packages of the workspace it may use in the product.
    pub may: &'static [&'static str],
}

/// May use every crate under `crates/` but the dev-only ones.
pub const ALL: &[&str] = &["*"];

/// Packages that only tests and benches may use.
pub const DEV_ONLY: &[&str] = &["weft-conformance"];

/// Programs: nobody may depend on them.
pub const PROGRAMS: &[&str] = &["weft", "weft-bench", "xtask"];

/// Packages that may use a dev-only package in their product: they are test tools.
pub const TEST_TOOLS: &[&str] = &["weft-bench", "weft-conformance"];

/// The table. An edge that is not here fails the build.
pub const CRATES: &[Crate] = &[
    Crate {
        folder: "crates/core",
        package: "weft-core",
        holds: "the shared model: names, ids, rights and their evaluation, errors, limits, proofs, the request form, the service traits, the in-memory models",
        never: "files, sockets, threads, a runtime, a clock of its own",
        may: &[],
    },
    Crate {
        folder: "crates/sys",
        package: "weft-sys",
        holds: "the door to the operating system, real and simulated: clock, randomness, tasks, disk, network and TLS, buffers",
        never: "what the bytes mean",
        may: &["weft-core"],
    },
    Crate {
        folder: "crates/kv",
        package: "weft-kv",
        holds: "ordered keys and values with serializable transactions, group commit, notes, backup",
        never: "what a key stands for",
        may: &["weft-core", "weft-sys"],
    },
    Crate {
        folder: "crates/auth",
        package: "weft-auth",
        holds: "keys, identities, groups, evidence to credential, signing of capabilities, revocation, sessions, audit files",
        never: "files, names, protocols",
        may: &["weft-core", "weft-sys", "weft-kv"],
    },
    Crate {
        folder: "crates/store",
        package: "weft-store",
        holds: "objects labelled with a container, on disk and in memory: records, seals, checks, backup",
        never: "names, files, how a capability is signed",
        may: &["weft-core", "weft-sys", "weft-kv"],
    },
    Crate {
        folder: "crates/mover",
        package: "weft-mover",
        holds: "how transfers go on: admission, turns, pumps, deadlines, senders that are slow",
        never: "protocols, files, rights",
        may: &["weft-core", "weft-sys"],
    },
    Crate {
        folder: "crates/volume",
        package: "weft-volume",
        holds: "the request form over things: managed names, stages, locks, directories served in place, volumes joined into one tree, and wrappers such as the audit",
        never: "protocols, keys, a concrete store or issuer",
        may: &["weft-core", "weft-sys", "weft-kv"],
    },
    Crate {
        folder: "crates/rpc",
        package: "weft-rpc",
        holds: "the native protocol: messages, versions, codec, remote stubs of the traits",
        never: "how a request is carried out",
        may: &["weft-core", "weft-sys"],
    },
    Crate {
        folder: "crates/client",
        package: "weft-client",
        holds: "what programs link: sessions, credential discovery, the file and object library",
        never: "server code of any kind",
        may: &["weft-core", "weft-sys", "weft-rpc"],
    },
    Crate {
        folder: "crates/remote",
        package: "weft-remote",
        holds: "other people's HTTP and WebDAV servers: which addresses may be spoken to, downloads, uploads, listings",
        never: "who asked, files, rights, server code of any kind",
        may: &["weft-core", "weft-sys"],
    },
    Crate {
        folder: "crates/grid",
        package: "weft-grid",
        holds: "domains, partners, naming and binding, relay, collection, placement (not built yet)",
        never: "stores, volumes, doors",
        may: &["weft-core", "weft-sys", "weft-kv", "weft-rpc"],
    },
    Crate {
        folder: "crates/lots",
        package: "weft-lots",
        holds: "promised space (not built yet)",
        never: "stores, volumes, doors",
        may: &["weft-core", "weft-sys", "weft-kv"],
    },
    Crate {
        folder: "crates/doors/listener",
        package: "weft-doors-listener",
        holds: "what doors share: listening, connection limits, deadlines, TLS set-up",
        never: "any one protocol",
        may: &["weft-core", "weft-sys", "weft-mover"],
    },
    Crate {
        folder: "crates/doors/http",
        package: "weft-doors-http",
        holds: "HTTP to requests and back",
        never: "how a caller is verified, where bytes lie, other doors",
        may: &["weft-core", "weft-sys", "weft-mover", "weft-doors-listener", "weft-remote"],
    },
    Crate {
        folder: "crates/doors/native",
        package: "weft-doors-native",
        holds: "the serving side of `rpc`",
        never: "how a caller is verified, where bytes lie, other doors",
        may: &["weft-core", "weft-sys", "weft-mover", "weft-doors-listener", "weft-rpc"],
    },
    Crate {
        folder: "crates/doors/fuse",
        package: "weft-doors-fuse",
        holds: "the mount, over any file system of the request form",
        never: "where the file system it shows comes from",
        may: &["weft-core", "weft-sys", "weft-client"],
    },
    Crate {
        folder: "crates/weft",
        package: "weft",
        holds: "the binary: commands, roles, configuration; wires everything",
        never: "nothing: it is the one place that knows all",
        may: ALL,
    },
    Crate {
        folder: "crates/conformance",
        package: "weft-conformance",
        holds: "the suites for file systems and object stores, the test domain that signs, load makers and checkers (tests only)",
        never: "how an implementation works inside",
        may: &["weft-core", "weft-sys", "weft-auth", "weft-client"],
    },
    Crate {
        folder: "bench",
        package: "weft-bench",
        holds: "figures beside the best peer, in the same run",
        never: "nothing, and nothing may use it",
        may: ALL,
    },
    Crate {
        folder: "xtask",
        package: "xtask",
        holds: "these checks",
        never: "Weft: it must build in seconds",
        may: &[],
    },
];

/// Libraries from outside that only the named packages may use in their product.
pub const HOMES: &[(&str, &[&str])] = &[
    ("argon2", &["weft-auth"]),
    ("clap", &["weft"]),
    ("clap_mangen", &["weft"]),
    ("getrandom", &["weft-sys"]),
    ("form_urlencoded", &["weft-doors-http"]),
    ("httparse", &["weft-doors-http"]),
    ("hyper", &["weft-remote"]),
    ("hyper-util", &["weft-remote"]),
    ("indicatif", &["weft"]),
    ("libc", &["weft-sys", "weft-doors-fuse"]),
    ("proptest", &["weft-conformance"]),
    ("rcgen", &["weft-doors-listener", "weft-conformance"]),
    ("percent-encoding", &["weft-doors-http", "weft-remote"]),
    ("redb", &["weft-kv"]),
    ("rustix", &["weft-sys", "weft-doors-fuse", "weft-bench"]),
    ("rustls", &["weft-sys", "weft-remote", "weft-conformance", "weft-bench"]),
    ("rustls-native-certs", &["weft-remote"]),
    ("rustls-pki-types", &["weft-auth"]),
    ("rustls-webpki", &["weft-auth"]),
    ("sd-notify", &["weft"]),
    ("tempfile", &["weft-conformance", "weft-bench"]),
    ("tokio-rustls", &["weft-remote", "weft-conformance"]),
    ("tracing-subscriber", &["weft"]),
    ("x509-cert", &["weft-auth", "weft-doors-listener"]),
];

/// Libraries that would bring I/O or a runtime into the pure crate.
pub const NOT_IN_CORE: &[&str] =
    &["tokio", "tracing-subscriber", "mio", "socket2", "rand", "rusqlite", "hyper", "reqwest"];

/// The packages that may hold `unsafe` code and system calls.
pub const UNSAFE: &[&str] = &["crates/sys/", "crates/doors/fuse/", "bindings/c/"];

/// What only serving code says; none of it may stand in what programs link.
pub const SERVER_WORDS: &[&str] = &["TcpListener", "UnixListener", "Listener", "Skeleton"];

/// The package programs link; it and all it uses hold no server code.
pub const LINKED: &str = "weft-client";
