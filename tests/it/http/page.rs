//! The unsubscribe page as a reader sees it.

use digestd::domain::token::Scope;

use super::unsubscribe::world;
use crate::support::backend::TestDatabase;
use crate::support::browser::Browser;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_can_be_read_in_every_language_on_a_phone_and_in_the_dark() {
    let database = TestDatabase::sqlite();
    let (_store, web) = world(&database).await;
    let at = |path: &str| format!("http://{}{path}", web.address);
    let link = at(&web.path("org-0000", "ann@example.org", Scope::Org));
    let languages = [
        ("en", "ltr", "Unsubscribe?"),
        ("de", "ltr", "Abbestellen?"),
        ("ar", "rtl", "هل تريد إلغاء الاشتراك؟"),
    ];
    for (language, direction, title) in languages {
        let browser = Browser::start_with(language).await;
        for (width, dark) in [(1000, false), (320, true)] {
            browser.window(width, 800).await;
            browser.dark(dark).await;
            browser.open(&link).await;
            assert_eq!(browser.text("h1").await, title);
            let found = browser.run("return getComputedStyle(document.documentElement).direction").await;
            assert_eq!(found, direction);
            assert_eq!(browser.overflow().await, 0, "{language} at {width}");
            browser.must_be_accessible().await;
        }
        browser.open(&at("/u/nonsense")).await;
        browser.must_be_accessible().await;
    }
}
