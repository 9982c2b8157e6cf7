#![no_main]
//! `digestd_fuzz::targets::token`

libfuzzer_sys::fuzz_target!(|data: &[u8]| digestd_fuzz::targets::token(data));
