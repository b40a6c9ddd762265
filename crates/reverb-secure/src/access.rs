//! Who may do what at a server. Both of its ports ask here before they read what a caller sends.

use crate::audit::Audit;
use crate::failures::Failures;
use crate::role::Role;
use crate::tokens::{Guest, Proof, Tokens};
use crate::watched::Look;
use parking_lot::Mutex;
use std::fmt::{self, Display, Formatter};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Time between two warnings of refused calls.
const TELL_PAUSE: Duration = Duration::from_secs(60);
const SCHEME: &[u8] = b"Bearer ";

/// Decides who may do what.
#[derive(Debug)]
pub struct Access {
    tokens: Option<Tokens>,
    /// Without tokens: those who come over the network, and the server's own user.
    others: Arc<Guest>,
    own_user: Arc<Guest>,
    _stay: [Arc<watch::Sender<()>>; 2],
    audit: Audit,
    failures: Failures,
    refused: [AtomicU64; Reason::ALL.len()],
    told: Mutex<Told>,
}

/// What was told of refused calls.
#[derive(Debug, Default)]
struct Told {
    at: Option<Instant>,
    refused: u64,
}

/// Where a caller is, which proves who it is where there are no tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// At this address. With an authority of clients, it has shown a certificate.
    Network(Option<IpAddr>),
    /// At the Unix socket, which lets in only the server's user and root where there are no tokens.
    UnixSocket,
}

/// Why a call was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It has no token.
    NoToken,
    /// The token is not in the file.
    UnknownToken,
    /// The token is gone from the file, or has a lesser role than when the call began.
    EndedToken,
    /// The role is too small.
    Role,
    /// Too many calls from its address were refused just before.
    TooMany,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 5] = [Self::NoToken, Self::UnknownToken, Self::EndedToken, Self::Role, Self::TooMany];

    /// Returns the name, as metrics have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoToken => "no_token",
            Self::UnknownToken => "unknown_token",
            Self::EndedToken => "ended_token",
            Self::Role => "role",
            Self::TooMany => "too_many",
        }
    }
}

/// The answer to a call that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// What the caller is told. It never contains what the caller has presented.
    pub text: String,
    /// The guest whose role is too small.
    pub guest: Option<String>,
}

impl Display for Refusal {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl Access {
    /// Lets in those with a token. Without tokens, `client_role` is what those with a certificate may do, which the
    /// handshake has asked for; `None` lets everyone do everything, which is only audited.
    pub fn new(tokens: Option<Tokens>, client_role: Option<Role>, audit: Audit) -> Self {
        let (others, first) = match client_role {
            Some(role) => Guest::new(Proof::Certificate, role),
            None => Guest::new(Proof::Nothing, Role::Admin),
        };
        let (own_user, second) = Guest::new(Proof::OwnUser, Role::Admin);
        let (failures, refused, told) = (Failures::default(), Default::default(), Mutex::default());
        Self { tokens, others, own_user, _stay: [first, second], audit, failures, refused, told }
    }

    /// Returns where is written who did what.
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Whether callers need tokens. If not, the HTTP port asks nobody who he is.
    pub fn has_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    /// Lets a call in, or refuses it. `headers` are all values of its header `authorization`; `what` is its name for
    /// people.
    ///
    /// # Errors
    /// Why the call is refused.
    pub fn admit<'a>(
        &self,
        headers: impl IntoIterator<Item = &'a [u8]>,
        origin: Origin,
        needs: Role,
        what: &str,
    ) -> Result<Arc<Guest>, Refusal> {
        let guest = match (&self.tokens, origin) {
            (Some(tokens), _) => self.identify(tokens, headers, origin)?,
            (None, Origin::Network(_)) => self.others.clone(),
            (None, Origin::UnixSocket) => self.own_user.clone(),
        };
        if guest.role >= needs {
            return Ok(guest);
        }
        let who = match &guest.proof {
            Proof::Token(name) => format!("token `{name}` has"),
            Proof::Certificate => "clients with a certificate have".to_owned(),
            Proof::OwnUser | Proof::Nothing => "callers have".to_owned(),
        };
        let text = format!("{who} role {}; {what} needs {needs}", guest.role);
        Err(self.refuse(Reason::Role, text, Some(&guest)))
    }

