//! Debian's Chromium, driven as a person would drive it: W3C WebDriver over `chromedriver`.
//!
//! A client of our own because WebDriver is JSON over loopback HTTP and a test needs a handful of its commands.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader as AsyncBufReader};
use tokio::net::TcpStream;

use super::eventually;

/// How often a driver is started anew that could not have its port.
const TRIES: usize = 5;

/// The longest that one command may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// How Chromium is started: as root in a container, without a screen, and without calling home.
const ARGUMENTS: [&str; 8] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
];

/// The key under which WebDriver hands out an element (W3C WebDriver §12.2).
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// The marks that keep a name's direction to itself (UAX #9).
const ISOLATES: [char; 4] = ['\u{2066}', '\u{2067}', '\u{2068}', '\u{2069}'];

/// A browser with one window. It ends with this value.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    folder: TempDir,
}

/// A fault that axe found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// axe's name of the rule, such as `color-contrast`.
    pub rule: String,
    /// `minor`, `moderate`, `serious` or `critical`.
    pub impact: String,
    /// The elements at fault, and what is wrong with them.
    pub at: Vec<String>,
}

impl Browser {
    /// Starts Chromium with a profile of its own and an English window of 1000 × 800 px.
    pub async fn start() -> Self {
        Self::start_with("en").await
    }

