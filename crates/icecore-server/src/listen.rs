//! Where a host listens: an address, or a socket in the file system.

use std::io::{Error, ErrorKind};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::line::Peer;

/// Something that accepts connections.
#[derive(Debug)]
#[non_exhaustive]
pub enum Listener {
    /// At an address of the network.
    Tcp(TcpListener),
    /// At a path, for users of this machine.
    Unix(SocketFile),
}

/// A socket in the file system, which goes when this is dropped.
#[derive(Debug)]
pub struct SocketFile {
    listener: UnixListener,
    path: PathBuf,
    /// Device and number of the file: what others put there later is not ours.
    file: (u64, u64),
}

/// Why nobody can listen there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Not written as an address.
    #[error("`{0}` is no address to listen on")]
    NoAddress(String),
    /// Somebody else is there.
    #[error("another process listens on {0}")]
    InUse(String),
    /// Another kind of file is there.
    #[error("`{0}` is there and is no socket")]
    NoSocket(PathBuf),
    /// The machine says no.
    #[error("cannot listen on {wanted}: {source}")]
    Refused {
        /// Where.
        wanted: String,
        /// Why not.
        source: Error,
    },
}

/// One accepted connection.
pub(crate) enum Accepted {
    Tcp(TcpStream, Peer),
    Unix(UnixStream),
}

/// Who may open a socket in the file system: its owner.
const SOCKET_MODE: u32 = 0o600;

impl Listener {
    /// Listens on `ADDRESS:PORT` or on `unix:PATH`. A socket that a dead process
    /// left behind is replaced; that of a living one is not.
    pub async fn bind(wanted: &str) -> Result<Self, ListenError> {
        if let Some(path) = wanted.strip_prefix("unix:") {
            return SocketFile::bind(Path::new(path)).await.map(Self::Unix);
        }
        // A name such as `localhost` is looked up.
        let found = tokio::net::lookup_host(wanted).await;
        let addresses: Vec<SocketAddr> =
            found.map_err(|_| ListenError::NoAddress(wanted.to_owned()))?.collect();
        let refused = |source| ListenError::Refused { wanted: wanted.to_owned(), source };
        TcpListener::bind(&addresses[..]).await.map(Self::Tcp).map_err(refused)
    }

    /// The address of the network, if it is one.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().ok(),
            Listener::Unix(_) => None,
        }
    }

    /// As a person or a client is told: `http://ADDRESS:PORT` or `unix:PATH`.
    pub fn shown(&self) -> String {
        match self {
            Listener::Tcp(_) => match self.address() {
                Some(address) => format!("http://{address}"),
                None => "http://unknown".to_owned(),
            },
            Listener::Unix(socket) => format!("unix:{}", socket.path.display()),
        }
    }

    pub(crate) async fn accept(&self) -> std::io::Result<Accepted> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, from) = listener.accept().await?;
                Ok(Accepted::Tcp(stream, Peer::Address(from.ip())))
            }
            Listener::Unix(socket) => Ok(Accepted::Unix(socket.listener.accept().await?.0)),
        }
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Listener::Tcp(listener)
    }
}

impl SocketFile {
    async fn bind(path: &Path) -> Result<Self, ListenError> {
        let shown = format!("unix:{}", path.display());
        if path.as_os_str().is_empty() {
            return Err(ListenError::NoAddress(shown));
        }
        clear_stale(path, &shown).await?;
        let refused = |source: Error| match source.kind() {
            // Somebody was faster.
            ErrorKind::AddrInUse => ListenError::InUse(shown.clone()),
            _ => ListenError::Refused { wanted: shown.clone(), source },
        };
        // Private from its first moment. Files that other threads make meanwhile are
        // at worst as private.
        let usual = rustix::process::umask(rustix::fs::Mode::from_raw_mode(!SOCKET_MODE & 0o777));
        let bound = UnixListener::bind(path);
        rustix::process::umask(usual);
        let listener = bound.map_err(refused)?;
        let file = identity(path).map_err(refused)?;
        // The socket is used from other directories too.
        let path = std::path::absolute(path).map_err(refused)?;
        Ok(Self { listener, path, file })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|found| found == self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Removes a socket at which nobody listens any more.
async fn clear_stale(path: &Path, shown: &str) -> Result<(), ListenError> {
    use std::os::unix::fs::FileTypeExt;
    let refused = |source| ListenError::Refused { wanted: shown.to_owned(), source };
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(refused(error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(ListenError::NoSocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(refused)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(refused(error)),
        Ok(_) => Err(ListenError::InUse(shown.to_owned())),
    }
}

fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn a_socket_is_private_replaced_when_stale_and_removed_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ice.sock");
        let wanted = format!("unix:{}", path.display());
        // Left behind: the listener is gone, the file is not.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let first = Listener::bind(&wanted).await.unwrap();
        assert_eq!(first.shown(), wanted);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let second = Listener::bind(&wanted).await.unwrap_err();
        assert_eq!(second.to_string(), format!("another process listens on {wanted}"));
        drop(first);
        assert!(!path.exists());
        // What another process put there since is left alone.
        let first = Listener::bind(&wanted).await.unwrap();
        std::fs::remove_file(&path).unwrap();
        let second = Listener::bind(&wanted).await.unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
    }

    #[tokio::test]
    async fn what_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notes.txt");
        std::fs::write(&path, "dear diary").unwrap();
        let check = async |wanted: String, expected: &str| {
            let error = Listener::bind(&wanted).await.unwrap_err();
            assert!(error.to_string().contains(expected), "{wanted}: {error}");
        };
        check(format!("unix:{}", path.display()), "is there and is no socket").await;
        check("unix:".to_owned(), "no address to listen on").await;
        check("nonsense".to_owned(), "no address to listen on").await;
        check(format!("unix:{}/no/such", dir.path().display()), "cannot listen on").await;
        check(format!("unix:{}/{}", dir.path().display(), "x".repeat(200)), "cannot listen").await;
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "dear diary");
    }
}
