//! Cache of the resource URIs of a server, valid until its list changes or it is started again.
//!
//! Without it, reading one resource would list the resources of all allowed servers and so start all of them. The URIs
//! of a server that has ended are kept: they tell which server to start.

use crate::util::Mutex;
use std::sync::Arc;

/// Lists above 4 MiB are not cached.
const MAX_CACHED_BYTES: usize = 4 << 20;

/// Version of a list: number of starts of the server and number of announced changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListVersion {
    pub(crate) starts: u64,
    pub(crate) changes: u64,
}

/// Cached list of URIs or URI templates.
#[derive(Default)]
pub(crate) struct KnownList(Mutex<Option<(ListVersion, Arc<[String]>)>>);

impl KnownList {
    /// Returns the list if it was read at this version.
    pub(crate) fn get(&self, version: ListVersion) -> Option<Arc<[String]>> {
        let known = self.0.lock();
        known.as_ref().filter(|(read_in, _)| *read_in == version).map(|(_, uris)| Arc::clone(uris))
    }

    pub(crate) fn set(&self, version: ListVersion, uris: Arc<[String]>) {
        let bytes: usize = uris.iter().map(String::len).sum();
        let known = (bytes <= MAX_CACHED_BYTES).then_some((version, uris));
        *self.0.lock() = known;
    }
}

/// Cached lists of one server.
#[derive(Default)]
pub(crate) struct KnownResources {
    pub(crate) uris: KnownList,
    pub(crate) templates: KnownList,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_cached_for_one_version_unless_it_is_too_long() {
        let (known, version) = (KnownList::default(), ListVersion { starts: 1, changes: 0 });
        known.set(version, ["a://b".to_owned()].into());
        assert_eq!(known.get(version).as_deref(), Some(&["a://b".to_owned()][..]));
        assert_eq!(known.get(ListVersion { starts: 2, ..version }), None);
        assert_eq!(known.get(ListVersion { changes: 1, ..version }), None);
        known.set(version, ["x".repeat(MAX_CACHED_BYTES + 1)].into());
        assert_eq!(known.get(version), None);
    }
}
