//! TLS, where it is ours to speak.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{Error, InconsistentKeys, ServerConfig};
use tokio_rustls::TlsAcceptor;

use super::options::TlsFiles;
use super::server::HttpError;

/// What turns a connection into a private one.
pub(super) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, HttpError> {
    let certificates = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable(&files.certificate, &error, "certificate"))?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| unreadable(&files.key, &error, "private key"))?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, key))
        .map_err(|error| unusable(files, &error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn unreadable(path: &Path, error: &pem::Error, wanted: &str) -> HttpError {
    let reason = match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => format!("there is no {wanted} in it"),
        other => other.to_string(),
    };
    HttpError::Tls { path: path.to_path_buf(), reason }
}

fn unusable(files: &TlsFiles, error: &Error) -> HttpError {
    let reason = match error {
        Error::NoCertificatesPresented => "there is no certificate in it".to_owned(),
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            format!("the key is not the certificate's (`{}`)", files.key.display())
        }
        other => other.to_string(),
    };
    HttpError::Tls { path: files.certificate.clone(), reason }
}
