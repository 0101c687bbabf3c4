//! The forms that the page sends.

use weft_core::{ErrorKind, limits};

use super::guard::Sender;
use super::{Page, guard, links, login};
use crate::answer::Problem;
use crate::codec::form;
use crate::exchange::{ALLOW, Exchange, Served};
use crate::identity::Shown;
use crate::map::Act;
use crate::small_body;
use crate::status::Status;

/// Answers a form that was sent. All but a login must show that they were sent by a page of that login.
pub async fn post(mut x: Exchange<'_, '_>) -> Served {
    match Page::asked(x.head.query()).map_err(|error| Problem::of(&error, Act::Read))? {
        Some(Page::Login) => {
            let form = received(&mut x).await?;
            login::login(x, &form).await
        }
        Some(Page::Logout) => {
            guarded(&mut x).await?;
            login::logout(x).await
        }
        Some(Page::Link) => {
            let form = guarded(&mut x).await?;
            links::make(x, &form).await
        }
        Some(Page::Unlink) => {
            let form = guarded(&mut x).await?;
            links::end(x, &form).await
        }
        Some(Page::About | Page::Links) | None => {
            let why = "nothing is posted here: files are put";
            let problem = Problem::new(Status::METHOD_NOT_ALLOWED, ErrorKind::Unsupported, why);
            Err(problem.with("Allow", ALLOW).into())
        }
    }
}

async fn received(x: &mut Exchange<'_, '_>) -> Served<Vec<u8>> {
    let form = small_body::received(x, limits::HTTP_FORM_BYTES_MAX).await?;
    x.renew();
    Ok(form)
}

/// Receives a form that holds the guard of its sender's login. One that is over guards nothing: its cookies go
/// without more. A form may be sent from anywhere without asking first, so where a certificate alone says who
/// sends it, only a page of this origin may.
async fn guarded(x: &mut Exchange<'_, '_>) -> Served<Vec<u8>> {
    let form = received(x).await?;
    match x.shown {
        Shown::Cookie(cookie)
            if !x.call.caller.is_anyone() && !guard::holds(&form::field(&form, "guard")?, cookie) =>
        {
            Err(guard::foreign().into())
        }
        Shown::Certificate(_) if guard::sender(x.head)? != Sender::Own => Err(guard::foreign().into()),
        _ => Ok(form),
    }
}
