//! A protected MCP server and its sign-in, on one port of 127.0.0.1: honest unless it is told otherwise.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::super::http_server::{HttpServer, Request, respond, streamable};

/// What it does otherwise than an honest one.
#[derive(Clone, Default)]
pub(super) struct Ways {
    /// Put over what it publishes about its sign-in.
    pub(super) metadata: Value,
    /// Put over what it publishes about the protected server.
    pub(super) resource: Value,
    /// The challenge of its 401, instead of the usual one.
    pub(super) challenge: Option<String>,
    /// The `iss` that comes with a code.
    pub(super) issuer: Option<String>,
    /// How long the tokens of a sign-in and of a renewal are good, in seconds.
    pub(super) lives: (Option<u64>, Option<u64>),
    /// The first answer to a renewal waits a moment for a second request.
    pub(super) slow_renewal: bool,
    /// The client that must be used, with its secret.
    pub(super) client: Option<(String, String)>,
    /// Where requests of the protected server are sent on to.
    pub(super) redirect: Option<String>,
    /// No token is good enough.
    pub(super) never_content: bool,
}

#[derive(Default)]
struct Books {
    next: u64,
    codes: HashMap<String, HashMap<String, String>>,
    access: HashSet<String>,
    refresh: HashSet<String>,
    told: Vec<String>,
    renewals: usize,
    refuse_renewals: bool,
}

struct Office {
    ways: Ways,
    books: Mutex<Books>,
    renewal_came: Condvar,
}

pub(super) struct OAuthServer {
    http: HttpServer,
    office: Arc<Office>,
}

impl OAuthServer {
    pub(super) fn start(ways: Ways) -> Self {
        let books = Mutex::new(Books::default());
        let office = Arc::new(Office { ways, books, renewal_came: Condvar::new() });
        let desk = Arc::clone(&office);
        let http = HttpServer::start(move |request, stream| desk.answer(request, stream));
        Self { http, office }
    }

    pub(super) fn url(&self) -> String {
        self.http.url("/mcp")
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.http.requests()
    }

    /// How often this path was asked for.
    pub(super) fn asked(&self, path: &str) -> usize {
        let is_meant = |request: &Request| request.path.split('?').next() == Some(path);
        self.requests().iter().filter(|request| is_meant(request)).count()
    }

    /// How often a renewal was asked for.
    pub(super) fn renewals(&self) -> usize {
        self.office.books.lock().unwrap().renewals
    }

    pub(super) fn refuse_renewals(&self, refuse: bool) {
        self.office.books.lock().unwrap().refuse_renewals = refuse;
    }

    /// Every token and code it ever gave away.
    pub(super) fn secrets(&self) -> Vec<String> {
        self.office.books.lock().unwrap().told.clone()
    }

    /// The tokens are taken back; those of renewals are not.
    pub(super) fn revoke(&self) {
        self.office.books.lock().unwrap().access.clear();
    }
}

