//! Random requests, made of a subject and of the plain model alike, and every answer
//! compared.
//!
//! One list of operations drives two sides. What differs between them by right (ids,
//! cookies, versions, times, callers' hashes) never stands in an operation or an
//! answer: ids are counted in the order in which they are first seen, so that two
//! sides that behave alike show equal text. After some steps the whole trees are
//! compared too: listings, attributes, bytes, links, tags, policies.
//!
//! A failure panics with the seed, the operation and what both sides answered, after
//! the operations that led there.

mod op;
mod side;

use std::fmt::Write;
use std::sync::Arc;

use weft_core::VolumeId;
use weft_core::form::FileSystem;
use weft_core::model::Model;
use weft_core::service::SessionWatcher;

use self::op::Op;
use self::side::Side;
use super::site::Dice;
use super::{ADMINISTRATOR, Subject};
use crate::{HandClock, TestDomain};

/// Steps after which the whole trees are compared.
const LOOK_EVERY: usize = 20;

/// Steps after which sessions end and, where that is possible, the subject restarts.
const RESTART_EVERY: usize = 170;

/// Random requests get the answers that the plain model gives.
pub async fn random_requests_are_answered_as_the_model_answers(subject: &dyn Subject) {
    run(subject, 1, 600).await;
}

/// Makes `steps` random requests, which the seed decides, of a fresh subject and of a
/// fresh model, and compares the answers.
///
/// # Panics
/// If an answer or a tree differs.
pub async fn run(subject: &dyn Subject, seed: u64, steps: usize) {
    let clock = Arc::new(HandClock::default());
    let domain = TestDomain::new(77, clock.clone(), &[VolumeId(0)]);
    let model = Model::new(clock, domain.clone(), &domain.name(ADMINISTRATOR));
    let mut ours = Side::new(model.clone(), domain);
    let mut theirs = Side::new(subject.fs(), subject.domain().clone());
    let supports = theirs.fs.supports(VolumeId(0));
    let mut dice = Dice::new(seed);
    let mut log: Vec<Op> = Vec::new();
    for step in 1..=steps {
        let op = Op::roll(&mut dice, &supports, &ours.counts());
        log.push(op.clone());
        let expected = ours.perform(&op).await;
        let got = theirs.perform(&op).await;
        if expected != got && !op.may_differ(&expected, &got) {
            fail(seed, step, &log, &expected, &got);
        }
        if step % LOOK_EVERY == 0 || step == steps {
            let (expected, got) = (ours.look().await, theirs.look().await);
            if expected != got {
                fail(seed, step, &log, &expected, &got);
            }
        }
        if step % RESTART_EVERY == 0 {
            for session in ours.sessions() {
                model.ended(session);
                subject.end_session(session);
            }
            ours.begin_again(ours.fs.clone());
            theirs.begin_again(subject.fs());
            if subject.restart().await {
                theirs.begin_again(subject.fs());
                ours.begin_again(ours.fs.clone());
            }
        }
    }
}

fn fail(seed: u64, step: usize, log: &[Op], expected: &str, got: &str) -> ! {
    let mut text = String::new();
    for (place, op) in log.iter().enumerate() {
        let _ = writeln!(text, "{:4} {op:?}", place + 1);
    }
    panic!(
        "seed {seed}, step {step}: the subject differs from the model\n{text}\nmodel:\n{expected}\n\nsubject:\n{got}\n"
    );
}

/// Says which file system is looked at, for types that need a name.
pub(super) type AnyFs = Arc<dyn FileSystem>;
