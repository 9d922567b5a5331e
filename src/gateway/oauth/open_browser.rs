//! Opens the browser.

use reqwest::Url;

use crate::process::open_url;

/// Opens an `http` or `https` URL in the desktop's browser; the error is one line.
pub(crate) async fn open_browser(address: &str) -> Result<(), String> {
    let url = Url::parse(address).map_err(|_| "the address is malformed".to_owned())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("only pages of `http` and `https` are opened".to_owned());
    }
    open_url(url.as_str()).await
}