    /// The same for a person whose browser prefers this language.
    pub async fn start_with(language: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("digestd-browser-").tempdir().expect("a folder");
        let (driver, port) = (0..TRIES).find_map(|_| start_driver()).expect("chromedriver says its port");
        let mut browser = Self { driver, port, session: String::new(), folder };
        let mut arguments = ARGUMENTS.map(str::to_owned).to_vec();
        arguments.push(format!("--user-data-dir={}", browser.folder.path().display()));
        let wanted = json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": {
            "args": arguments,
            "prefs": { "intl.accept_languages": language },
        } } } });
        let made = browser.send("POST", "/session", Some(&wanted)).await;
        browser.session = made["sessionId"].as_str().expect("a session").to_owned();
        browser.window(1000, 800).await;
        browser
    }

    /// Makes the page's viewport so large.
    pub async fn window(&self, width: u32, height: u32) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    /// Says that the reader prefers dark pages, or light ones.
    pub async fn dark(&self, dark: bool) {
        let scheme = if dark { "dark" } else { "light" };
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.devtools("Emulation.setEmulatedMedia", features).await;
    }

    /// Opens a URL and waits until the page is there.
    pub async fn open(&self, url: &str) {
        self.command("url", json!({ "url": url })).await;
    }

    /// The URL of the page.
    pub async fn url(&self) -> String {
        text_of(&self.run("return location.href").await)
    }

    /// The title of the page.
    pub async fn title(&self) -> String {
        text_of(&self.run("return document.title").await)
    }

    /// What the first element under a CSS selector shows; of `body`, what the page shows. Without the marks
    /// around names, which nobody sees.
    pub async fn text(&self, selector: &str) -> String {
        let element = self.find(selector).await;
        let text = self.send("GET", &self.path(&format!("element/{element}/text")), None).await;
        text_of(&text).replace(ISOLATES, "")
    }

    /// Clicks on the first element under a CSS selector. Waits for no page that it opens: that the driver does so
    /// holds only for what has begun to load when the click returns.
    pub async fn click(&self, selector: &str) {
        let element = self.find(selector).await;
        self.command(&format!("element/{element}/click"), json!({})).await;
    }

    /// Clicks on the button or link whose text this is. A page that it opens is there when this returns.
    pub async fn press(&self, label: &str) {
        let found = self
            .run(&format!(
                "const all = [...document.querySelectorAll('button, a, summary, input[type=submit]')]; \
                 const found = all.find(e => (e.innerText || e.value || '').replace(/[\\u2066-\\u2069]/g, '').trim() === {}); \
                 document.querySelectorAll('[data-test-press]').forEach(e => e.removeAttribute('data-test-press')); \
                 if (!found) return 'nothing'; \
                 found.setAttribute('data-test-press', ''); \
                 const opens = 'a[href]:not([href^=\"#\"]), button:not([type=button]), input[type=submit]'; \
                 return found.matches(opens) ? 'a page' : 'this page'",
                Value::from(label)
            ))
            .await;
        assert!(found != "nothing", "there is no button or link “{label}” on:\n{}", self.text("body").await);
        self.click("[data-test-press]").await;
        if found == "a page" {
            // The mark goes with the page that it stands on.
            let script =
                "return document.readyState === 'complete' && !document.querySelector('[data-test-press]')";
            self.until(&format!("the page behind “{label}”"), script, |new| *new == true).await;
        }
    }

    /// Types into the field under a CSS selector, in the place of what it holds.
    pub async fn fill(&self, selector: &str, text: &str) {
        let element = self.find(selector).await;
        self.command(&format!("element/{element}/clear"), json!({})).await;
        self.command(&format!("element/{element}/value"), json!({ "text": text })).await;
    }

    /// Runs the body of a JavaScript function in the page; gives what it returns.
    pub async fn run(&self, script: &str) -> Value {
        self.command("execute/sync", json!({ "script": script, "args": [] })).await
    }

    /// Waits until the page shows `text`, though it may be reloading itself meanwhile.
    pub async fn shows(&self, text: &str) {
        let script = "return document.body ? document.body.innerText : ''";
        let shown = |shown: &Value| text_of(shown).replace(ISOLATES, "").contains(text);
        self.until(&format!("“{text}” on the page"), script, shown).await;
    }

    /// Waits until a script returns what is wanted. Between two pages there may be none that it could run in.
    async fn until(&self, what: &str, script: &str, wanted: impl Fn(&Value) -> bool) {
        let body = json!({ "script": script, "args": [] });
        eventually(what, PATIENCE, async || {
            let found = self.try_send("POST", &self.path("execute/sync"), Some(&body)).await.ok()?;
            wanted(&found).then_some(())
        })
        .await;
    }

    /// A picture of the whole page, however long, as PNG.
    pub async fn picture(&self) -> Vec<u8> {
        let shot = json!({ "captureBeyondViewport": true, "fromSurface": true });
        let size = self.devtools("Page.getLayoutMetrics", json!({})).await["cssContentSize"].clone();
        let clip = json!({ "x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1 });
        let mut shot = shot;
        shot["clip"] = clip;
        let answer = self.devtools("Page.captureScreenshot", shot).await;
        STANDARD.decode(answer["data"].as_str().expect("a picture")).expect("base64")
    }

    /// How many pixels the page is wider than its window.
    pub async fn overflow(&self) -> i64 {
        let script = "return document.documentElement.scrollWidth - window.innerWidth";
        self.run(script).await.as_i64().expect("a number").max(0)
    }

    /// The serious and critical faults that axe finds in the page.
    pub async fn axe(&self) -> Vec<Violation> {
        self.run(&format!("{}\nreturn true", axe_source())).await;
        let script = "const done = arguments[arguments.length - 1]; \
             axe.run(document, { resultTypes: ['violations'] }) \
                .then(r => done(r.violations), e => done([{ id: 'axe failed: ' + e, impact: 'critical', nodes: [] }]))";
        let found = self.command("execute/async", json!({ "script": script, "args": [] })).await;
        let found = found.as_array().expect("a list of violations").iter().map(violation);
        found.filter(|violation| ["serious", "critical"].contains(&violation.impact.as_str())).collect()
    }

    /// Fails unless axe finds nothing serious in the page.
    pub async fn must_be_accessible(&self) {
        let found = self.axe().await;
        assert!(found.is_empty(), "{}: {found:#?}", self.url().await);
    }

    async fn find(&self, selector: &str) -> String {
        let found = self.command("element", json!({ "using": "css selector", "value": selector })).await;
        text_of(&found[ELEMENT])
    }

    async fn devtools(&self, method: &str, parameters: Value) -> Value {
        self.command("goog/cdp/execute", json!({ "cmd": method, "params": parameters })).await
    }

    async fn command(&self, name: &str, body: Value) -> Value {
        self.send("POST", &self.path(name), Some(&body)).await
    }

    fn path(&self, name: &str) -> String {
        format!("/session/{}/{name}", self.session)
    }

    async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        self.try_send(method, path, body).await.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    async fn try_send(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, String> {
        let answer = tokio::time::timeout(PATIENCE, exchange(self.port, method, path, body)).await;
        let answer = answer.unwrap_or_else(|_| panic!("no answer to {method} {path} within {PATIENCE:?}"));
        let value = answer["value"].clone();
        match value.get("error").and_then(Value::as_str) {
            Some(error) => Err(format!("{error}: {}", value["message"].as_str().unwrap_or_default())),
            None => Ok(value),
        }
    }
}

/// A driver and its port. It wants one port for IPv4 and IPv6 at once, and ends where somebody else has one of
/// the two.
fn start_driver() -> Option<(Child, u16)> {
    let mut driver = Command::new("chromedriver")
        .arg("--port=0")
        // A group of its own, so that the browser ends with its driver.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("chromedriver starts; scripts/setup installs the package chromium-driver");
    let mut lines = BufReader::new(driver.stdout.take().expect("a pipe")).lines();
    let port = lines.find_map(|line| {
        let line = line.expect("a line");
        line.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok()
    });
    if port.is_none() {
        drop(driver.wait());
    }
    Some((driver, port?))
}

impl Drop for Browser {
    fn drop(&mut self) {
        let group = format!("kill -s KILL -- -{}", self.driver.id());
        // Fails only for a group that is gone already.
        drop(Command::new("sh").args(["-c", &group]).stderr(Stdio::null()).status());
        drop(self.driver.wait());
    }
}

/// One request; `chromedriver` keeps the connection open, so the answer's length says where it ends.
async fn exchange(port: u16, method: &str, path: &str, body: Option<&Value>) -> Value {
    let body = body.map(Value::to_string).unwrap_or_default();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = AsyncBufReader::new(TcpStream::connect(("127.0.0.1", port)).await.expect("a driver"));
    stream.write_all(head.as_bytes()).await.expect("written");
    stream.write_all(body.as_bytes()).await.expect("written");
    let mut length = 0;
    loop {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).await.expect("a line") > 0, "{method} {path}: no answer");
        if line.trim_end().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().expect("a length");
        }
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).await.expect("a whole answer");
    serde_json::from_slice(&answer).expect("JSON")
}

