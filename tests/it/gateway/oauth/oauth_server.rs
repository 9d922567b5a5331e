//! A protected MCP server and its OAuth authorization server, on one port of 127.0.0.1.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::super::mock_http_server::{
    MockHttpServer, ReceivedRequest, respond, respond_streamable,
};

/// Deviations from an honest server.
#[derive(Clone, Default)]
pub(super) struct OAuthDeviations {
    /// Overrides fields of the authorization server metadata; `null` removes a field.
    pub(super) metadata: Value,
    /// Overrides fields of the protected resource metadata; `null` removes a field.
    pub(super) resource: Value,
    /// `WWW-Authenticate` of its 401 responses, instead of the usual one.
    pub(super) challenge: Option<String>,
    /// The `iss` that is returned with a code.
    pub(super) issuer: Option<String>,
    /// Lifetimes in seconds of access tokens from a sign-in and from a refresh.
    pub(super) token_lifetimes: (Option<u64>, Option<u64>),
    /// The first refresh waits at most 800 ms for a second one before it is answered.
    pub(super) slow_renewal: bool,
    /// Id and secret of the only accepted client.
    pub(super) client: Option<(String, String)>,
    /// Redirect target for requests to the protected server.
    pub(super) redirect: Option<String>,
    /// Rejects every token.
    pub(super) reject_all_tokens: bool,
}

#[derive(Default)]
struct OAuthState {
    next_id: u64,
    codes: HashMap<String, HashMap<String, String>>,
    access_tokens: HashSet<String>,
    refresh_tokens: HashSet<String>,
    issued: Vec<String>,
    renewals: usize,
    refuse_renewals: bool,
}

struct OAuthHandler {
    deviations: OAuthDeviations,
    state: Mutex<OAuthState>,
    renewal_requested: Condvar,
}

pub(super) struct OAuthServer {
    http: MockHttpServer,
    handler: Arc<OAuthHandler>,
}

impl OAuthServer {
    pub(super) fn start(deviations: OAuthDeviations) -> Self {
        let state = Mutex::new(OAuthState::default());
        let handler =
            Arc::new(OAuthHandler { deviations, state, renewal_requested: Condvar::new() });
        let shared_handler = Arc::clone(&handler);
        let http =
            MockHttpServer::start(move |request, stream| shared_handler.answer(request, stream));
        Self { http, handler }
    }

    pub(super) fn url(&self) -> String {
        self.http.url("/mcp")
    }

    pub(super) fn requests(&self) -> Vec<ReceivedRequest> {
        self.http.requests()
    }

    /// Number of requests to this path.
    pub(super) fn request_count(&self, path: &str) -> usize {
        let is_meant = |request: &ReceivedRequest| request.path.split('?').next() == Some(path);
        self.requests().iter().filter(|request| is_meant(request)).count()
    }

    /// Number of refresh requests.
    pub(super) fn renewals(&self) -> usize {
        self.handler.state.lock().unwrap().renewals
    }

    pub(super) fn refuse_renewals(&self, refuse: bool) {
        self.handler.state.lock().unwrap().refuse_renewals = refuse;
    }

    /// Every token, code and client id issued so far.
    pub(super) fn secrets(&self) -> Vec<String> {
        self.handler.state.lock().unwrap().issued.clone()
    }

    /// Revokes all access tokens; refresh tokens stay valid.
    pub(super) fn revoke(&self) {
        self.handler.state.lock().unwrap().access_tokens.clear();
    }
}

