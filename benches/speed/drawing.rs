//! Lines over a number of orgs, as drawings that need no tool.

use std::fmt::Write as _;

use crate::world::variable;

/// The drawing's measures, in pixels.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 30.0;

/// What is drawn.
pub struct Drawing<'a> {
    /// Above it: what the upright scale means.
    pub title: &'a str,
    /// Below it: what the level scale means.
    pub below: &'a str,
    /// The end of the upright scale.
    pub limit: f64,
    /// What a line leads through.
    pub line: &'a [(f64, f64)],
    /// What stands by itself.
    pub dots: &'a [(f64, f64)],
}

impl Drawing<'_> {
    /// Writes `<name>.svg` into the folder for drawings, if there is one.
    pub fn write(&self, name: &str) {
        if let Some(folder) = variable("DIGESTD_BENCH_DRAWINGS") {
            let file = format!("{folder}/{name}.svg");
            std::fs::write(&file, self.svg()).unwrap();
            println!("drawn into {file}");
        }
    }

    fn svg(&self) -> String {
        let all = || self.line.iter().chain(self.dots);
        let orgs = all().map(|point| point.0).fold(1.0, f64::max);
        let x = |n: f64| LEFT + n / orgs * WIDTH;
        let y = |value: f64| TOP + HEIGHT - value / self.limit * HEIGHT;
        let mut svg = String::from(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 730 320\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"730\" height=\"320\" fill=\"white\"/>\n",
        );
        for part in 0..=3 {
            let value = self.limit * f64::from(part) / 3.0;
            let at = y(value);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {at}H{}\" stroke=\"#ccc\"/><text x=\"50\" y=\"{}\" text-anchor=\"end\">{value:.0}</text>",
                LEFT + WIDTH,
                at + 4.0
            );
        }
        for part in 0..=5 {
            let n = orgs * f64::from(part) / 5.0;
            let _ = writeln!(svg, "<text x=\"{}\" y=\"290\" text-anchor=\"middle\">{n:.0}</text>", x(n));
        }
        let _ = writeln!(svg, "<text x=\"380\" y=\"312\" text-anchor=\"middle\">{}</text>", self.below);
        let _ = writeln!(svg, "<text x=\"60\" y=\"18\">{}</text>", self.title);
        let line: Vec<String> =
            self.line.iter().map(|(n, value)| format!("{:.1},{:.1}", x(*n), y(*value))).collect();
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"#0b6\" stroke-width=\"2\" points=\"{}\"/>",
            line.join(" ")
        );
        for (n, value) in self.dots {
            let _ =
                writeln!(svg, "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"#059\"/>", x(*n), y(*value));
        }
        svg.push_str("</svg>\n");
        svg
    }
}