/// axe, which `scripts/unpack-axe` fetches once and which the licence keeps out of this repository.
fn axe_source() -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/unpack-axe");
    let printed = Command::new(script).stderr(Stdio::inherit()).output().expect("scripts/unpack-axe");
    assert!(printed.status.success(), "scripts/unpack-axe failed");
    let path = String::from_utf8(printed.stdout).expect("a path");
    fs::read_to_string(path.trim_end()).expect("axe")
}

fn violation(found: &Value) -> Violation {
    let at = |node: &Value| {
        let told = text_of(&node["failureSummary"]).replace('\n', " ");
        format!("{}: {told}", text_of(&node["html"]))
    };
    Violation {
        rule: text_of(&found["id"]),
        impact: text_of(&found["impact"]),
        at: found["nodes"].as_array().into_iter().flatten().map(at).collect(),
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

mod tests {
    use super::Browser;

    /// A check that finds nothing in anything would be green for ever.
    #[tokio::test]
    async fn axe_sees_what_is_wrong_with_a_page() {
        let browser = Browser::start().await;
        let grey = "data:text/html,<html lang=en><title>x</title><main><h1>x</h1>\
                    <p style='color:%23aaa;background:white'>too pale</p><img src='x'></main>";
        browser.open(grey).await;
        let rules: Vec<_> = browser.axe().await.into_iter().map(|violation| violation.rule).collect();
        assert_eq!(rules, ["color-contrast", "image-alt"]);
        browser.open("data:text/html,<html lang=en><title>x</title><main><h1>well</h1></main>").await;
        browser.must_be_accessible().await;
        assert_eq!(browser.text("h1").await, "well");
        assert_eq!(browser.overflow().await, 0);
    }

    /// The driver returns from a click before a form's answer has begun to load, seen in one click of eight on a
    /// busy machine: what was read next was of the old page, or of none (“stale element reference”).
    #[tokio::test]
    async fn a_page_that_is_long_in_coming_is_there_after_the_press() {
        let folder = tempfile::tempdir().expect("a folder");
        let late =
            "<h1>old</h1><button onclick=\"setTimeout(() => location.href = 'new.html', 300)\">Go</button>";
        std::fs::write(folder.path().join("old.html"), late).expect("a page");
        std::fs::write(folder.path().join("new.html"), "<h1>new</h1>").expect("a page");
        let browser = Browser::start().await;
        browser.open(&format!("file://{}", folder.path().join("old.html").display())).await;
        browser.press("Go").await;
        assert_eq!(browser.text("h1").await, "new");
    }
}
