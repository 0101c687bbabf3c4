//! What a piece of work takes of the machine's memory. For tests: a parser must not take more than
//! it was given is worth, whatever stands in there.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static TAKEN: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, which counts for each thread what it takes and gives back.
pub struct Counted;

fn count(bytes: isize) {
    // A thread that is ending has no counters any more.
    let taken = TAKEN.try_with(|taken| {
        taken.set(taken.get().saturating_add(bytes));
        taken.get()
    });
    let _ = taken.and_then(|taken| MOST.try_with(|most| most.set(most.get().max(taken))));
}

#[expect(unsafe_code, reason = "an allocator is to be had in no other way")]
// SAFETY: every call goes to the system's allocator as it came, and counting takes no memory.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps to the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps to the contract, which is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps to the contract, which is the same.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: the caller keeps to the contract, which is the same.
        unsafe { System.realloc(place, layout, size) }
    }
}

/// Does `work`, and returns how many bytes more than before it this thread had at the most
/// meanwhile: 0 in a program whose allocator is not [`Counted`].
pub fn most_taken<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = TAKEN.get();
    MOST.set(before);
    let done = work();
    (done, usize::try_from(MOST.get() - before).unwrap_or(0))
}
