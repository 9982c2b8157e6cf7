//! The operator's brand: the few things about the mail that are not ours.

use super::links::SafeUrl;

/// Text needs this contrast to its background (WCAG 2.2, 1.4.3).
const MIN_CONTRAST: f64 = 4.5;
/// The card in light and in dark clients; `templates/digest.html` has the same.
const LIGHT_CARD: [u8; 3] = [0xff, 0xff, 0xff];
const DARK_CARD: [u8; 3] = [0x1c, 0x1f, 0x24];

/// The look and the sender's particulars.
#[derive(Debug, Clone)]
pub struct Brand {
    /// The product's name.
    pub product: String,
    /// The colour of links and bars.
    pub accent: Accent,
    /// A logo, shown at a height of 32 pixels.
    pub logo_url: Option<SafeUrl>,
    /// The postal address that some laws ask for in the footer; may have several lines.
    pub postal_address: Option<String>,
    /// Where the application or its digests live. Where it is `http`, so may other links be.
    pub public_url: Option<SafeUrl>,
}

/// A colour that can be read on white.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accent {
    light: String,
    dark: String,
}

/// Why a text is no accent colour.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AccentError {
    /// Not six hexadecimal digits.
    #[error("a colour has the form #rrggbb")]
    Form,
    /// Too light to be read.
    #[error("its contrast to white is {0:.1}:1; links need at least 4.5:1, so choose a darker one")]
    Contrast(f64),
}

impl Accent {
    /// Parses `#rrggbb` and checks the contrast to white.
    pub fn parse(text: &str) -> Result<Self, AccentError> {
        let digits = text.trim().strip_prefix('#').ok_or(AccentError::Form)?;
        if digits.len() != 6 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(AccentError::Form);
        }
        let number = u32::from_str_radix(digits, 16).map_err(|_| AccentError::Form)?;
        let [_, r, g, b] = number.to_be_bytes();
        let found = contrast([r, g, b], LIGHT_CARD);
        if found < MIN_CONTRAST {
            return Err(AccentError::Contrast(found));
        }
        Ok(Self { light: hex([r, g, b]), dark: hex(lightened([r, g, b])) })
    }

    /// `#rrggbb`.
    pub fn as_str(&self) -> &str {
        &self.light
    }

    /// The same hue, light enough for a dark background.
    pub fn for_dark(&self) -> &str {
        &self.dark
    }
}

impl Default for Accent {
    fn default() -> Self {
        Self { light: "#1f5fbf".to_owned(), dark: hex(lightened([0x1f, 0x5f, 0xbf])) }
    }
}

/// Mixed with white until it can be read on the dark card. White itself can, so this ends.
fn lightened(colour: [u8; 3]) -> [u8; 3] {
    (0..=20)
        .map(|step| colour.map(|c| c + u8::try_from(u32::from(255 - c) * step / 20).unwrap_or(0)))
        .find(|mixed| contrast(*mixed, DARK_CARD) >= MIN_CONTRAST)
        .unwrap_or(LIGHT_CARD)
}

fn hex([r, g, b]: [u8; 3]) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// The contrast ratio of two colours (WCAG 2.2), from 1 to 21.
fn contrast(a: [u8; 3], b: [u8; 3]) -> f64 {
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

fn luminance(colour: [u8; 3]) -> f64 {
    let [r, g, b] = colour.map(|c| {
        let c = f64::from(c) / 255.0;
        if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
    });
    0.2126 * r + 0.7152 * g + 0.0722 * b
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accents_must_be_readable_on_white_and_become_readable_on_dark() {
        assert_eq!(Accent::parse("1f5fbf"), Err(AccentError::Form));
        assert_eq!(Accent::parse("#12345"), Err(AccentError::Form));
        assert_eq!(Accent::parse("#12345g"), Err(AccentError::Form));
        assert!(matches!(Accent::parse("#ffd400"), Err(AccentError::Contrast(_))));
        for text in ["#1F5FBF", "#000000", "#7a0019"] {
            let accent = Accent::parse(text).unwrap();
            let dark = u32::from_str_radix(&accent.for_dark()[1..], 16).unwrap().to_be_bytes();
            assert!(contrast([dark[1], dark[2], dark[3]], DARK_CARD) >= MIN_CONTRAST, "{text}");
        }
        assert_eq!(Accent::parse("#1f5fbf").unwrap(), Accent::default());
    }

    #[test]
    fn contrast_of_black_and_white_is_21() {
        assert!((contrast([0; 3], [255; 3]) - 21.0).abs() < 0.01);
    }
}
