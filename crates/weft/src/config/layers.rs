//! Where values come from, and which of them wins.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use weft_core::{Error, Result, limits};
use weft_sys::fault;

use super::file;
use super::settings::{Kind, Setting};

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// A file, and the line in it.
    File(PathBuf, usize),
    /// The environment.
    Variable(&'static str),
    /// The command line.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => write!(f, "environment, {name}"),
            Self::Flag(name) => write!(f, "command line, {name}"),
        }
    }
}

/// A value that somebody set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Of what.
    pub key: Setting,
    /// As it was given: one, or those of a list.
    pub values: Vec<String>,
    /// By whom.
    pub origin: Origin,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Where.
    pub origin: Origin,
    /// What.
    pub why: String,
}

impl Mistake {
    /// Makes the mistake of a value.
    pub fn of(set: &Set, why: impl fmt::Display) -> Self {
        Self { origin: set.origin.clone(), why: format!("`{}`: {why}", set.key.about().name) }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.why)
    }
}

/// What the command line says.
pub type Flags = Vec<(Setting, Vec<String>)>;

/// Where the file is.
#[derive(Clone, Debug)]
pub struct Place {
    /// The file. Pieces lie beside it, in the directory of its name and `.d`.
    pub file: PathBuf,
    /// Whether somebody named it: then it must be there.
    pub named: bool,
}

impl Place {
    /// Returns where the file is: where it was said to be, else in the node's directory.
    pub fn of(given: Option<PathBuf>, node: &Path) -> Self {
        let variable = std::env::var_os("WEFT_CONFIG").filter(|value| !value.is_empty()).map(PathBuf::from);
        match given.or(variable) {
            Some(file) => Self { file, named: true },
            None => Self { file: node.join("weft.toml"), named: false },
        }
    }
}

/// Everything that was set, the weakest first, and what of it is wrong.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    sets: Vec<Set>,
    /// What cannot even be read.
    pub mistakes: Vec<Mistake>,
}

impl Layers {
    /// Gathers them. Fails if a file is there and cannot be read.
    pub fn gather(place: &Place, flags: &Flags) -> Result<Self> {
        let mut layers = Self::default();
        layers.add_file(&place.file, place.named)?;
        for piece in pieces(&place.file)? {
            layers.add_file(&piece, true)?;
        }
        for key in Setting::ALL {
            layers.add_variable(key);
        }
        for (key, values) in flags {
            let origin = Origin::Flag(key.about().flag.unwrap_or_default());
            layers.sets.push(Set { key: *key, values: values.clone(), origin });
        }
        Ok(layers)
    }

    fn add_file(&mut self, path: &Path, must_be: bool) -> Result<()> {
        let Some(text) = text_of(path, must_be)? else { return Ok(()) };
        let (values, faults) = file::read(&text);
        for file::Value { key, values, line } in values {
            self.sets.push(Set { key, values, origin: Origin::File(path.to_path_buf(), line) });
        }
        for (line, why) in faults {
            self.mistakes.push(Mistake { origin: Origin::File(path.to_path_buf(), line), why });
        }
        Ok(())
    }

    fn add_variable(&mut self, key: Setting) {
        let about = key.about();
        let Some(value) = std::env::var_os(about.variable).filter(|value| !value.is_empty()) else { return };
        let origin = Origin::Variable(about.variable);
        match (value.into_string(), about.kind) {
            (Ok(text), Kind::Text | Kind::Tables) => self.sets.push(Set { key, values: vec![text], origin }),
            (Ok(text), Kind::List) => {
                let values = text.split(',').map(|one| one.trim().to_owned()).collect();
                self.sets.push(Set { key, values, origin });
            }
            (Err(_), _) => self.mistakes.push(Mistake { origin, why: "is no UTF-8".to_owned() }),
        }
    }

    /// Returns the value that holds.
    pub fn effective(&self, key: Setting) -> Set {
        let mut sets = self.sets.iter().filter(|set| set.key == key);
        let set = match key.about().kind {
            // What several places say stands together.
            Kind::Tables => sets
                .cloned()
                .reduce(|before, set| Set { values: [before.values, set.values].concat(), ..set }),
            Kind::Text | Kind::List => sets.next_back().cloned(),
        };
        set.unwrap_or_else(|| {
            let default = Some(key.about().default).filter(|text| !text.is_empty());
            Set { key, values: default.map(str::to_owned).into_iter().collect(), origin: Origin::Default }
        })
    }

    /// Returns what was set and is not the value that holds, the strongest first.
    pub fn overruled(&self, key: Setting) -> impl Iterator<Item = &Set> {
        let joined = key.about().kind == Kind::Tables;
        self.sets.iter().rev().filter(move |set| set.key == key && !joined).skip(1)
    }
}

/// Returns the pieces beside a file, in the order of their names.
fn pieces(file: &Path) -> Result<Vec<PathBuf>> {
    let mut directory = file.as_os_str().to_owned();
    directory.push(".d");
    let directory = PathBuf::from(directory);
    let entries = match std::fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(fault::error(error, "read", directory.display())),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| fault::error(error, "read", directory.display()))?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.extension().is_some_and(|extension| extension == "toml") {
            found.push(path);
        }
        if found.len() > limits::CONFIG_PIECES_MAX {
            return Err(Error::invalid("there are more pieces of configuration than may be")
                .about(directory.display()));
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the text of a file; none if it is not there and need not be.
fn text_of(path: &Path, must_be: bool) -> Result<Option<String>> {
    let failed = |error| fault::error(error, "read", path.display());
    let mut file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !must_be => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut text = String::new();
    let read = file.by_ref().take(limits::CONFIG_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if read as u64 > limits::CONFIG_BYTES_MAX {
        return Err(Error::invalid("this is larger than any configuration may be").about(path.display()));
    }
    Ok(Some(text))
}
