//! Messages (RFC 5322) and submission (RFC 5321). The only module that names lettre.
