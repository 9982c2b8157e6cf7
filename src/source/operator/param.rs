//! The named parameters that an operator's statement may use.

/// Names that are at most this unlike count as a slip of the pen (Jaro-Winkler).
const ALIKE: f64 = 0.7;

/// A closed set of names: those of a section's query, or those of the statement that writes opt-outs.
pub trait Named: Copy + Eq + 'static {
    /// All of them, in the order of their numbers.
    const ALL: &'static [Self];

    /// The name, without its colon.
    fn name(self) -> &'static str;
}

/// The parameter of that name; else what may have been meant.
pub(super) fn named<P: Named>(name: &str) -> Result<P, String> {
    P::ALL.iter().copied().find(|param| param.name() == name).ok_or_else(|| hint::<P>(name))
}

fn hint<P: Named>(name: &str) -> String {
    let likeness = |param: &&P| strsim::jaro_winkler(&name.to_lowercase(), param.name());
    let nearest = P::ALL.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    if let Some(param) = nearest.filter(|param| likeness(param) >= ALIKE) {
        return format!("; did you mean :{}?", param.name());
    }
    let all: Vec<String> = P::ALL.iter().map(|param| format!(":{}", param.name())).collect();
    format!("; there are {}", all.join(", "))
}

/// What a section's query may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Param {
    /// The orgs of the batch.
    OrgIds,
    /// The first instant of the period.
    From,
    /// The first instant after the period.
    To,
    /// The first instant of the period before.
    PreviousFrom,
    /// The first instant after the period before, which begins the period.
    PreviousTo,
    /// The digest's week, such as `2026-W28`.
    WeekKey,
}

impl Named for Param {
    const ALL: &'static [Self] =
        &[Self::OrgIds, Self::From, Self::To, Self::PreviousFrom, Self::PreviousTo, Self::WeekKey];

    fn name(self) -> &'static str {
        match self {
            Self::OrgIds => "org_ids",
            Self::From => "from",
            Self::To => "to",
            Self::PreviousFrom => "previous_from",
            Self::PreviousTo => "previous_to",
            Self::WeekKey => "week_key",
        }
    }
}

/// What the statement that writes an opt-out may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChoiceParam {
    /// Whose digest.
    OrgId,
    /// Who has chosen.
    UserId,
    /// Their address in its normal form.
    Email,
    /// Whether they want none any more; false after a re-subscription.
    OptedOut,
    /// When they said so.
    At,
}

impl Named for ChoiceParam {
    const ALL: &'static [Self] = &[Self::OrgId, Self::UserId, Self::Email, Self::OptedOut, Self::At];

    fn name(self) -> &'static str {
        match self {
            Self::OrgId => "org_id",
            Self::UserId => "user_id",
            Self::Email => "email",
            Self::OptedOut => "opted_out",
            Self::At => "at",
        }
    }
}
