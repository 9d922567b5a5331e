//! `adjutant init`: makes a project ready for Claude Code, and touches nothing else there.

mod json_text;
