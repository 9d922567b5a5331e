//! A strict parser for HTTP/1.1 request heads.
//!
//! Everything that two readers could understand differently is refused: bare line feeds, folded lines, spaces before a
//! colon, two lengths, and transfer codings other than `chunked`.

/// A request head, as written by the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestHead {
    pub(crate) method: String,
    /// Path and query, beginning with `/`.
    pub(crate) target: String,
    /// Names in lower case, values without surrounding spaces, in order.
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: BodyLength,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyLength {
    Known(u64),
    Chunked,
}

/// Why a request was refused; the text names the rule and contains nothing of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadRequest(pub(crate) &'static str);

/// Limit of a head. `claude` sends about 2 KiB.
pub(crate) const MAX_HEAD_BYTES: usize = 64 << 10;
const MAX_HEADERS: usize = 100;

impl RequestHead {
    /// Parses a head including the empty line at its end.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, BadRequest> {
        let text = bytes.strip_suffix(b"\r\n\r\n").ok_or(BadRequest("the head has no end"))?;
        let mut lines = split_lines(text)?.into_iter();
        let (method, target) = parse_request_line(lines.next().unwrap_or_default())?;
        let headers = lines.map(parse_header).collect::<Result<Vec<_>, _>>()?;
        if headers.len() > MAX_HEADERS {
            return Err(BadRequest("too many headers"));
        }
        if values(&headers, "host").count() != 1 {
            return Err(BadRequest("not exactly one Host"));
        }
        let body = body_length(&headers)?;
        Ok(Self { method, target, headers, body })
    }

    pub(crate) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        values(&self.headers, name)
    }

    /// Returns true if the client closes the connection after the response.
    pub(crate) fn wants_close(&self) -> bool {
        self.connection_options().any(|option| option == "close")
    }

    /// Returns the words of `Connection`, in lower case: `close`, `keep-alive`, and names of headers for us only.
    pub(crate) fn connection_options(&self) -> impl Iterator<Item = String> {
        let values = self.values("connection").map(String::from_utf8_lossy);
        let words = |value: std::borrow::Cow<'_, str>| {
            value.split(',').map(|word| word.trim().to_ascii_lowercase()).collect::<Vec<_>>()
        };
        values.flat_map(words)
    }
}

fn values<'a>(headers: &'a [(String, Vec<u8>)], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    headers.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_slice())
}

/// Splits at CRLF; a CR or LF alone is refused.
fn split_lines(text: &[u8]) -> Result<Vec<&[u8]>, BadRequest> {
    let mut lines = Vec::new();
    let mut rest = text.split(|byte| *byte == b'\n').peekable();
    while let Some(line) = rest.next() {
        let content = if rest.peek().is_none() { Some(line) } else { line.strip_suffix(b"\r") };
        match content {
            Some(content) if !content.contains(&b'\r') => lines.push(content),
            _ => return Err(BadRequest("a line does not end with CRLF")),
        }
    }
    Ok(lines)
}

fn parse_request_line(line: &[u8]) -> Result<(String, String), BadRequest> {
    let text = str::from_utf8(line).map_err(|_| BadRequest("the request line is not ASCII"))?;
    let mut words = text.split(' ');
    let (Some(method), Some(target), Some("HTTP/1.1"), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(BadRequest("the request line is not `METHOD /path HTTP/1.1`"));
    };
    if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Err(BadRequest("the method is not a word in capitals"));
    }
    let is_clean = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    if !target.starts_with('/') || !target.bytes().all(is_clean) {
        return Err(BadRequest("the target is not a path"));
    }
    Ok((method.to_owned(), target.to_owned()))
}

fn parse_header(line: &[u8]) -> Result<(String, Vec<u8>), BadRequest> {
    let colon =
        line.iter().position(|byte| *byte == b':').ok_or(BadRequest("a header has no colon"))?;
    let (name, value) = line.split_at(colon);
    if name.is_empty() || !name.iter().all(|byte| is_token_byte(*byte)) {
        return Err(BadRequest(
            "the name of a header has other characters than letters, digits and signs",
        ));
    }
    let value = value.get(1..).unwrap_or_default();
    let is_text = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
    if !value.iter().all(is_text) {
        return Err(BadRequest("the value of a header has control characters"));
    }
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    Ok((name, value.trim_ascii().to_vec()))
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn body_length(headers: &[(String, Vec<u8>)]) -> Result<BodyLength, BadRequest> {
    let lengths = values(headers, "content-length").collect::<Vec<_>>();
    let codings = values(headers, "transfer-encoding").collect::<Vec<_>>();
    match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => Ok(BodyLength::Known(0)),
        ([], [coding]) if coding.eq_ignore_ascii_case(b"chunked") => Ok(BodyLength::Chunked),
        ([length], []) => parse_length(length).map(BodyLength::Known),
        ([], _) => Err(BadRequest("a transfer coding other than chunked")),
        (_, []) => Err(BadRequest("more than one Content-Length")),
        _ => Err(BadRequest("both Content-Length and Transfer-Encoding")),
    }
}

fn parse_length(text: &[u8]) -> Result<u64, BadRequest> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let number = str::from_utf8(text).ok().filter(|_| is_number).and_then(|text| text.parse().ok());
    number.ok_or(BadRequest("Content-Length is not a number"))
}

