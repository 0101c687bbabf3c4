//! Labels: enums, so that each has a closed set of values.

use crate::error::ErrorKind;

/// A label.
pub trait Label: Copy {
    /// What it is called.
    const NAME: &'static str;
    /// What it can be.
    const VALUES: &'static [&'static str];

    /// Returns the place of this value among [`Label::VALUES`].
    fn place(self) -> usize;
}

/// The labels of one metric.
pub trait Labels: Copy {
    /// Their names and values.
    const LABELS: &'static [(&'static str, &'static [&'static str])];
    /// How many combinations of values there are.
    const CELLS: usize;

    /// Returns the place of this combination.
    fn place(self) -> usize;
}

impl Labels for () {
    const LABELS: &'static [(&'static str, &'static [&'static str])] = &[];
    const CELLS: usize = 1;

    fn place(self) -> usize {
        0
    }
}

impl<A: Label> Labels for (A,) {
    const LABELS: &'static [(&'static str, &'static [&'static str])] = &[(A::NAME, A::VALUES)];
    const CELLS: usize = A::VALUES.len();

    fn place(self) -> usize {
        self.0.place()
    }
}

impl<A: Label, B: Label> Labels for (A, B) {
    const LABELS: &'static [(&'static str, &'static [&'static str])] =
        &[(A::NAME, A::VALUES), (B::NAME, B::VALUES)];
    const CELLS: usize = A::VALUES.len() * B::VALUES.len();

    fn place(self) -> usize {
        self.0.place() * B::VALUES.len() + self.1.place()
    }
}

impl<A: Label, B: Label, C: Label> Labels for (A, B, C) {
    const LABELS: &'static [(&'static str, &'static [&'static str])] =
        &[(A::NAME, A::VALUES), (B::NAME, B::VALUES), (C::NAME, C::VALUES)];
    const CELLS: usize = A::VALUES.len() * B::VALUES.len() * C::VALUES.len();

    fn place(self) -> usize {
        (self.0.place() * B::VALUES.len() + self.1.place()) * C::VALUES.len() + self.2.place()
    }
}

/// Returns the values of the labels at a place.
pub(super) fn values(
    labels: &[(&'static str, &'static [&'static str])],
    place: usize,
) -> Vec<(&'static str, &'static str)> {
    let mut rest = place;
    let mut found: Vec<_> = labels
        .iter()
        .rev()
        .map(|(name, values)| {
            let value = values[rest % values.len()];
            rest /= values.len();
            (*name, value)
        })
        .collect();
    found.reverse();
    found
}

macro_rules! labels {
    ($($(#[$about:meta])* $label:ident = $name:literal { $($(#[$of_value:meta])* $value:ident = $text:literal,)* })*) => { $(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $label { $($(#[$of_value])* $value),* }

        impl Label for $label {
            const NAME: &'static str = $name;
            const VALUES: &'static [&'static str] = &[$($text),*];

            fn place(self) -> usize {
                self as usize
            }
        }
    )* };
}

labels! {
    /// The way in that somebody came.
    Way = "door" {
        /// HTTP, as it is.
        Http = "http",
        /// HTTP over TLS.
        Https = "https",
        /// The socket of this machine.
        Native = "native",
    }

    /// What sort of work a request is.
    Work = "work" {
        /// Names, attributes, listings, free space.
        Look = "look",
        /// Bytes out.
        Read = "read",
        /// Bytes in.
        Write = "write",
        /// Names and attributes change.
        Change = "change",
        /// Locks.
        Lock = "lock",
        /// Who may do what: policies, links, logins, users and groups.
        Rights = "rights",
        /// The node itself: status, checks, backups, the audit log.
        Operate = "operate",
        /// What is none of these, or was no request.
        Other = "other",
    }

    /// How something ended.
    Outcome = "outcome" {
        /// As it was asked for.
        Done = "done",
        /// Not, for what was asked or by whom.
        Refused = "refused",
        /// Not, for what the node lacks: room, time, a disk that works.
        Failed = "failed",
        /// The other end went, or was cut off, in the middle.
        Broken = "broken",
    }

    /// What somebody logged in by.
    LoginBy = "evidence" {
        /// A password.
        Password = "password",
        /// The uid at the node's socket.
        Uid = "uid",
        /// A link.
        Link = "link",
        /// A token.
        Token = "token",
        /// A token of an issuer.
        Issuer = "issuer",
        /// A certificate.
        Certificate = "certificate",
    }

    /// What was withdrawn.
    Withdrawn = "what" {
        /// Rights of one capability.
        Capability = "capability",
        /// Every capability of a container.
        Container = "container",
    }

    /// Which way bytes go, seen from the node.
    Flow = "flow" {
        /// To the node.
        In = "in",
        /// From the node.
        Out = "out",
    }
}

impl Outcome {
    /// Returns what an error of this kind makes of a request.
    pub fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::NoSpace
            | ErrorKind::Busy
            | ErrorKind::Deadline
            | ErrorKind::Unavailable
            | ErrorKind::Corrupt
            | ErrorKind::Internal => Self::Failed,
            _ => Self::Refused,
        }
    }
}

/// Every kind's name, in the order of their numbers.
const KINDS: [&str; ErrorKind::ALL.len()] = {
    let mut names = [""; ErrorKind::ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = ErrorKind::ALL[at].name();
        at += 1;
    }
    names
};

impl Label for ErrorKind {
    const NAME: &'static str = "kind";
    const VALUES: &'static [&'static str] = &KINDS;

    fn place(self) -> usize {
        self as usize
    }
}

/// The version of this program: one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version;

impl Label for Version {
    const NAME: &'static str = "version";
    const VALUES: &'static [&'static str] = &[env!("CARGO_PKG_VERSION")];

    fn place(self) -> usize {
        0
    }
}
