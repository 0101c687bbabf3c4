//! Who is in which groups.

use crate::caller::CallerName;
use crate::error::Result;
use crate::id::CallerId;

/// Knows which groups a caller is in.
pub trait Memberships: Send + Sync {
    /// Returns the groups a credential made for the caller now would name, in rising order; none
    /// for a name nobody has. It proves nothing of the caller.
    fn groups_of(&self, name: &CallerName) -> Result<Vec<CallerId>>;
}
