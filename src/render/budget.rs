//! The size budget: a mail that clients do not clip.

use super::RenderError;

/// Gmail cuts a mail off at about 102 kB of HTML and with it the footer that holds the
/// unsubscribe link. Above the soft limit rows are left out.
pub(super) const SOFT_LIMIT_BYTES: usize = 70_000;
/// A mail above the hard limit is not sent at all.
pub(super) const HARD_LIMIT_BYTES: usize = 95_000;
/// More entries than this never fit, so rendering does not even start with more.
const MAX_ENTRIES: usize = 400;

/// Renders with ever fewer entries per section until the HTML fits.
///
/// `lengths` are those of the sections; `render` gets the number of entries that
/// a section may show.
pub(super) fn fit(
    lengths: &[usize],
    mut render: impl FnMut(usize) -> Result<String, RenderError>,
) -> Result<String, RenderError> {
    let entries = |cap: usize| lengths.iter().map(|len| len.min(&cap)).sum::<usize>();
    let mut cap = lengths.iter().copied().max().unwrap_or(0);
    while entries(cap) > MAX_ENTRIES {
        cap /= 2;
    }
    loop {
        let html = render(cap)?;
        if html.len() <= SOFT_LIMIT_BYTES || (cap == 0 && html.len() <= HARD_LIMIT_BYTES) {
            return Ok(html);
        }
        if cap == 0 {
            return Err(RenderError::TooLarge { bytes: html.len() });
        }
        cap /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(lengths: &[usize], fixed: usize, each: usize) -> Result<(usize, usize), RenderError> {
        let mut last = 0;
        let html = fit(lengths, |cap| {
            last = cap;
            Ok("x".repeat(fixed + cap * each))
        })?;
        Ok((html.len(), last))
    }

    #[test]
    fn entries_are_halved_until_the_mail_fits() {
        assert_eq!(fitted(&[10], 5_000, 400).unwrap(), (9_000, 10));
        assert_eq!(fitted(&[5_000], 5_000, 400).unwrap(), (67_400, 156));
        assert_eq!(fitted(&[100], 5_000, 10_000).unwrap(), (65_000, 6));
        assert_eq!(fitted(&[300; 10], 5_000, 400).unwrap(), (19_800, 37));
        assert_eq!(fitted(&[], 5_000, 400).unwrap(), (5_000, 0));
        assert_eq!(fitted(&[0], 5_000, 0).unwrap(), (5_000, 0));
        assert_eq!(fitted(&[3], 80_000, 100).unwrap(), (80_000, 0));
    }

    #[test]
    fn a_mail_that_cannot_fit_is_refused() {
        let refused = fitted(&[10], 95_001, 1);
        assert!(matches!(refused, Err(RenderError::TooLarge { bytes: 95_001 })), "{refused:?}");
    }
}
