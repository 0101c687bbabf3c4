//! The forms that the page sends.

use weft_core::{ErrorKind, limits};

use super::{Page, links, login};
use crate::answer::Problem;
use crate::codec::form;
use crate::exchange::{ALLOW, Exchange, Served};
use crate::identity::Shown;
use crate::map::Act;
use crate::small_body;
use crate::status::Status;

/// Answers a form that was sent. All but a login must show that they were sent by a page of that login.
pub async fn post(mut x: Exchange<'_, '_>) -> Served {
    let page = Page::asked(x.head.query()).map_err(|error| Problem::of(&error, Act::Read))?;
    let Some(page) = page.filter(|page| !matches!(page, Page::About | Page::Links)) else {
        let why = "nothing is posted here: files are put";
        let problem = Problem::new(Status::METHOD_NOT_ALLOWED, ErrorKind::Unsupported, why);
        return Err(problem.with("Allow", ALLOW).into());
    };
    let body = small_body::received(&mut x, limits::HTTP_FORM_BYTES_MAX).await?;
    x.renew();
    if page == Page::Login {
        return login::login(x, &body).await;
    }
    // A login that is over guards nothing: its cookies go without more.
    if let Shown::Cookie(cookie) = x.shown
        && !x.call.caller.is_anyone()
        && !login::is_guard(&form::field(&body, "guard")?, cookie)
    {
        return Err(login::foreign().into());
    }
    match page {
        Page::Link => links::make(x, &body).await,
        Page::Unlink => links::end(x, &body).await,
        Page::Logout | Page::Login | Page::About | Page::Links => login::logout(x).await,
    }
}
