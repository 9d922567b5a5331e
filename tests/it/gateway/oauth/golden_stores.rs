//! The golden files of a sign-in (`tests/fixtures/store/sign-in`): read to the same values, and rewritten byte for byte.

use std::path::{Path, PathBuf};
use std::{env, fs};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use test_case::test_case;

use super::oauth_server::OAuthDeviations;
use super::{HOUR, OAuthContext, assert_works, execute, result_text};

fn fixture(variant: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/store/sign-in");
    folder.join(variant).join("record.json")
}

/// Placeholders in a golden file for the project and the server's address, with their values in this test.
fn placeholders(oauth: &OAuthContext) -> [(&'static str, String); 2] {
    let base = oauth.server.url().strip_suffix("/mcp").unwrap().to_owned();
    [("@SERVER@", base), ("@PROJECT@", oauth.root().display().to_string())]
}

/// The golden file of a variant, for this project and server.
fn golden(oauth: &OAuthContext, variant: &str) -> String {
    let text = fs::read_to_string(fixture(variant)).unwrap();
    placeholders(oauth)
        .iter()
        .fold(text, |text, (placeholder, place)| text.replace(placeholder, place))
}

/// Where a sign-in is kept: the first 40 digits of a hash over project, server, agent and address, each after its length.
fn file(oauth: &OAuthContext) -> PathBuf {
    let mut hash = Sha256::new();
    for part in [oauth.root().to_str().unwrap(), "far", "", &oauth.server.url()] {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    let id: String = format!("{:x}", hash.finalize()).chars().take(40).collect();
    oauth.home(".local/share/adjutant/sign-in").join(format!("{id}.json"))
}

/// A project that has the golden file of a variant for its sign-in.
fn signed_in(variant: &str) -> OAuthContext {
    let oauth = OAuthContext::new(OAuthDeviations {
        token_lifetimes: (HOUR, HOUR),
        ..OAuthDeviations::default()
    });
    let file = file(&oauth);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, golden(&oauth, variant)).unwrap();
    oauth
}

fn stored(oauth: &OAuthContext) -> String {
    assert_eq!(oauth.credential_files(), [file(oauth)]);
    fs::read_to_string(file(oauth)).unwrap()
}

#[test]
fn a_stored_sign_in_is_read_and_rewritten_byte_for_byte_when_its_renewal_is_refused() {
    let oauth = signed_in("signed-in");
    let expected = json!([{
        "server": "far",
        "sign_in": {
            "state": "signed_in", "expires_at": "2020-01-02T04:04:05.000Z", "renewable": true,
            "scopes": ["tools", "offline_access"], "kept_in": "file",
        },
    }]);
    assert_eq!(oauth.status(), expected);
    assert_eq!(stored(&oauth), golden(&oauth, "signed-in"), "reading writes nothing");
    let result = execute(&mut oauth.connect(), "far", "who", json!({}));
    assert!(result_text(&result).starts_with("SERVER_UNAVAILABLE"), "{result}");
    let renewal =
        oauth.server.requests().into_iter().find(|request| request.path == "/token").unwrap();
    assert!(renewal.text.contains("refresh_token=refresh-of-the-fixture"), "{}", renewal.text);
    assert_eq!(stored(&oauth), golden(&oauth, "ended"));
}

#[test]
fn a_stored_end_of_a_sign_in_is_read_and_replaced_by_the_next_sign_in() {
    let oauth = signed_in("ended");
    let expected = json!([{
        "server": "far",
        "sign_in": {
            "state": "ended", "reason": "its sign-in has ended: the server refused to renew it",
            "expires_at": "2020-01-02T04:04:05.000Z", "renewable": true, "scopes": ["tools", "offline_access"],
        },
    }]);
    assert_eq!(oauth.status(), expected);
    oauth.sign_in();
    assert_works(&mut oauth.connect());
    let keys = |text: &str| -> Vec<String> {
        let record: Value = serde_json::from_str(text).unwrap();
        record.as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(keys(&stored(&oauth)), keys(&golden(&oauth, "signed-in")), "in this order");
}

#[test_case("damaged", "` is damaged; sign in again"; "a damaged record")]
#[test_case("newer-format", "` was written by a newer Adjutant"; "a newer format")]
fn a_sign_in_that_cannot_be_read_is_an_error_and_is_not_overwritten(variant: &str, why: &str) {
    let oauth = signed_in(variant);
    let detail = format!("`{}{why}", file(&oauth).display());
    let status = oauth.status();
    assert_eq!(status[0]["sign_in"]["state"], "unknown");
    assert!(status[0]["sign_in"]["reason"].as_str().unwrap().ends_with(&detail), "{status}");
    let result = execute(&mut oauth.connect(), "far", "who", json!({}));
    assert_eq!(result["isError"], true, "{result}");
    assert_eq!(stored(&oauth), golden(&oauth, variant));
}

#[test]
fn a_damaged_sign_in_is_reported_and_set_aside_by_the_next_one() {
    let desk = signed_in("damaged");
    let said = execute(&mut desk.connect(), "far", "who", json!({}));
    let reason =
        format!("STORE_UNAVAILABLE: `{}` is damaged; sign in again", file(&desk).display());
    let expected = format!(
        "SERVER_UNAVAILABLE: server `far` is unavailable: `initialize` did not reach it: \
         unexpected server response: {reason}. It is tried again in 1 s."
    );
    assert_eq!(result_text(&said), expected);
    desk.sign_in();
    assert_works(&mut desk.connect());
    let aside = format!("{}.damaged-1", file(&desk).display());
    assert_eq!(fs::read_to_string(aside).unwrap(), golden(&desk, "damaged"));
}

/// Writes the golden files; only with `ADJUTANT_WRITE_GOLDEN=1`.
#[test]
#[ignore = "writes tests/fixtures/store if `ADJUTANT_WRITE_GOLDEN` is set"]
fn write_golden_sign_in() {
    if env::var_os("ADJUTANT_WRITE_GOLDEN").is_none() {
        return;
    }
    let oauth = OAuthContext::new(OAuthDeviations {
        token_lifetimes: (HOUR, HOUR),
        ..OAuthDeviations::default()
    });
    oauth.sign_in();
    let keep = |variant: &str, text: &str| {
        let mut record: Value = serde_json::from_str(text).unwrap();
        // Words and times that change with every sign-in. The token has expired, so that it is renewed at its first use.
        let seconds = ["2020-01-02T03:04:05Z", "2020-01-02T04:04:05Z"];
        for (key, time) in ["issued_at", "expires_at"].into_iter().zip(seconds) {
            record[key] = time.into();
        }
        if let Some(answer) = record.pointer_mut("/secrets/credentials/token_response") {
            answer["access_token"] = "access-of-the-fixture".into();
            answer["refresh_token"] = "refresh-of-the-fixture".into();
        }
        let client = record["client_id"].as_str().unwrap();
        let text = serde_json::to_string_pretty(&record).unwrap();
        let text = text.replace(client, "client-of-the-fixture");
        let text =
            placeholders(&oauth).iter().fold(text, |text, (name, place)| text.replace(place, name));
        fs::create_dir_all(fixture(variant).parent().unwrap()).unwrap();
        fs::write(fixture(variant), text).unwrap();
    };
    let text = stored(&oauth);
    keep("signed-in", &text);
    keep("newer-format", &text.replacen("\"format\": 1", "\"format\": 2", 1));
    let mut client = oauth.connect();
    assert_works(&mut client);
    oauth.server.revoke();
    oauth.server.refuse_renewals(true);
    execute(&mut client, "far", "who", json!({}));
    keep("ended", &stored(&oauth));
    let whole = fs::read_to_string(fixture("signed-in")).unwrap();
    fs::create_dir_all(fixture("damaged").parent().unwrap()).unwrap();
    fs::write(fixture("damaged"), whole.replacen("\"scopes\"", "\"scope\"", 1)).unwrap();
}
