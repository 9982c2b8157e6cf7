#![no_main]
//! `digestd_fuzz::targets::scan_sql`

libfuzzer_sys::fuzz_target!(|data: &[u8]| digestd_fuzz::targets::scan_sql(data));
