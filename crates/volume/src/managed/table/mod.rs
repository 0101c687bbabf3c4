//! The volume's tables: one file for each, every row typed, every key ordered.
//!
//! Functions here take a snapshot or a transaction and know nothing of rights, calls
//! or objects. What must hold between tables is said in the file that writes both.

pub(crate) mod containers;
pub(crate) mod drops;
pub(crate) mod entries;
pub(crate) mod inodes;
pub(crate) mod key;
pub(crate) mod once;
pub(crate) mod row;
pub(crate) mod splits;
pub(crate) mod stages;
pub(crate) mod tags;
pub(crate) mod unnamed;
pub(crate) mod volume;

#[cfg(test)]
mod tests;
