//! TLS of the HTTP server, with generated certificates and a client that verifies them.

use std::path::PathBuf;
use std::process::{Command, Output};

use rcgen::{CertifiedKey, generate_simple_self_signed};

use crate::gateway_real::{node_packages, project_with_everything, stdout_of, test_source};
use crate::support::TestContext;
use crate::support::http::{HttpRequest, HttpServer};
use crate::support::text::mask;

/// Writes a certificate for localhost and its key; returns the paths for `--tls-cert` and `--tls-key`.
fn certificate(context: &TestContext, name: &str) -> (PathBuf, PathBuf) {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let CertifiedKey { cert, key_pair } = generate_simple_self_signed(names).unwrap();
    let (chain, key) = (format!("{name}.pem"), format!("{name}.key"));
    context.write(&chain, cert.pem());
    context.write(&key, key_pair.serialize_pem());
    (context.root().join(chain), context.root().join(key))
}

fn serve(context: &TestContext, certificate: &PathBuf, key: &PathBuf) -> Command {
    let mut command = context.adjutant(["serve", "--http", "127.0.0.1:0"]);
    command.arg("--tls-cert").arg(certificate).arg("--tls-key").arg(key);
    command
}

#[test]
fn only_a_client_that_trusts_the_certificate_can_call_a_tool() {
    let Some((context, _)) = project_with_everything() else { return };
    let token = context.create_token("dev");
    let (chain, key) = certificate(&context, "mine");
    let server = HttpServer::start(serve(&context, &chain, &key));
    let url = server.url().replace("http://", "https://");
    let script = node_packages().unwrap().join("client-https.mjs");
    std::fs::copy(test_source("client.mjs"), &script).unwrap();
    let client = |trusted: &PathBuf| {
        let mut client = Command::new("node");
        client.arg(&script).arg(&url).env("ADJUTANT_TOKEN", &token);
        client.env("NODE_EXTRA_CA_CERTS", trusted);
        client
    };
    let answer = stdout_of(&mut client(&chain), &context);
    assert_eq!(answer, "2025-11-25 5 tools; Echo: hello; progress; image/png");

    let (other, _) = certificate(&context, "other");
    let refused = client(&other).output().unwrap();
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && told.contains("self-signed certificate"), "{told}");
    let plain = server.send(&HttpRequest::get("/healthz"));
    assert_ne!(plain.status, 200, "nothing is served without TLS there: {plain:?}");
}

#[test]
fn unusable_tls_files_are_reported_in_one_sentence() {
    let context = TestContext::new();
    context.create_token("bot");
    let (chain, key) = certificate(&context, "mine");
    let (_, other) = certificate(&context, "other");
    let (missing, text) = (context.root().join("missing.pem"), context.root().join("text.pem"));
    context.write("text.pem", "no certificate");
    let told = |output: Output| {
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    for (certificate, key, file, reason) in [
        (&chain, &other, "mine.pem", "the key is not the certificate's (`[ROOT]/other.key`)"),
        (&missing, &key, "missing.pem", "No such file or directory (os error 2)"),
        (&chain, &missing, "missing.pem", "No such file or directory (os error 2)"),
        (&text, &key, "text.pem", "there is no certificate in it"),
        (&chain, &text, "text.pem", "there is no private key in it"),
        (&chain, &chain, "mine.pem", "there is no private key in it"),
    ] {
        let told = told(serve(&context, certificate, key).output().unwrap());
        let expected = format!(
            "error: `[ROOT]/{file}` cannot be used for TLS: {reason}; \
             give a certificate and its key as PEM files\n"
        );
        assert_eq!(mask(&told), expected);
    }
    let half = context.run(["serve", "--http", "127.0.0.1:0", "--tls-cert=mine.pem"]);
    assert_eq!(half.status.code(), Some(2));
    insta::assert_snapshot!(String::from_utf8_lossy(&half.stderr), @r"
    error: the following required arguments were not provided:
      --tls-key <FILE>

    Usage: adjutant serve --tls-cert <FILE> --tls-key <FILE> --http <ADDR>

    For more information, try '--help'.
    ");
}
