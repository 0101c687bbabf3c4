//! Who uses a shared mount: the socket where users of the machine say who they are, and the lines to the node that they
//! get for it.
//!
//! Whose uid it is the kernel says, of the socket as of each call; whose credential, its signature. What a user hands
//! over is kept in memory alone: after the mount's end they hand it over again.

use std::collections::HashMap;
use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::io::AsyncWriteExt;
use tokio::sync::Mutex;
use weft_client::{Client, Place};
use weft_core::proof::{Caller, Signed};
use weft_core::service::Secret;
use weft_core::{CallerName, Clock, Error, ErrorKind, Result, limits};
use weft_doors_fuse::{CallSource, Login, Mount, OVERFLOW_ID, Others};
use weft_sys::net::{Listener, Peer, Socket};
use weft_sys::{Sys, fault, process, users};

use super::handing::{self, Said};
use super::{MountCalls, line_of};

/// What a service manager names a directory by that is the service's own while it runs.
const OWN_DIRECTORY: &str = "RUNTIME_DIRECTORY";

/// How long to wait where nobody can be listened to: without descriptors, say.
const PAUSE: Duration = Duration::from_secs(1);

/// The socket of one mount, and who came by it.
pub struct Logins {
    sys: Sys,
    place: Place,
    listener: Listener,
    socket: PathBuf,
    /// Goes with the socket in it.
    _directory: Directory,
    /// By uid, in whose name they call. Held while somebody logs in or out, so that two who do as one uid do not cross.
    users: Mutex<HashMap<u32, Arc<MountCalls>>>,
}

/// A directory that all may reach into and nobody else writes to, while this is.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        // What else lies there is not ours.
        let _ = std::fs::remove_dir(&self.0);
    }
}

impl Directory {
    fn make(sys: &Sys) -> Result<Self> {
        // It may name several.
        let own = std::env::var_os(OWN_DIRECTORY).and_then(|dirs| std::env::split_paths(&dirs).next());
        // The number of a process comes again.
        let name = format!("weft-mount-{}-{}-{}", process::uid(), sys.now().seconds(), std::process::id());
        let path = own.unwrap_or_else(std::env::temp_dir).join(name);
        let failed = |e| fault::error(e, "make", path.display());
        DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
        let directory = Self(path.clone());
        // Whatever the umask would leave of it.
        std::fs::set_permissions(&path, Permissions::from_mode(0o711)).map_err(failed)?;
        Ok(directory)
    }
}

impl Logins {
    /// Listens for users, who may come once there is a mount.
    pub fn open(sys: &Sys, place: &Place) -> Result<Self> {
        let directory = Directory::make(sys)?;
        let socket = directory.0.join("login");
        Ok(Self {
            sys: sys.clone(),
            place: place.clone(),
            listener: Listener::bind_local(&socket, 0o666)?,
            socket,
            _directory: directory,
            users: Mutex::default(),
        })
    }

    /// Returns who uses the mount without having said who they are, and where to say so.
    pub async fn others(&self) -> Result<Others> {
        let client = Client::connect_for(&self.sys, &self.place, None).await?;
        let domain = client.domain();
        let (anyone, _) = line_of(&client, &self.place, Caller::anyone(), (OVERFLOW_ID, OVERFLOW_ID)).await?;
        Ok(Others { anyone, login: Login { socket: self.socket.clone(), domain } })
    }

    /// Lets users in and out of a mount, until it is dropped.
    pub async fn admit_to(self: &Arc<Self>, mount: &Arc<Mount>) {
        let mut talks: HashMap<u32, usize> = HashMap::new();
        let mut ended = FuturesUnordered::new();
        // However often somebody comes.
        let mut sweep = Box::pin(self.sys.sleep(limits::MOUNT_LOGIN_SWEEP));
        loop {
            tokio::select! {
                socket = self.listener.accept(), if ended.len() < limits::MOUNT_LOGINS_AT_ONCE => match socket {
                    Ok(socket) => {
                        // Whose it is not said is nobody's; who holds too many talks gets no more.
                        let Peer::Uid(uid) = socket.peer() else { continue };
                        let of_one = talks.entry(uid).or_default();
                        if *of_one < limits::MOUNT_LOGINS_OF_ONE {
                            *of_one += 1;
                            let talk = tokio::spawn(self.clone().talk(mount.clone(), socket, uid));
                            ended.push(async move { (uid, talk.await) });
                        }
                    }
                    Err(error) => {
                        tracing::warn!(op = "accept", %error, "nobody can say who they are just now");
                        self.sys.sleep(PAUSE).await;
                    }
                },
                Some((uid, _)) = ended.next() => {
                    talks.entry(uid).and_modify(|talks| *talks -= 1);
                    talks.retain(|_, talks| *talks > 0);
                }
                () = &mut sweep => {
                    self.sweep(mount).await;
                    sweep = Box::pin(self.sys.sleep(limits::MOUNT_LOGIN_SWEEP));
                }
            }
        }
    }