/// Parses the line before a chunk: one to eight hexadecimal digits, without extensions.
pub(crate) fn parse_chunk_size(line: &[u8]) -> Result<u64, BadRequest> {
    let is_size = (1..=8).contains(&line.len()) && line.iter().all(u8::is_ascii_hexdigit);
    let text = str::from_utf8(line).ok().filter(|_| is_size);
    text.and_then(|text| u64::from_str_radix(text, 16).ok())
        .ok_or(BadRequest("the size of a chunk is not a hexadecimal number"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use test_case::test_case;

    const LINE: &str = "POST /v1/messages?beta=true HTTP/1.1\r\nHost: x\r\n";

    fn parse(rest: &str) -> Result<RequestHead, BadRequest> {
        RequestHead::parse(format!("{LINE}{rest}\r\n").as_bytes())
    }

    #[test]
    fn an_ordinary_head_is_parsed() {
        let head =
            parse("Content-Length: 12\r\nX-Key:\t a b \r\nConnection: Close, X-Hop\r\n").unwrap();
        assert_eq!(
            (head.method.as_str(), head.target.as_str()),
            ("POST", "/v1/messages?beta=true")
        );
        assert_eq!(head.body, BodyLength::Known(12));
        assert_eq!(head.values("x-key").collect::<Vec<_>>(), [b"a b"]);
        assert_eq!(head.connection_options().collect::<Vec<_>>(), ["close", "x-hop"]);
        assert!(head.wants_close());
        assert_eq!(parse("Transfer-Encoding: Chunked\r\n").unwrap().body, BodyLength::Chunked);
        assert_eq!(parse("").unwrap().body, BodyLength::Known(0));
    }

    #[test_case("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"; "both lengths")]
    #[test_case("Content-Length: 1\r\nContent-Length: 1\r\n"; "two content lengths")]
    #[test_case("Content-Length: 1, 1\r\n"; "a list of lengths")]
    #[test_case("Content-Length: +1\r\n"; "a signed length")]
    #[test_case("Content-Length: 0x1\r\n"; "a hexadecimal length")]
    #[test_case("Content-Length:\r\n"; "an empty length")]
    #[test_case("Content-Length: 99999999999999999999\r\n"; "a length beyond 64 bits")]
    #[test_case("Transfer-Encoding: xchunked\r\n"; "an unknown coding")]
    #[test_case("Transfer-Encoding: gzip, chunked\r\n"; "two codings")]
    #[test_case("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"; "two coding headers")]
    #[test_case("Transfer-Encoding\t: chunked\r\n"; "tab before the colon")]
    #[test_case("Content-Length : 1\r\n"; "space before the colon")]
    #[test_case("X: a\nContent-Length: 1\r\n"; "bare line feed")]
    #[test_case("X: a\rY: b\r\n"; "bare carriage return")]
    #[test_case("X: a\r\n b\r\n"; "folded line")]
    #[test_case("X: a\0b\r\n"; "null byte")]
    #[test_case("X: a\x7fb\r\n"; "delete character")]
    #[test_case(": a\r\n"; "empty name")]
    #[test_case("no colon\r\n"; "no colon")]
    #[test_case("Host: y\r\n"; "two hosts")]
    #[test_case("\r\nGET / HTTP/1.1\r\n"; "an empty line within the head")]
    fn ambiguous_headers_are_refused(headers: &str) {
        parse(headers).unwrap_err();
    }

    #[test_case("GET http://evil/ HTTP/1.1"; "absolute target")]
    #[test_case("CONNECT evil:443 HTTP/1.1"; "authority")]
    #[test_case("OPTIONS * HTTP/1.1"; "asterisk")]
    #[test_case("POST /a#b HTTP/1.1"; "fragment")]
    #[test_case("POST /a b HTTP/1.1"; "space in the target")]
    #[test_case("POST  /a HTTP/1.1"; "two spaces")]
    #[test_case("POST\t/a HTTP/1.1"; "tab")]
    #[test_case("post /a HTTP/1.1"; "lower case")]
    #[test_case("POST /a HTTP/1.0"; "older version")]
    #[test_case("POST /a HTTP/2.0"; "newer version")]
    #[test_case("POST /ä HTTP/1.1"; "other than ASCII")]
    #[test_case("POST /a"; "no version")]
    #[test_case(" POST /a HTTP/1.1"; "leading space")]
    #[test_case("\r\nPOST /a HTTP/1.1"; "leading line")]
    fn odd_request_lines_are_refused(line: &str) {
        RequestHead::parse(format!("{line}\r\nHost: x\r\n\r\n").as_bytes()).unwrap_err();
    }

    #[test_case(b"0" => Some(0))]
    #[test_case(b"Ff" => Some(255))]
    #[test_case(b"" => None)]
    #[test_case(b"1;x=y" => None; "extension")]
    #[test_case(b"1 " => None; "space")]
    #[test_case(b"0x1" => None; "prefix")]
    #[test_case(b"123456789" => None; "too long")]
    fn chunk_sizes_are_plain_hexadecimal(line: &[u8]) -> Option<u64> {
        parse_chunk_size(line).ok()
    }

    proptest! {
        /// No line can hide another one.
        #[test]
        fn every_line_of_an_accepted_head_is_one_header(lines in "([A-Za-z:, \t\r\n0-9-]{0,40}\r\n){0,4}") {
            let bytes = format!("{LINE}{lines}\r\n");
            if let Ok(head) = RequestHead::parse(bytes.as_bytes()) {
                prop_assert_eq!(head.headers.len(), 1 + lines.matches("\r\n").count());
                prop_assert!(head.headers.iter().all(|(name, value)| !name.contains([' ', '\t']) && !value.contains(&b'\n')));
            }
        }
    }
}
