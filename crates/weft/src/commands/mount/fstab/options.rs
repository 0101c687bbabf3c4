//! Options as fstab(5) has them: words with commas between them. Each that is known has a line in the table
//! below, which the manual page is written from; the others are refused, and so are those that would be untrue.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use weft_core::{Error, ErrorKind, Result, Shown};
use weft_doors_fuse::Without;

use super::super::MEMORY_MIB_MIN;

/// What a line of `/etc/fstab` asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The user that it is for, by name or number.
    pub user: Option<OsString>,
    /// The node's directory.
    pub node: Option<PathBuf>,
    /// The file whose token is shown.
    pub token_file: Option<PathBuf>,
    /// What cannot be done on the mount.
    pub without: Without,
    /// MiB of memory, as `weft mount --memory` has it.
    pub memory: Option<u64>,
    /// Whether other users of the machine see into it, each as who they say they are.
    pub shared: bool,
}

/// An option that is known.
struct Known {
    /// As it is written; several that do the same, with spaces between them. One that ends with `=` has a value.
    written: &'static str,
    does: Does,
    /// What it is, or why it is refused.
    says: &'static str,
}

/// What becomes of an option.
enum Does {
    Set(fn(&mut Options)),
    Take(fn(&mut Options, &OsStr) -> Result<()>),
    /// It is for others, or true anyway.
    Nothing,
    /// It would be untrue here; with what may have been meant.
    Refuse(&'static str),
}

const KNOWN: &[Known] = &[
    Known {
        written: "setuid=",
        does: Does::Take(|options, value| text(value).map(|user| options.user = Some(user))),
        says: "the user of this machine, by name or uid, that the mount is for: it runs as them, acts for them, and nobody \
               else sees into it if it is not `shared`. Root has to name one: `setuid=root` for itself",
    },
    Known {
        written: "shared",
        does: Does::Set(|options| options.shared = true),
        says: "all users of the machine see into it, each as who they said they are by `weft login --mount DIR`, the others \
               as anyone",
    },
    Known {
        written: "node=",
        does: Does::Take(|options, value| whole_path(value).map(|path| options.node = Some(path))),
        says: "the node's directory, such as /var/lib/weft; that user's own node if it is not given",
    },
    Known {
        written: "token_file=",
        does: Does::Take(|options, value| whole_path(value).map(|path| options.token_file = Some(path))),
        says: "the file that holds the token to show, which belongs to that user and nobody else can read; without it, what \
               `weft login` kept for them, else the node knows them by their uid",
    },
    Known {
        written: "memory=",
        does: Does::Take(|options, value| memory(value).map(|mib| options.memory = Some(mib))),
        says: "how many MiB it holds at most of what programs read and write, 64 or more; 512 if it is not given",
    },
    Known {
        written: "ro",
        does: Does::Set(|options| options.without.writing = true),
        says: "nothing can be changed there, whatever the tree would let them",
    },
    Known {
        written: "rw",
        does: Does::Set(|options| options.without.writing = false),
        says: "what the tree lets them change can be",
    },
    Known {
        written: "noexec",
        does: Does::Set(|options| options.without.programs = true),
        says: "programs that lie there cannot be run from there",
    },
    Known { written: "exec", does: Does::Set(|options| options.without.programs = false), says: "they can" },
    Known {
        written: "nosuid nodev async noatime nodiratime norelatime nostrictatime nolazytime silent loud",
        does: Does::Nothing,
        says: "it is always so",
    },
    Known {
        written: "defaults auto noauto nofail _netdev user nouser users nousers owner noowner group nogroup comment= x-… X-…",
        does: Does::Nothing,
        says: "for mount(8), systemd.mount(5) and automount(8). A mount by somebody else than root is for \
               themselves, and takes a directory of theirs",
    },
    Known {
        written: "user= username=",
        does: Does::Refuse("setuid=NAME says for whom"),
        says: "mount(8) takes user=NAME for leave to anybody to mount it, and drops the name",
    },
    Known {
        written: "uid= gid=",
        does: Does::Refuse("setuid=NAME says for whom"),
        says: "files are shown as those of the user that the mount is for",
    },
    Known {
        written: "password= pass= token= bearer_token=",
        does: Does::Refuse("token_file=FILE names a file with it"),
        says: "everybody can read it there",
    },
    Known {
        written: "allow_other allow_root",
        does: Does::Refuse("`shared` has each be who they are"),
        says: "everybody let in would act as the user that the mount is for",
    },
    Known {
        written: "default_permissions",
        does: Does::Refuse("leave it out"),
        says: "ACLs decide there, not modes",
    },
    Known {
        written: "suid dev",
        does: Does::Refuse("leave it out"),
        says: "what others put into the tree must not become root's program or this machine's device",
    },
    Known {
        written: "sync dirsync",
        does: Does::Refuse("leave it out"),
        says: "writes go to the node at once, and are on its disk after fsync(2)",
    },
    Known {
        written: "atime diratime relatime strictatime lazytime",
        does: Does::Refuse("leave it out"),
        says: "reading does not change when a file was read last",
    },
    Known {
        written: "remount bind rbind move",
        does: Does::Refuse("unmount it and mount it anew"),
        says: "a mount stays as it was made",
    },
];

impl Options {
    /// Reads options, several lists one after the other: of two that contradict, the later one holds. Returns those that
    /// are not known beside them if that is to be overlooked (`sloppy`). Fails with all mistakes at once, and
    /// names options without their values, which may be secrets.
    pub fn read(lists: &[OsString], sloppy: bool) -> std::result::Result<(Self, Vec<String>), Vec<Error>> {
        let (mut options, mut strange, mut mistakes) = (Self::default(), Vec::new(), Vec::new());
        for word in lists.iter().flat_map(|list| words(list.as_bytes())) {
            let taken = options.take(&word);
            match taken {
                Err(error) if sloppy && error.kind() == ErrorKind::Unsupported => {
                    strange.extend(error.subject().map(str::to_owned));
                }
                taken => mistakes.extend(taken.err()),
            }
        }
        if mistakes.is_empty() { Ok((options, strange)) } else { Err(mistakes) }
    }