    /// Hears one user out, and answers. What was begun is done, whether or not anybody waits for the answer.
    async fn talk(self: Arc<Self>, mount: Arc<Mount>, mut socket: Socket, uid: u32) {
        let line = tokio::time::timeout(limits::MOUNT_LOGIN_LINE_WITHIN, handing::read_line(&mut socket));
        let Ok(line) = line.await else { return };
        let outcome = match line.and_then(|line| handing::read(&line)) {
            Ok(Said::Login(token)) => self.log_in(&mount, uid, &token).await,
            Ok(Said::Logout) => self.log_out(&mount, uid).await,
            Err(error) => Err(error),
        };
        // Who has gone is not told, and a line is small enough to be taken at once.
        let answer = handing::answer(&outcome);
        let _ = tokio::time::timeout(PAUSE, socket.write_all(answer.as_bytes())).await;
    }

    /// Has a uid be who a credential says. Its files stay open if that is who it was.
    async fn log_in(&self, mount: &Mount, uid: u32, token: &Secret) -> Result<String> {
        let signed = Signed::from_token(token.expose())?;
        let client = Client::connect_for(&self.sys, &self.place, Some(&signed)).await?;
        let caller = client.caller().clone();
        let named = caller.name().clone();
        let name = named.to_string();
        let gid = group_of(uid).await;
        // The node says whether it takes the credential.
        let (user, calls) = line_of(&client, &self.place, caller.clone(), (uid, gid)).await?;
        let mut users = self.users.lock().await;
        if users.get(&uid).is_some_and(|calls| calls.replace(caller)) {
            mount.look_again(uid);
        } else {
            // Places are few, and whoever becomes several users of the machine is one to the node.
            let others =
                users.iter().filter(|(other, calls)| **other != uid && calls.who().0.name() == &named);
            if others.count() >= limits::MOUNT_UIDS_OF_ONE {
                let many =
                    "as many uids as may use the mount as this user: `weft logout --mount` lets one go";
                return Err(Error::new(ErrorKind::Busy, many).about(&name));
            }
            mount.admit(user)?;
            users.insert(uid, calls);
        }
        tracing::info!(op = "log in", uid, caller = %name, "a user of the machine uses the mount as who they are");
        Ok(name)
    }

    async fn log_out(&self, mount: &Mount, uid: u32) -> Result<String> {
        let mut users = self.users.lock().await;
        mount.dismiss(uid)?;
        users.remove(&uid);
        Ok(CallerName::ANYONE.to_string())
    }

    /// Dismisses whose credential has run out: they can do nothing, and others may need their place.
    async fn sweep(&self, mount: &Mount) {
        let now = self.sys.clock().now();
        let mut users = self.users.lock().await;
        let over: Vec<u32> = users
            .iter()
            .filter(|(_, calls)| calls.who().0.claims().expires < now)
            .map(|(uid, _)| *uid)
            .collect();
        for uid in over {
            // A mount that is shared stays so.
            let _ = mount.dismiss(uid);
            users.remove(&uid);
        }
    }
}

/// Returns the group that files of a user of the machine are shown as of; the overflow one if the machine does not say.
async fn group_of(uid: u32) -> u32 {
    let member = tokio::task::spawn_blocking(move || users::member(uid)).await;
    member.ok().and_then(Result::ok).flatten().map_or(OVERFLOW_ID, |member| member.gid)
}
