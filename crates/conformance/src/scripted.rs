//! A server that says what a test makes it say, to whoever connects, in turn.

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What is done on one connection once its request's head was read.
#[derive(Clone)]
pub enum Step {
    /// These bytes are sent.
    Say(Vec<u8>),
    /// So many bytes of the request's body are read.
    Take(usize),
    /// Bytes are sent for as long as they are taken, these again and again.
    Forever(Vec<u8>),
    /// Nothing is done, and the connection stays.
    Stall,
}

/// Returns the step that says a text.
pub fn say(text: impl AsRef<[u8]>) -> Step {
    Step::Say(text.as_ref().to_vec())
}

/// The server: each connection gets the next script, and the last one again and again.
pub struct Scripted {
    /// Where it listens.
    pub address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    serving: tokio::task::JoinHandle<()>,
}

impl Scripted {
    /// Opens one.
    ///
    /// # Panics
    ///
    /// If the machine has no port for it.
    pub async fn open(scripts: Vec<Vec<Step>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let seen = heads.clone();
        let serving = tokio::spawn(async move {
            let mut scripts = scripts.into_iter().peekable();
            while let Ok((stream, _)) = listener.accept().await {
                let Some(script) = scripts.next() else { continue };
                if scripts.peek().is_none() {
                    scripts = vec![script.clone()].into_iter().peekable();
                }
                tokio::spawn(follow(stream, script, seen.clone()));
            }
        });
        Self { address, heads, serving }
    }

    /// Returns the address of a path there.
    ///
    /// # Panics
    ///
    /// If that is none to whoever asks.
    pub fn url<T: FromStr>(&self, path: &str) -> T {
        let url = format!("http://{}{path}", self.address).parse();
        url.unwrap_or_else(|_| panic!("{path} is no path"))
    }

    /// Returns the heads of the requests that came.
    ///
    /// # Panics
    ///
    /// If a test did.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("no test panics with it").clone()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn follow(mut stream: TcpStream, script: Vec<Step>, heads: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read_exact(&mut byte).await.is_err() {
            return;
        }
        head.extend_from_slice(&byte);
    }
    heads.lock().expect("no test panics with it").push(String::from_utf8_lossy(&head).into_owned());
    for step in script {
        match step {
            Step::Say(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Step::Take(bytes) => {
                let mut body = vec![0; bytes];
                if stream.read_exact(&mut body).await.is_err() {
                    return;
                }
            }
            Step::Forever(bytes) => while stream.write_all(&bytes).await.is_ok() {},
            Step::Stall => tokio::time::sleep(Duration::from_secs(600)).await,
        }
    }
    // Ends as a server does that has said all: what comes late is not answered with a reset.
    let _ = stream.shutdown().await;
    let _ = stream.read_to_end(&mut Vec::new()).await;
}