    /// Takes one option. `Unsupported` if it is not known.
    fn take(&mut self, word: &[u8]) -> Result<()> {
        let (name, value) = match word.iter().position(|byte| *byte == b'=') {
            Some(at) => (&word[..at], Some(OsStr::from_bytes(&word[at + 1..]))),
            None => (word, None),
        };
        let done = match known(name, value.is_some()) {
            None => Err(Error::new(ErrorKind::Unsupported, "it is not known")
                .hint("`man mount.weft` says which there are")),
            Some(known) => match known.does {
                Does::Nothing => Ok(()),
                Does::Set(set) => {
                    set(self);
                    Ok(())
                }
                Does::Take(take) => take(self, value.unwrap_or_default()),
                Does::Refuse(hint) => Err(Error::invalid(known.says).hint(hint)),
            },
        };
        done.map_err(|error| error.op("take the option").about(Shown(name)))
    }
}

fn known(name: &[u8], has_value: bool) -> Option<&'static Known> {
    let is_meant = |written: &str| match written.strip_suffix('…') {
        Some(beginning) => name.starts_with(beginning.as_bytes()),
        None => written.strip_suffix('=').map_or(!has_value && written.as_bytes() == name, |written| {
            has_value && written.as_bytes() == name
        }),
    };
    KNOWN.iter().find(|known| known.written.split(' ').any(is_meant))
}

/// Returns the words of a list. Commas between double quotes are part of a word, the quotes are not, as with
/// mount(8); empty words are none.
fn words(list: &[u8]) -> Vec<Vec<u8>> {
    let (mut words, mut word, mut quoted) = (Vec::new(), Vec::new(), false);
    for byte in list {
        match byte {
            b'"' => quoted = !quoted,
            b',' if !quoted => words.push(std::mem::take(&mut word)),
            _ => word.push(*byte),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

fn text(value: &OsStr) -> Result<OsString> {
    if value.is_empty() {
        return Err(Error::invalid("it says nothing"));
    }
    Ok(value.to_owned())
}

fn memory(value: &OsStr) -> Result<u64> {
    let mib = value.to_str().and_then(|mib| mib.parse().ok());
    mib.filter(|mib| *mib >= MEMORY_MIB_MIN)
        .ok_or_else(|| Error::invalid(format!("it is not a number of MiB from {MEMORY_MIB_MIN} on")))
}

/// Returns a path: an absolute one, since nobody knows from where mount(8) is run.
fn whole_path(value: &OsStr) -> Result<PathBuf> {
    let path = Path::new(value);
    if !path.is_absolute() {
        return Err(Error::invalid("its path does not start with `/`"));
    }
    Ok(PathBuf::from(OsString::from_vec(value.as_bytes().to_vec())))
}

/// Returns what the manual says of all options.
pub fn manual() -> String {
    let mut text = String::from("Options of a line in /etc/fstab, with commas between them:\n");
    for Known { written, does, says } in KNOWN {
        let names = written.replace(' ', ", ");
        let _ = match does {
            Does::Refuse(hint) => write!(text, "\n{names}: refused, since {says}; {hint}.\n"),
            _ => write!(text, "\n{names}: {says}.\n"),
        };
    }
    text.push_str("\nWhat is not in this list is refused, or passed over with -s.");
    text
}

#[cfg(test)]
mod tests;
