//! Tokens of callers: known by their SHA-256, from a file that is read again when it changes.

use crate::role::Role;
use crate::token_file::{self, Entry, HASH_BYTES};
use crate::watched::{Look, Watched};
use arc_swap::ArcSwap;
use reverb_core::Result;
use ring::digest::{SHA256, digest};
use std::path::PathBuf;
use std::sync::Arc;
use subtle::ConstantTimeEq;
use tokio::sync::watch;

/// Minimum length of a token. Shorter ones can be guessed, so they are refused even if the file has their hash.
const MIN_TOKEN: usize = 16;

/// Who was let in, and what they may do.
#[derive(Debug)]
pub struct Guest {
    /// What it has shown.
    pub proof: Proof,
    /// What it may do.
    pub role: Role,
    /// Closed when it may no longer do that.
    stays: watch::Receiver<()>,
}

/// What proves who somebody is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// The token of this name.
    Token(String),
    /// A certificate that an authority of the server has signed.
    Certificate,
    /// It is a process of the server's user, or of root, on the same machine.
    OwnUser,
    /// Nothing is needed.
    Nothing,
}

impl Proof {
    /// Returns the name of the kind of proof.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Token(_) => "token",
            Self::Certificate => "certificate",
            Self::OwnUser => "own_user",
            Self::Nothing => "none",
        }
    }
}

impl Guest {
    /// Makes a guest that may stay for as long as the returned sender exists.
    pub(crate) fn new(proof: Proof, role: Role) -> (Arc<Self>, Arc<watch::Sender<()>>) {
        let (sender, stays) = watch::channel(());
        (Arc::new(Self { proof, role, stays }), Arc::new(sender))
    }

    /// Whether it may no longer do what it could: its token is gone, or has a lesser role.
    pub fn has_ended(&self) -> bool {
        self.stays.has_changed().is_err()
    }

    /// Waits until it may no longer do what it could.
    pub async fn ended(&self) {
        let mut stays = self.stays.clone();
        // Nothing is ever sent.
        while stays.changed().await.is_ok() {}
    }

    /// Returns the name of its token, if it has one.
    pub fn token(&self) -> Option<&str> {
        match &self.proof {
            Proof::Token(name) => Some(name),
            Proof::Certificate | Proof::OwnUser | Proof::Nothing => None,
        }
    }
}

/// The tokens that a server accepts.
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    known: ArcSwap<Vec<Known>>,
    watched: Watched,
}

/// A token that is accepted.
#[derive(Debug, Clone)]
struct Known {
    hash: [u8; HASH_BYTES],
    guest: Arc<Guest>,
    /// Keeps this guest, and those with the token's earlier and lesser roles.
    stays: Arc<watch::Sender<()>>,
}

impl Known {
    fn new(entry: Entry) -> Self {
        let (guest, stays) = Guest::new(Proof::Token(entry.name), entry.role);
        Self { hash: entry.hash, guest, stays }
    }

    /// Takes the place of what was known of the same token.
    fn after(self, before: &Self) -> Self {
        let is_lesser = self.guest.role < before.guest.role;
        if is_lesser || self.guest.proof != before.guest.proof {
            return self;
        }
        if self.guest.role == before.guest.role {
            return before.clone();
        }
        let Self { hash, guest, .. } = self;
        let guest = Guest { proof: guest.proof.clone(), role: guest.role, stays: before.stays.subscribe() };
        Self { hash, guest: Arc::new(guest), stays: before.stays.clone() }
    }
}

impl Tokens {
    /// Reads the file.
    ///
    /// # Errors
    /// [`reverb_core::Error::InvalidArgument`], with the file, if it cannot be read or is wrong.
    pub fn from_file(path: PathBuf) -> Result<Self> {
        let watched = Watched::new(vec![path.clone()]);
        let known = token_file::read(&path)?.into_iter().map(Known::new).collect();
        Ok(Self { path, known: ArcSwap::from_pointee(known), watched })
    }

    /// Returns who presents this token. Takes the same time whichever token of the file it is, or none.
    pub fn find(&self, presented: &[u8]) -> Option<Arc<Guest>> {
        let hash = digest(&SHA256, presented);
        let known = self.known.load();
        let mut found = None;
        for token in known.iter() {
            if bool::from(token.hash.ct_eq(hash.as_ref())) {
                found = Some(token);
            }
        }
        found.filter(|_| presented.len() >= MIN_TOKEN).map(|token| token.guest.clone())
    }

    /// Reads the file again if it has changed. One that is wrong is refused with a warning, and what was known before
    /// stays so. Returns what has come of it, for the audit.
    pub(crate) fn look(&self) -> Look<usize> {
        match self.watched.look(|| token_file::read(&self.path)) {
            Look::Same => Look::Same,
            Look::Read(entries) => {
                let count = entries.len();
                self.replace(entries);
                tracing::info!("{count} tokens were read again from {}", self.path.display());
                Look::Read(count)
            }
            Look::Refused(error) => {
                tracing::warn!("the file of tokens has changed, and the tokens before stay in use: {error}");
                Look::Refused(error)
            }
        }
    }

