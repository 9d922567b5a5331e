//! The person's own browser.

use reqwest::Url;

use crate::worker;

/// Opens a page in the desktop's browser; the error is one line. Only `http` and `https` leave here.
pub async fn open_browser(address: &str) -> Result<(), String> {
    let url = Url::parse(address).map_err(|_| "the address is malformed".to_owned())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("only pages of `http` and `https` are opened".to_owned());
    }
    worker::open_address(url.as_str()).await
}