impl Office {
    fn answer(&self, request: &Request, stream: &mut TcpStream) {
        let base = format!("http://{}", request.headers["host"]);
        let path = request.path.split('?').next().unwrap();
        let json = "content-type: application/json\r\n";
        match (request.method.as_str(), path) {
            (_, "/mcp") => self.protected(&base, request, stream),
            ("GET", "/.well-known/oauth-protected-resource/mcp") => {
                let usual = json!({
                    "resource": format!("{base}/mcp"), "authorization_servers": [base], "scopes_supported": ["tools"],
                });
                respond(stream, "200 OK", json, &over(usual, &self.ways.resource).to_string());
            }
            ("GET", "/.well-known/oauth-authorization-server") => {
                let usual = json!({
                    "issuer": base, "authorization_endpoint": format!("{base}/authorize"),
                    "token_endpoint": format!("{base}/token"), "registration_endpoint": format!("{base}/register"),
                    "response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"],
                    "scopes_supported": ["tools", "offline_access"],
                });
                respond(stream, "200 OK", json, &over(usual, &self.ways.metadata).to_string());
            }
            ("POST", "/register") => {
                let id = self.fresh("client");
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

    fn protected(&self, base: &str, request: &Request, stream: &mut TcpStream) {
        if let Some(elsewhere) = &self.ways.redirect {
            let location = format!("location: {elsewhere}\r\n");
            return respond(stream, "307 Temporary Redirect", &location, "");
        }
        let token = request.headers.get("authorization").and_then(|h| h.strip_prefix("Bearer "));
        let known = token.is_some_and(|token| self.books.lock().unwrap().access.contains(token));
        if known && !self.ways.never_content {
            return streamable(request, stream);
        }
        let usual =
            format!("Bearer resource_metadata=\"{base}/.well-known/oauth-protected-resource/mcp\"");
        let challenge = self.ways.challenge.clone().unwrap_or(usual);
        respond(stream, "401 Unauthorized", &format!("www-authenticate: {challenge}\r\n"), "");
    }

    fn authorize(&self, base: &str, request: &Request, stream: &mut TcpStream) {
        let asked = form(request.path.split_once('?').unwrap().1);
        assert_eq!(asked["code_challenge_method"], "S256");
        let code = self.fresh("code");
        let issuer = self.ways.issuer.clone().unwrap_or_else(|| base.to_owned());
        let location = format!(
            "location: {}?code={code}&state={}&iss={}\r\n",
            asked["redirect_uri"],
            asked["state"],
            escaped(&issuer)
        );
        self.books.lock().unwrap().codes.insert(code, asked);
        respond(stream, "302 Found", &location, "");
    }

    fn token(&self, request: &Request) -> (&'static str, Value) {
        let asked = form(&request.text);
        if let Some((id, secret)) = &self.ways.client {
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
        let granted = self.books.lock().unwrap().codes.remove(&asked["code"]);
        let proof = base64(&Sha256::digest(&asked["code_verifier"]), URL);
        match granted {
            Some(granted)
                if granted["code_challenge"] == proof
                    && granted["redirect_uri"] == asked["redirect_uri"] =>
            {
                self.issue(&granted["scope"], self.ways.lives.0)
            }
            _ => ("400 Bad Request", json!({ "error": "invalid_grant" })),
        }
    }

    fn renewal(&self, asked: &HashMap<String, String>) -> (&'static str, Value) {
        let mut books = self.books.lock().unwrap();
        books.renewals += 1;
        self.renewal_came.notify_all();
        if self.ways.slow_renewal {
            let more = |books: &mut Books| books.renewals < 2;
            let waited =
                self.renewal_came.wait_timeout_while(books, Duration::from_millis(800), more);
            books = waited.unwrap().0;
        }
        // Each is good for once.
        let known = books.refresh.remove(&asked["refresh_token"]);
        if !known || books.refuse_renewals {
            return ("400 Bad Request", json!({ "error": "invalid_grant" }));
        }
        drop(books);
        self.issue("tools", self.ways.lives.1)
    }

    fn issue(&self, scope: &str, life: Option<u64>) -> (&'static str, Value) {
        let (access, refresh) = (self.fresh("access"), self.fresh("refresh"));
        let mut books = self.books.lock().unwrap();
        books.access.insert(access.clone());
        books.refresh.insert(refresh.clone());
        let mut answer = json!({
            "access_token": access, "token_type": "Bearer", "refresh_token": refresh, "scope": scope,
        });
        if let Some(life) = life {
            answer["expires_in"] = json!(life);
        }
        ("200 OK", answer)
    }

    /// A word that was never used before.
    fn fresh(&self, kind: &str) -> String {
        let mut books = self.books.lock().unwrap();
        books.next += 1;
        let word = format!("{kind}-{}-s3cret{}", books.next, std::process::id());
        books.told.push(word.clone());
        word
    }
}

fn over(mut usual: Value, other: &Value) -> Value {
    for (key, value) in other.as_object().into_iter().flatten() {
        match value {
            Value::Null => drop(usual.as_object_mut().unwrap().remove(key)),
            value => usual[key] = value.clone(),
        }
    }
    usual
}

/// The fields of a form or a query.
pub(super) fn form(text: &str) -> HashMap<String, String> {
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

/// What a browser does with an address: the status, and where it is sent on to.
pub(super) fn visit(address: &str) -> (u16, Option<String>) {
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