    fn replace(&self, entries: Vec<Entry>) {
        let before = self.known.load_full();
        let known = entries.into_iter().map(|entry| {
            let new = Known::new(entry);
            match before.iter().find(|known| known.hash == new.hash) {
                Some(known) => new.after(known),
                None => new,
            }
        });
        // The drop of those before ends the guests of tokens that are gone.
        self.known.store(Arc::new(known.collect()));
    }

    /// Returns how often a changed file was refused.
    pub fn failed_reloads(&self) -> u64 {
        self.watched.failures()
    }
}

/// Returns the SHA-256 of a token as the file has it.
pub fn sha256_hex(token: &[u8]) -> String {
    digest(&SHA256, token).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACTORS: &[u8] = b"rvb_actors-and-their-friends";
    const LEARNER: &[u8] = b"rvb_learner-who-learns";

    struct File(PathBuf);

    impl File {
        fn new(name: &str, tokens: &[(&str, &str, &[u8])]) -> Self {
            let file = Self(std::env::temp_dir().join(format!("reverb-tokens-{name}-{}", std::process::id())));
            file.write(tokens);
            file
        }

        /// Each file is a new one, so that its mark differs.
        fn write(&self, tokens: &[(&str, &str, &[u8])]) {
            let entry = |(name, role, token): &(&str, &str, &[u8])| {
                format!("[[token]]\nname = \"{name}\"\nrole = \"{role}\"\nsha256 = \"{}\"\n", sha256_hex(token))
            };
            self.put(&tokens.iter().map(entry).collect::<String>());
        }

        fn put(&self, text: &str) {
            let next = self.0.with_extension("next");
            std::fs::write(&next, text).expect("the folder can be written");
            std::fs::rename(next, &self.0).expect("both are in one folder");
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            let _gone = std::fs::remove_file(&self.0);
        }
    }

    fn role(tokens: &Tokens, token: &[u8]) -> Option<Role> {
        tokens.find(token).map(|guest| guest.role)
    }

    #[test]
    fn a_token_is_known_by_its_hash() {
        let short = b"fifteen-letters".as_slice();
        let file = File::new("hash", &[("actors", "use", ACTORS), ("short", "admin", short)]);
        let tokens = Tokens::from_file(file.0.clone()).expect("the file is right");
        let guest = tokens.find(ACTORS).expect("it is in the file");
        assert_eq!((guest.token(), guest.role), (Some("actors"), Role::Use));
        for wrong in [&ACTORS[1..], b"", LEARNER, sha256_hex(ACTORS).as_bytes(), short] {
            assert!(tokens.find(wrong).is_none());
        }
        assert!(!format!("{tokens:?}").contains("friends"));
    }

    #[test]
    fn an_empty_file_lets_nobody_in_and_a_missing_one_refuses_to_serve() {
        let file = File::new("empty", &[]);
        let tokens = Tokens::from_file(file.0.clone()).expect("an empty file is right");
        assert!(tokens.find(b"").is_none() && tokens.find(ACTORS).is_none());
        let missing = file.0.with_extension("missing");
        let error = Tokens::from_file(missing.clone()).expect_err("there is none").to_string();
        assert!(error.contains(&missing.display().to_string()), "{error}");
    }

    #[test]
    fn a_wrong_file_leaves_the_tokens_before_in_use() {
        let file = File::new("wrong", &[("actors", "use", ACTORS)]);
        let tokens = Tokens::from_file(file.0.clone()).expect("the file is right");
        let guest = tokens.find(ACTORS).expect("it is in the file");
        for (broken, failures) in [(Some("[[token]]\nname = \"actors\"\n"), 1), (None, 2), (Some("token = 1"), 3)] {
            match broken {
                Some(text) => file.put(text),
                None => std::fs::remove_file(&file.0).expect("it is there"),
            }
            assert!(matches!(tokens.look(), Look::Refused(_)));
            assert!(matches!(tokens.look(), Look::Same), "one warning is enough");
            assert_eq!((role(&tokens, ACTORS), tokens.failed_reloads()), (Some(Role::Use), failures));
        }
        file.write(&[("learner", "view", LEARNER)]);
        assert!(!guest.has_ended());
        assert!(matches!(tokens.look(), Look::Read(1)));
        assert_eq!((role(&tokens, ACTORS), role(&tokens, LEARNER)), (None, Some(Role::View)));
        assert!(guest.has_ended());
    }

    #[tokio::test]
    async fn only_guests_whose_token_is_gone_or_has_a_lesser_role_end() {
        let file = File::new("ends", &[("actors", "use", ACTORS), ("learner", "view", LEARNER)]);
        let tokens = Tokens::from_file(file.0.clone()).expect("the file is right");
        let find = |token| tokens.find(token).expect("it is in the file");
        let (actor, learner) = (find(ACTORS), find(LEARNER));
        file.write(&[("learner", "admin", LEARNER), ("actors", "use", ACTORS)]);
        tokens.look();
        assert!(!actor.has_ended() && !learner.has_ended());
        let admin = find(LEARNER);
        assert_eq!(admin.role, Role::Admin);
        file.write(&[("learner", "use", LEARNER)]);
        tokens.look();
        assert!(actor.has_ended() && admin.has_ended());
        actor.ended().await;
        let now = find(LEARNER);
        assert_eq!((now.role, now.has_ended()), (Role::Use, false));
        file.write(&[("other", "use", LEARNER)]);
        tokens.look();
        assert!(now.has_ended(), "another name means somebody else");
    }
}
