//! The metrics of who is let in, and of files that are read again. They are 0 where nobody is asked who he is.

use super::families::{Family, Writer};
use reverb_secure::{Reason, Reloads};
use std::fmt::Result;

const REFUSED: Family = Family::plain("reverb_auth_failures", "Calls that were refused, by reason.");
const FAILED_HANDSHAKES: Family =
    Family::plain("reverb_handshake_failures", "Handshakes of TLS that clients have begun and that have failed.");
const FAILED_RELOADS: Family =
    Family::plain("reverb_reload_failures", "Changed files that were refused, so that those before stay in use.");

/// Writes the metrics of the security of a server.
pub fn write(writer: &mut Writer<'_>, security: &Reloads) -> Result {
    let access = security.access.as_ref();
    let refused =
        Reason::ALL.map(|reason| ([("reason", reason.name())], access.map_or(0, |access| access.refused(reason))));
    writer.counters(&REFUSED, refused.iter().map(|(labels, count)| (&labels[..], (*count).into())))?;
    let failed = security.tls.as_ref().map_or(0, |tls| tls.failed_handshakes());
    writer.counters(&FAILED_HANDSHAKES, [(&[][..], failed.into())].into_iter())?;
    let failed = security.failed_reloads().map(|(files, count)| ([("files", files)], count));
    writer.counters(&FAILED_RELOADS, failed.iter().map(|(labels, count)| (&labels[..], (*count).into())))
}
