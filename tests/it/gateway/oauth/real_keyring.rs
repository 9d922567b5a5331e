//! The keyring of Linux desktops: a D-Bus session bus, GNOME Keyring, and `secret-tool` of libsecret.

use std::process::Command;

use super::*;
use crate::support::wait::wait_until;

const BUS: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>unix:path=ADDRESS</listen>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>"#;

/// A session bus with a keyring; both are stopped when dropped.
struct DesktopSession {
    running: Vec<Child>,
    folder: tempfile::TempDir,
    home: PathBuf,
}

impl DesktopSession {
    fn start(home: &Path) -> Self {
        for program in ["dbus-daemon", "gnome-keyring-daemon", "secret-tool"] {
            let found = Command::new("sh").args(["-c", "command -v \"$0\"", program]).output();
            assert!(found.unwrap().status.success(), "`{program}` is not installed");
        }
        // Not below the project: the path of a Unix socket is limited to 108 bytes.
        let folder = tempfile::Builder::new().prefix("ring").tempdir_in("/tmp").unwrap();
        let mut desktop = Self { running: Vec::new(), folder, home: home.to_owned() };
        let socket = desktop.socket();
        let config = desktop.folder.path().join("bus.conf");
        fs::write(&config, BUS.replace("ADDRESS", &socket.display().to_string())).unwrap();
        let mut bus = Command::new("dbus-daemon");
        bus.arg("--nofork").arg("--config-file").arg(&config);
        desktop.running.push(bus.stderr(Stdio::null()).spawn().unwrap());
        wait_until("the bus", || socket.exists().then_some(()));
        let mut keyring = desktop.command("gnome-keyring-daemon");
        keyring.args(["--foreground", "--unlock", "--components=secrets"]);
        let mut keyring = keyring.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        keyring.stdin.take().unwrap().write_all(b"the person's password").unwrap();
        desktop.running.push(keyring);
        wait_until("the keyring", || {
            let mut probe = desktop.command("secret-tool");
            let mut probe = probe
                .args(["store", "--label=probe", "probe", "yes"])
                .stdin(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let _ = probe.stdin.take().unwrap().write_all(b"x");
            probe.wait().unwrap().success().then_some(())
        });
        desktop
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("bus")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("HOME", &self.home).env_remove("XDG_DATA_HOME");
        self.with_session_env(command)
    }

    /// Adds the environment of this desktop to a command.
    fn with_session_env(&self, mut command: Command) -> Command {
        let address = format!("unix:path={}", self.socket().display());
        command.env("DBUS_SESSION_BUS_ADDRESS", address);
        command.env("XDG_RUNTIME_DIR", self.folder.path());
        command.env_remove("ADJUTANT_KEYRING");
        command
    }

    /// All items of Adjutant in the keyring.
    fn keyring_items(&self) -> String {
        let mut search = self.command("secret-tool");
        let found = search.args(["search", "--all", "service", "adjutant"]).output().unwrap();
        String::from_utf8(found.stdout).unwrap()
    }
}

impl Drop for DesktopSession {
    fn drop(&mut self) {
        for child in self.running.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
#[ignore = "needs dbus-daemon, gnome-keyring-daemon and secret-tool"]
fn j6_tokens_are_stored_in_a_real_keyring_from_login_to_logout() {
    let oauth = OAuthContext::new(OAuthDeviations {
        token_lifetimes: (Some(0), HOUR),
        ..OAuthDeviations::default()
    });
    let desktop = DesktopSession::start(&oauth.fixture.context.home());
    let login = oauth.fixture.context.adjutant(["auth", "login", "far", "--no-browser"]);
    let mut login = Login::start(desktop.with_session_env(login));
    assert_eq!(browse(&browse(&login.authorization_url()).1.unwrap()).0, 200);
    let ended = login.wait_for_exit();
    assert!(ended.status.success(), "{}", stderr_of(&ended));
    assert!(desktop.keyring_items().contains("refresh-"), "{}", desktop.keyring_items());
    // No file of this user contains the tokens in plain text.
    for path in files_below(&oauth.fixture.context.home()) {
        let bytes = fs::read(&path).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&bytes).contains("refresh-"), "{}", path.display());
    }
    // Two further processes, one after the other, without a new sign-in.
    for _ in 0..2 {
        assert_works(&mut McpClient::connect(desktop.with_session_env(oauth.command())));
    }
    assert_eq!(oauth.server.renewals(), 1, "what was renewed is kept too");
    let status = oauth.fixture.context.adjutant(["auth", "status", "--json"]);
    let status = desktop.with_session_env(status).output().unwrap();
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status[0]["sign_in"]["kept_in"], "keyring", "{status}");
    // Without the desktop, the error is reported at once.
    let mut elsewhere = oauth.command();
    elsewhere.env_remove("DBUS_SESSION_BUS_ADDRESS").env_remove("XDG_RUNTIME_DIR");
    let lost = execute(&mut McpClient::connect(elsewhere), "far", "who", json!({}));
    assert_eq!(error_code(&lost), "SERVER_UNAVAILABLE");
    assert!(result_text(&lost).contains("kept in a keyring, and there is none here"), "{lost}");

    let logout = oauth.fixture.context.adjutant(["auth", "logout", "far"]);
    assert!(desktop.with_session_env(logout).status().unwrap().success());
    assert!(!desktop.keyring_items().contains("refresh-"), "{}", desktop.keyring_items());
    let after = McpClient::connect(desktop.with_session_env(oauth.command()));
    let refused = execute(&mut { after }, "far", "who", json!({}));
    assert!(result_text(&refused).contains("adjutant auth login far"), "{refused}");
}
