//! What is left out of a copy, in the order of the command line.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint, value_parser};
use weft_client::rules::{Rules, Verdict};
use weft_core::{Error, Result};
use weft_sys::fault;

/// The longest file of rules that is read.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// `--include`, `--exclude`, and their files.
#[derive(Clone, Debug, Default)]
pub struct Chosen(Vec<(usize, Kind, OsString)>);

#[derive(Clone, Copy, Debug)]
struct Kind {
    option: &'static str,
    help: &'static str,
    verdict: Verdict,
    of_file: bool,
}

const KINDS: [Kind; 4] = [
    Kind { option: "exclude", help: "Leave out what matches", verdict: Verdict::Exclude, of_file: false },
    Kind {
        option: "include",
        help: "Do not leave out what matches",
        verdict: Verdict::Include,
        of_file: false,
    },
    Kind {
        option: "exclude-from",
        help: "Leave out what matches a line of a file; `+ ` before one includes, `#` says nothing",
        verdict: Verdict::Exclude,
        of_file: true,
    },
    Kind {
        option: "include-from",
        help: "Do not leave out what matches a line of a file; `- ` before one excludes",
        verdict: Verdict::Include,
        of_file: true,
    },
];

impl Chosen {
    /// Returns the rules, those of files among them.
    pub fn rules(&self) -> Result<Rules> {
        let mut rules = Rules::default();
        for (_, kind, value) in &self.0 {
            let shown = value.to_string_lossy();
            if !kind.of_file {
                rules.add(kind.verdict, value.as_bytes()).map_err(|e| e.op("use").about(shown))?;
                continue;
            }
            let failed = |e| fault::error(e, "read", &shown);
            if std::fs::metadata(value).map_err(failed)?.len() > FILE_BYTES_MAX {
                return Err(Error::invalid("a file of rules has at most 4 MiB").op("read").about(shown));
            }
            let text = std::fs::read(value).map_err(failed)?;
            rules.add_lines(kind.verdict, &text).map_err(|e| e.op("use").about(&shown))?;
        }
        Ok(rules)
    }
}

impl Args for Chosen {
    fn augment_args(command: Command) -> Command {
        KINDS.iter().fold(command, |command, kind| {
            let (name, hint) = match kind.of_file {
                true => ("FILE", ValueHint::FilePath),
                false => ("PATTERN", ValueHint::Other),
            };
            let arg = Arg::new(kind.option).long(kind.option).value_name(name).help(kind.help);
            let arg = arg.action(ArgAction::Append).allow_hyphen_values(true).value_hint(hint);
            command.arg(arg.value_parser(value_parser!(OsString)))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Chosen {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        let mut all = Vec::new();
        for kind in KINDS {
            let values = matches.get_many::<OsString>(kind.option).into_iter().flatten();
            let places = matches.indices_of(kind.option).into_iter().flatten();
            all.extend(places.zip(values).map(|(place, value)| (place, kind, value.clone())));
        }
        all.sort_by_key(|(place, ..)| *place);
        Ok(Self(all))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> std::result::Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