impl OAuthHandler {
    fn answer(&self, request: &ReceivedRequest, stream: &mut TcpStream) {
        let base = format!("http://{}", request.headers["host"]);
        let path = request.path.split('?').next().unwrap();
        let json = "content-type: application/json\r\n";
        match (request.method.as_str(), path) {
            (_, "/mcp") => self.protected(&base, request, stream),
            ("GET", "/.well-known/oauth-protected-resource/mcp") => {
                let usual = json!({
                    "resource": format!("{base}/mcp"), "authorization_servers": [base], "scopes_supported": ["tools"],
                });
                respond(
                    stream,
                    "200 OK",
                    json,
                    &merge(usual, &self.deviations.resource).to_string(),
                );
            }
            ("GET", "/.well-known/oauth-authorization-server") => {
                let usual = json!({
                    "issuer": base, "authorization_endpoint": format!("{base}/authorize"),
                    "token_endpoint": format!("{base}/token"), "registration_endpoint": format!("{base}/register"),
                    "response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"],
                    "scopes_supported": ["tools", "offline_access"],
                });
                respond(
                    stream,
                    "200 OK",
                    json,
                    &merge(usual, &self.deviations.metadata).to_string(),
                );
            }
            ("POST", "/register") => {
                let id = self.new_secret("client");
                let redirects = &request.body["redirect_uris"];
                let answer = json!({ "client_id": id, "redirect_uris": redirects });
                respond(stream, "201 Created", json, &answer.to_string());
            }
            ("GET", "/authorize") => self.authorize(&base, request, stream),
            ("POST", "/token") => {
                let (status, answer) = self.token(request);
                respond(stream, status, json, &answer.to_string());
            }
            _ => respond(stream, "404 Not Found", "", ""),
        }
    }

    fn protected(&self, base: &str, request: &ReceivedRequest, stream: &mut TcpStream) {
        if let Some(elsewhere) = &self.deviations.redirect {
            let location = format!("location: {elsewhere}\r\n");
            return respond(stream, "307 Temporary Redirect", &location, "");
        }
        let token = request.headers.get("authorization").and_then(|h| h.strip_prefix("Bearer "));
        let known =
            token.is_some_and(|token| self.state.lock().unwrap().access_tokens.contains(token));
        if known && !self.deviations.reject_all_tokens {
            return respond_streamable(request, stream);
        }
        let usual =
            format!("Bearer resource_metadata=\"{base}/.well-known/oauth-protected-resource/mcp\"");
        let challenge = self.deviations.challenge.clone().unwrap_or(usual);
        respond(stream, "401 Unauthorized", &format!("www-authenticate: {challenge}\r\n"), "");
    }

    fn authorize(&self, base: &str, request: &ReceivedRequest, stream: &mut TcpStream) {
        let asked = decode_form(request.path.split_once('?').unwrap().1);
        assert_eq!(asked["code_challenge_method"], "S256");
        let code = self.new_secret("code");
        let issuer = self.deviations.issuer.clone().unwrap_or_else(|| base.to_owned());
        let location = format!(
            "location: {}?code={code}&state={}&iss={}\r\n",
            asked["redirect_uri"],
            asked["state"],
            escaped(&issuer)
        );
        self.state.lock().unwrap().codes.insert(code, asked);
        respond(stream, "302 Found", &location, "");
    }

    fn token(&self, request: &ReceivedRequest) -> (&'static str, Value) {
        let asked = decode_form(&request.text);
        if let Some((id, secret)) = &self.deviations.client {
            let basic = format!("Basic {}", base64(format!("{id}:{secret}").as_bytes(), STANDARD));
            if request.headers.get("authorization") != Some(&basic) {
                return ("401 Unauthorized", json!({ "error": "invalid_client" }));
            }
        }
        match asked["grant_type"].as_str() {
            "authorization_code" => self.first_token(&asked),
            "refresh_token" => self.renewal(&asked),
            _ => ("400 Bad Request", json!({ "error": "unsupported_grant_type" })),
        }
    }

    fn first_token(&self, asked: &HashMap<String, String>) -> (&'static str, Value) {
        let granted = self.state.lock().unwrap().codes.remove(&asked["code"]);
        let proof = base64(&Sha256::digest(&asked["code_verifier"]), URL);
        match granted {
            Some(granted)
                if granted["code_challenge"] == proof
                    && granted["redirect_uri"] == asked["redirect_uri"] =>
            {
                self.issue(&granted["scope"], self.deviations.token_lifetimes.0)
            }
            _ => ("400 Bad Request", json!({ "error": "invalid_grant" })),
        }
    }

    fn renewal(&self, asked: &HashMap<String, String>) -> (&'static str, Value) {
        let mut state = self.state.lock().unwrap();
        state.renewals += 1;
        self.renewal_requested.notify_all();
        if self.deviations.slow_renewal {
            let more = |state: &mut OAuthState| state.renewals < 2;
            let waited =
                self.renewal_requested.wait_timeout_while(state, Duration::from_millis(800), more);
            state = waited.unwrap().0;
        }
        // Each refresh token can be used once.
        let known = state.refresh_tokens.remove(&asked["refresh_token"]);
        if !known || state.refuse_renewals {
            return ("400 Bad Request", json!({ "error": "invalid_grant" }));
        }
        drop(state);
        self.issue("tools", self.deviations.token_lifetimes.1)
    }

    fn issue(&self, scope: &str, life: Option<u64>) -> (&'static str, Value) {
        let (access, refresh) = (self.new_secret("access"), self.new_secret("refresh"));
        let mut state = self.state.lock().unwrap();
        state.access_tokens.insert(access.clone());
        state.refresh_tokens.insert(refresh.clone());
        let mut answer = json!({
            "access_token": access, "token_type": "Bearer", "refresh_token": refresh, "scope": scope,
        });
        if let Some(life) = life {
            answer["expires_in"] = json!(life);
        }
        ("200 OK", answer)
    }

    /// A new, unique id or token.
    fn new_secret(&self, kind: &str) -> String {
        let mut state = self.state.lock().unwrap();
        state.next_id += 1;
        let word = format!("{kind}-{}-s3cret{}", state.next_id, std::process::id());
        state.issued.push(word.clone());
        word
    }
}

fn merge(mut usual: Value, other: &Value) -> Value {
    for (key, value) in other.as_object().into_iter().flatten() {
        match value {
            Value::Null => drop(usual.as_object_mut().unwrap().remove(key)),
            value => usual[key] = value.clone(),
        }
    }
    usual
}

/// Decodes the fields of a form or a query.
pub(super) fn decode_form(text: &str) -> HashMap<String, String> {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), unescaped(value))).collect()
}

fn unescaped(text: &str) -> String {
    let text = text.replace('+', " ");
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).unwrap()
}

fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        write!(out, "%{byte:02X}").unwrap();
        out
    })
}

const URL: (&[u8; 2], bool) = (b"-_", false);
const STANDARD: (&[u8; 2], bool) = (b"+/", true);

fn base64(bytes: &[u8], (last, pads): (&[u8; 2], bool)) -> String {
    let letters: Vec<u8> =
        (b'A'..=b'Z').chain(b'a'..=b'z').chain(b'0'..=b'9').chain(last.iter().copied()).collect();
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - three.len()));
        for at in 0..=three.len() {
            out.push(char::from(letters[(bits >> (18 - 6 * at)) as usize & 63]));
        }
        if pads {
            out.extend(std::iter::repeat_n('=', 3 - three.len()));
        }
    }
    out
}

/// Requests a URL as a browser does; returns the status and the redirect target.
pub(super) fn browse(address: &str) -> (u16, Option<String>) {
    let rest = address.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let Ok(mut stream) = TcpStream::connect(host) else { return (0, None) };
    write!(stream, "GET /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    let location = answer.lines().find_map(|line| line.strip_prefix("location: "));
    (status, location.map(|location| location.trim().to_owned()))
}
