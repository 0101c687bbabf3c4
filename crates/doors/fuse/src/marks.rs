//! The marks by which a node makes a change once: those of a request are the same each time that it is answered.
//!
//! A request that a process died over is sent to the next one by its old number. Its changes are numbered within it, in the order
//! that they are asked for, which is the same as long as what was found is.

use std::cell::Cell;

use crate::abi::UNIQUE_RESEND;
use crate::abi::request::Header;

/// Changes that one request makes, at most: opening with more rights and with fewer, and clearing bits of a mode.
const CHANGES_MAX: u64 = 8;

/// The request that is being answered.
struct Answering {
    unique: u64,
    again: bool,
    changes: Cell<u64>,
}

tokio::task_local! {
    static ANSWERING: Answering;
}

/// Answers a request, whose changes have its marks.
pub(crate) async fn answering<T>(header: &Header, answer: impl Future<Output = T>) -> T {
    let again = header.unique & UNIQUE_RESEND != 0;
    let unique = header.unique & !UNIQUE_RESEND;
    ANSWERING.scope(Answering { unique, again, changes: Cell::new(0) }, answer).await
}

/// Returns the mark of the next change of the request that is being answered here; `None` if none is, or it makes more than
/// a request does.
pub(crate) fn next() -> Option<u64> {
    let next = ANSWERING.try_with(|request| {
        let change = request.changes.replace(request.changes.get() + 1);
        (change < CHANGES_MAX).then(|| request.unique * CHANGES_MAX + change)
    });
    next.ok().flatten()
}

/// Returns the number of the request that is being answered here; 0 if none is.
pub(crate) fn request() -> u64 {
    ANSWERING.try_with(|request| request.unique).unwrap_or(0)
}

/// Returns the number by which the kernel is answered: it says as well whether the request was sent again.
pub(crate) fn unique() -> u64 {
    let again = if is_again() { UNIQUE_RESEND } else { 0 };
    request() | again
}

/// Returns whether a process before this one may have answered it halfway.
pub(crate) fn is_again() -> bool {
    ANSWERING.try_with(|request| request.again).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(unique: u64) -> Header {
        Header { opcode: 1, unique, node: 1, uid: 0, pid: 0 }
    }

    #[tokio::test]
    async fn a_request_has_the_same_marks_each_time_and_no_two_changes_share_one() {
        let marks = |unique: u64| async move {
            answering(&header(unique), async { [next(), next(), next()].map(|mark| mark.expect("a mark")) })
                .await
        };
        let (first, second) = (marks(6).await, marks(8).await);
        assert_eq!(first, marks(6 | UNIQUE_RESEND).await);
        let all: std::collections::BTreeSet<u64> = first.into_iter().chain(second).collect();
        assert_eq!(all.len(), 6);
        assert_eq!(next(), None, "nobody sends it again");
        let told =
            |number: u64| async move { answering(&header(number), async { (request(), unique()) }).await };
        assert_eq!((told(6).await, told(6 | UNIQUE_RESEND).await), ((6, 6), (6, 6 | UNIQUE_RESEND)));
    }
}
