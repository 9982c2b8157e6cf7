//! The orgs of one sweep, page by page.

use super::SourceError;
use super::builtin::BuiltIn;
use super::operator::Listing;
use crate::domain::candidate::Candidate;
use crate::domain::ids::OrgId;

/// A list of candidates that is being read, in the order of their ids. No statement stays open meanwhile.
#[derive(Debug)]
pub struct Candidates(Pages);

#[derive(Debug)]
enum Pages {
    /// Pages by key: the built-in directory has an index for them.
    Keyed { directory: BuiltIn, zones: Option<Vec<String>>, after: Option<OrgId>, ended: bool },
    /// One run of the recipients query, whose answer is kept in little space.
    Listing(Listing),
}

impl Candidates {
    pub(super) fn pages(directory: BuiltIn, zones: Option<&[String]>) -> Self {
        Self(Pages::Keyed { directory, zones: zones.map(<[String]>::to_vec), after: None, ended: false })
    }

    pub(super) fn listing(listing: Listing) -> Self {
        Self(Pages::Listing(listing))
    }

    /// The next candidates: at least one, at most `limit`. `None`: there are no more.
    pub async fn next_page(&mut self, limit: u32) -> Result<Option<Vec<Candidate>>, SourceError> {
        match &mut self.0 {
            Pages::Listing(listing) => Ok(listing.next_page(limit)),
            Pages::Keyed { ended: true, .. } => Ok(None),
            Pages::Keyed { directory, zones, after, ended } => {
                let page = directory.candidates(after.as_ref(), zones.as_deref(), limit).await?;
                *ended = page.len() < limit as usize;
                *after = page.last().map(|candidate| candidate.org.clone());
                Ok((!page.is_empty()).then_some(page))
            }
        }
    }
}
