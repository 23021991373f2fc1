//! The service manager that started this process and watches over it, such as systemd: it is told when we are ready, how it goes,
//! that we live, and that we stop.
//!
//! Each word is a datagram to the socket that `NOTIFY_SOCKET` names. Without that variable nobody listens, and nothing is sent.
//! What the process itself starts must not have these variables: it would speak in our name.
//!
//! Deliberately not here: when to say that we live. Whoever does the work says so (`sweeper`, the loop of `worker`); a thread of its
//! own would live on when they do not.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Where it listens, within what time it wants to hear of us, and who it means by "us".
pub const VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// A manager that does not listen is not waited for.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a manager hears how it goes that does not want to know whether we live.
const UNASKED_EVERY: Duration = Duration::from_secs(20);
/// Of the time in which it wants to hear of us: one word that comes late or is lost does not end us.
const PART_OF_WATCHDOG: u32 = 3;

/// Nobody, unless the environment names one.
#[derive(Debug, Clone, Default)]
pub struct ServiceManager(Option<Arc<Line>>);

#[derive(Debug)]
struct Line {
    socket: UnixDatagram,
    address: SocketAddr,
    watchdog: Option<Duration>,
    /// The last status: the same is not told again.
    status: Mutex<String>,
}

impl ServiceManager {
    /// That of this process. One that cannot be spoken to is nobody, and the log says so.
    pub fn of_process() -> ServiceManager {
        let [socket, micros, pid] = VARIABLES.map(std::env::var_os);
        let Some(socket) = socket else {
            return ServiceManager::default();
        };
        let watchdog = watchdog(micros.as_deref(), pid.as_deref(), std::process::id());
        match ServiceManager::at(&socket, watchdog) {
            Ok(manager) => manager,
            Err(error) => {
                let socket = socket.display();
                log::warn!("the service manager at {socket} cannot be told anything: {error}");
                ServiceManager::default()
            }
        }
    }

    /// `socket` is a path, or `@` and an abstract name. `watchdog` is the time in which it wants to hear that we live.
    pub fn at(socket: &OsStr, watchdog: Option<Duration>) -> io::Result<ServiceManager> {
        let address = address(socket)?;
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        let line = Line {
            socket,
            address,
            watchdog,
            status: Mutex::default(),
        };
        Ok(ServiceManager(Some(Arc::new(line))))
    }

    /// How often it is told how it goes; less than half of the time in which it wants to hear of us. `None`: never.
    pub fn told_every(&self) -> Option<Duration> {
        let line = self.0.as_ref()?;
        let watchdog = line.watchdog.map(|watchdog| watchdog / PART_OF_WATCHDOG);
        Some(watchdog.unwrap_or(UNASKED_EVERY))
    }

    /// Everything that we do, we do from now on.
    pub fn ready(&self) {
        self.tell("READY=1");
    }

    pub fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// We live. Only to be said by whoever would not come to it if we did not.
    pub fn alive(&self) {
        if self.0.as_ref().is_some_and(|line| line.watchdog.is_some()) {
            self.tell("WATCHDOG=1");
        }
    }

    /// How it goes, in a line.
    pub fn status(&self, words: &str) {
        let Some(line) = &self.0 else { return };
        let words = words.replace('\n', " ");
        let mut told = line.status.lock().expect("no panic while it is held");
        if *told != words {
            self.tell(&format!("STATUS={words}"));
            *told = words;
        }
    }

    /// Our start or our end takes so much longer from now on.
    pub fn needs(&self, more: Duration) {
        self.tell(&format!("EXTEND_TIMEOUT_USEC={}", more.as_micros()));
    }

    fn tell(&self, words: &str) {
        let Some(line) = &self.0 else { return };
        let sent = line.socket.send_to_addr(words.as_bytes(), &line.address);
        if let Err(error) = sent {
            log::warn!("the service manager could not be told {words}: {error}");
        }
    }
}

/// In what time it wants to hear of the process `me`: another is meant if it was named.
fn watchdog(micros: Option<&OsStr>, pid: Option<&OsStr>, me: u32) -> Option<Duration> {
    let number = |text: &OsStr| text.to_str()?.parse::<u64>().ok();
    let is_me = pid.is_none_or(|pid| number(pid) == Some(u64::from(me)));
    let micros = micros
        .and_then(number)
        .filter(|micros| *micros > 0 && is_me);
    micros.map(Duration::from_micros)
}

fn address(socket: &OsStr) -> io::Result<SocketAddr> {
    match socket.as_bytes() {
        [b'@', name @ ..] => abstract_name(name),
        [b'/', ..] => SocketAddr::from_pathname(socket),
        _ => Err(io::Error::other("neither a path nor an abstract name")),
    }
}

#[cfg(target_os = "linux")]
fn abstract_name(name: &[u8]) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn abstract_name(_: &[u8]) -> io::Result<SocketAddr> {
    Err(io::Error::other("this system has no abstract names"))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    #[test]
    fn a_watchdog_is_for_the_process_that_it_names_or_for_whoever_has_it() {
        let asked = |micros: &str, pid: Option<&str>| {
            let pid = pid.map(OsString::from);
            watchdog(Some(OsStr::new(micros)), pid.as_deref(), 7)
        };
        let minute = Some(Duration::from_secs(60));
        assert_eq!(asked("60000000", None), minute);
        assert_eq!(asked("60000000", Some("7")), minute);
        assert_eq!(asked("60000000", Some("8")), None);
        assert_eq!(asked("60000000", Some("seven")), None);
        assert_eq!(asked("0", None), None);
        assert_eq!(asked("soon", None), None);
        assert_eq!(watchdog(None, None, 7), None);
    }

    #[test]
    fn a_manager_is_at_a_path_or_at_an_abstract_name_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let by_path = UnixDatagram::bind(&path).unwrap();
        let name = format!("stepward-{}", std::process::id());
        let by_name = abstract_name(name.as_bytes()).unwrap();
        let by_name = UnixDatagram::bind_addr(&by_name).unwrap();
        let abstract_name = OsString::from(format!("@{name}"));
        for (socket, named) in [(by_path, path.as_os_str()), (by_name, &abstract_name)] {
            let manager = ServiceManager::at(named, None).unwrap();
            manager.status("all is well");
            manager.status("all is well");
            // Nobody asked for it.
            manager.alive();
            manager.stopping();
            let hear = || {
                let mut datagram = [0; 100];
                let length = socket.recv(&mut datagram).unwrap();
                String::from_utf8_lossy(&datagram[..length]).into_owned()
            };
            assert_eq!(hear(), "STATUS=all is well");
            assert_eq!(hear(), "STOPPING=1");
        }
        assert!(ServiceManager::at(OsStr::new("vsock:2:1234"), None).is_err());
        assert!(ServiceManager::at(OsStr::new(""), None).is_err());
    }
}