    /// Finds the guest of a token. A valid one is never refused because of others from its address.
    fn identify<'a>(
        &self,
        tokens: &Tokens,
        headers: impl IntoIterator<Item = &'a [u8]>,
        origin: Origin,
    ) -> Result<Arc<Guest>, Refusal> {
        let mut headers = headers.into_iter();
        let (first, more) = (headers.next(), headers.next());
        let token = first.filter(|_| more.is_none()).and_then(bearer);
        if let Some(guest) = token.and_then(|token| tokens.find(token)) {
            return Ok(guest);
        }
        let address = match origin {
            Origin::Network(address) => address,
            Origin::UnixSocket => None,
        };
        let (reason, text) = if self.failures.add(address) {
            (Reason::TooMany, "too many calls without a valid token; see whether REVERB_TOKEN of all clients is right")
        } else if first.is_none() {
            let text = "this server needs a token: give one by Client(token=), REVERB_TOKEN or REVERB_TOKEN_FILE";
            (Reason::NoToken, text)
        } else if token.is_none() {
            (Reason::UnknownToken, "expected one header `authorization: Bearer TOKEN`, got something else")
        } else {
            (Reason::UnknownToken, "this server does not know the token")
        };
        Err(self.refuse(reason, text.to_owned(), None))
    }

    /// Returns the refusal of a call of which nobody has said who may make it.
    pub fn refuse_unsaid(&self, guest: &Guest, what: &str) -> Refusal {
        self.refuse(Reason::Role, format!("no role may call {what}"), Some(guest))
    }

    /// Returns the end of a call whose guest may no longer do what it does.
    pub fn end(&self, guest: &Guest) -> Refusal {
        let name = guest.token().unwrap_or_default();
        self.refuse(Reason::EndedToken, format!("token `{name}` was removed, or has a lesser role now"), Some(guest))
    }

    fn refuse(&self, reason: Reason, text: String, guest: Option<&Guest>) -> Refusal {
        self.refused[reason as usize].fetch_add(1, Relaxed);
        Refusal { reason, text, guest: guest.and_then(Guest::token).map(str::to_owned) }
    }

    /// Returns how many calls were refused for a reason.
    pub fn refused(&self, reason: Reason) -> u64 {
        self.refused[reason as usize].load(Relaxed)
    }

    /// Reads the file of tokens again if it has changed, and warns of refused calls.
    pub(crate) fn look(&self) -> Look<usize> {
        self.tell(Instant::now());
        self.tokens.as_ref().map_or(Look::Same, Tokens::look)
    }

    /// Returns how often a changed file of tokens was refused.
    pub fn failed_reloads(&self) -> u64 {
        self.tokens.as_ref().map_or(0, Tokens::failed_reloads)
    }

    /// Warns of the calls that were refused since the last warning.
    fn tell(&self, now: Instant) {
        let refused = Reason::ALL.map(|reason| (reason, self.refused(reason)));
        let total = refused.iter().map(|(_, count)| count).sum();
        let mut told = self.told.lock();
        if total == told.refused || told.at.is_some_and(|at| now.saturating_duration_since(at) < TELL_PAUSE) {
            return;
        }
        let new = total - told.refused;
        *told = Told { at: Some(now), refused: total };
        let reasons: Vec<_> = refused.iter().map(|(reason, count)| format!("{} {count}", reason.name())).collect();
        tracing::warn!(new, "refused {new} calls; by reason, since the start: {}", reasons.join(", "));
    }
}

/// Returns the token in the value of a header.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::sha256_hex;

    const HERE: Origin = Origin::Network(None);
    const LEARNER: &str = "rvb_learner-who-learns";

    fn with_tokens(name: &str) -> Access {
        let path = std::env::temp_dir().join(format!("reverb-access-{name}-{}", std::process::id()));
        let text =
            format!("[[token]]\nname = \"learner\"\nrole = \"view\"\nsha256 = \"{}\"", sha256_hex(LEARNER.as_bytes()));
        std::fs::write(&path, text).expect("the folder can be written");
        let tokens = Tokens::from_file(path.clone()).expect("the file is right");
        std::fs::remove_file(path).expect("it was written");
        Access::new(Some(tokens), None, Audit::default())
    }

    fn refused(access: &Access, headers: &[&str], origin: Origin, needs: Role) -> Refusal {
        let headers = headers.iter().map(|header| header.as_bytes());
        access.admit(headers, origin, needs, "Sample").expect_err("it is refused")
    }

    #[test]
    fn a_token_decides_also_at_the_unix_socket() {
        let access = with_tokens("decides");
        let header = format!("bEARER {LEARNER}");
        for origin in [HERE, Origin::UnixSocket] {
            let guest = access.admit([header.as_bytes()], origin, Role::View, "Info").expect("it is known");
            assert_eq!(guest.token(), Some("learner"));
            let refusal = refused(&access, &[&header], origin, Role::Use);
            assert_eq!(refusal.text, "token `learner` has role view; Sample needs use");
            assert_eq!(refused(&access, &[], origin, Role::View).reason, Reason::NoToken);
        }
    }

    #[test]
    fn a_refusal_never_repeats_what_was_presented() {
        let access = with_tokens("repeats");
        let wrong = "rvb_secret-that-is-wrong";
        let good = format!("Bearer {LEARNER}");
        for headers in [
            &[format!("Bearer {wrong}").as_str()][..],
            &[wrong],
            &[&format!("Basic {wrong}")],
            &[&format!("Bearer  {LEARNER}")],
            &[&good, &good],
        ] {
            let refusal = refused(&access, headers, HERE, Role::View);
            assert_eq!(refusal.reason, Reason::UnknownToken);
            assert!(!format!("{refusal:?} {access:?}").contains("rvb_"));
        }
    }

    #[test]
    fn a_flood_of_wrong_tokens_locks_nobody_out() {
        let access = with_tokens("flood");
        let good = format!("Bearer {LEARNER}");
        let reasons: Vec<_> = (0..1000).map(|_| refused(&access, &["Bearer wrong"], HERE, Role::View).reason).collect();
        assert!(reasons.contains(&Reason::TooMany) && reasons[..10] == [Reason::UnknownToken; 10]);
        assert!(access.admit([good.as_bytes()], HERE, Role::View, "Info").is_ok());
        let counted: u64 = Reason::ALL.iter().map(|reason| access.refused(*reason)).sum();
        assert_eq!(counted, 1000);
    }

    #[test]
    fn without_tokens_the_road_decides() {
        let access = Access::new(None, Some(Role::View), Audit::default());
        assert!(access.admit([], Origin::UnixSocket, Role::Admin, "Reset").is_ok());
        assert!(access.admit([], HERE, Role::View, "Info").is_ok());
        let refusal = refused(&access, &[], HERE, Role::Use);
        assert_eq!(refusal.text, "clients with a certificate have role view; Sample needs use");
        let open = Access::new(None, None, Audit::default());
        assert!(open.admit([], HERE, Role::Admin, "Reset").is_ok());
    }
}
