//! The exchange: a certificate that was verified for a credential of this domain.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use weft_core::proof::{Attenuation, Caller, EvidenceKind};
use weft_core::{
    CallerKind, CallerName, Clock, CredentialId, Error, ErrorKind, Result, Rights, Tick, limits,
};

use crate::certificates::{self, Admitted, Chain, ClientAuthorities, Fingerprint};
use crate::home::{Home, Mint, sooner};
use crate::issued::Found;

/// What a certificate's caller may carry: what was granted with one would outlive it.
const CARRIED: Rights = Rights::from_bits(Rights::ALL.bits() & !Rights::ACL_WRITE.bits());

/// What turns certificates into callers.
pub(crate) struct Certified {
    home: Arc<Home>,
    authorities: ArcSwap<ClientAuthorities>,
    let_in: Mutex<HashMap<Fingerprint, LetIn>>,
}

/// A certificate by which somebody is in.
struct LetIn {
    chain: Chain,
    admitted: Admitted,
    caller: Caller,
    parent: CredentialId,
    since: Tick,
}

impl Certified {
    pub(crate) fn new(home: Arc<Home>, authorities: ClientAuthorities) -> Self {
        Self { home, authorities: ArcSwap::from_pointee(authorities), let_in: Mutex::default() }
    }

    /// Returns the names by which a handshake may ask for certificates.
    pub(crate) fn hints(&self) -> Vec<Vec<u8>> {
        self.authorities.load().hints()
    }

    /// Returns whom a certificate lets its holder act for. Fails as [`ClientAuthorities::admit`] does, and with `Revoked`
    /// where the user that it acts for may not log in, or the certificate was ended here.
    pub(crate) async fn caller_of(&self, chain: &Chain) -> Result<Found> {
        let home = &self.home;
        let fingerprint = certificates::fingerprint(chain);
        let known = self.let_in().get(&fingerprint).map(|one| one.caller.clone());
        if let Some(caller) = known.filter(|caller| home.live(caller).is_ok()) {
            return Ok(Found { said: said_of(&caller), caller, is_news: false });
        }
        // Held until somebody is in: what changes meanwhile finds them there.
        let _gate = home.gate.read().await;
        let admitted = self.authorities.load().admit(chain, home.steady.now())?;
        let (caller, parent) = self.mint(chain, &admitted)?;
        let said =
            format!("certificate {}, {}, as {parent}", admitted.authority, certificates::claimed(chain));
        let one = LetIn {
            chain: chain.clone(),
            admitted,
            caller: caller.clone(),
            parent,
            since: home.steady.tick(),
        };
        self.keep(fingerprint, one);
        Ok(Found { said, caller, is_news: true })
    }

    fn mint(&self, chain: &Chain, admitted: &Admitted) -> Result<(Caller, CredentialId)> {
        let home = &self.home;
        let user = CallerName::user(&admitted.user, home.domain.id)?;
        let rows = home.space.snapshot()?;
        if !home.user(&rows, &user)?.is_some_and(|row| row.enabled) {
            let error =
                Error::new(ErrorKind::Revoked, "the user that the certificate acts for may not log in");
            return Err(error.about(user.local()));
        }
        let parent = home.parent_of_evidence(b"certificate", &certificates::signed_part(chain)?, user.id());
        let delegate = certificates::delegate(&admitted.authority, &certificates::fingerprint(chain));
        let issued = home.steady.stamp();
        let mint = Mint {
            parents: vec![parent],
            delegates: vec![CallerName::new(CallerKind::Certificate, &delegate, home.domain.id)?],
            limits: Attenuation { rights: CARRIED, ..Attenuation::NONE },
            issued,
            // It ends with the certificate, by this node's clock, which judged that as well.
            expires: issued.plus(limits::CREDENTIAL_LIFE).min(sooner(admitted.until)),
            ..home.login(EvidenceKind::Certificate)
        };
        let caller = home.mint(&rows, &user, mint)?;
        home.live(&caller)?;
        Ok((caller, parent))
    }

    /// Keeps who is in. Where there are too many, those who are in no longer go, then the first.
    fn keep(&self, fingerprint: Fingerprint, one: LetIn) {
        let mut let_in = self.let_in();
        if let_in.len() >= limits::CERTIFICATES_LET_IN_MAX {
            let_in.retain(|_, one| self.home.live(&one.caller).is_ok());
        }
        if let_in.len() >= limits::CERTIFICATES_LET_IN_MAX
            && let Some(first) = let_in.iter().min_by_key(|(_, one)| one.since).map(|(first, _)| *first)
            && let Some(gone) = let_in.remove(&first)
        {
            // Nobody would find it where authorities change: it is shown again.
            self.home.revocations.end_leases_of(gone.parent);
        }
        let_in.insert(fingerprint, one);
    }

    /// Takes other authorities, or other lists of what those have revoked. Whoever would no longer be let in as they
    /// were is out.
    pub(crate) async fn change(self: &Arc<Self>, authorities: ClientAuthorities) -> Result<()> {
        let _gate = self.home.gate.write().await;
        let own = self.clone();
        let look = move || {
            own.keep_those_of(&authorities);
            own.authorities.store(Arc::new(authorities));
        };
        self.home.sys.blocking(look).await
    }

    /// Ends those whom authorities would not let in as they were let in. Whom others let in before the gate was closed
    /// is among them.
    fn keep_those_of(&self, authorities: &ClientAuthorities) {
        let now = self.home.steady.now();
        self.let_in().retain(|_, one| {
            let still = authorities.admit(&one.chain, now).is_ok_and(|admitted| admitted == one.admitted);
            if !still {
                self.home.revocations.end_leases_of(one.parent);
            }
            still
        });
    }

    fn let_in(&self) -> MutexGuard<'_, HashMap<Fingerprint, LetIn>> {
        // Every change leaves it whole, so a panic elsewhere cannot spoil it.
        self.let_in.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says which certificate somebody is in by: their delegate names it.
fn said_of(caller: &Caller) -> String {
    caller.claims().delegates.first().map_or_else(String::new, |name| format!("certificate {}", name.local()))
}
